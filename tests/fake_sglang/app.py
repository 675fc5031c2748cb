"""The ASGI application: which route answers what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fake_sglang import compatible, native
from fake_sglang.asgi import Receive, Refused, Reply, Request, Scope, Send, as_json, read, write
from fake_sglang.engine import Engine

Route = Callable[[Engine, Request], Awaitable[Reply]]

COMPATIBLE: dict[tuple[str, str], Route] = {
    ("GET", "/health"): native.health,
    ("GET", "/v1/models"): compatible.models,
    ("POST", "/v1/completions"): compatible.completions,
    ("POST", "/v1/chat/completions"): compatible.chat_completions,
}
NATIVE: dict[tuple[str, str], Route] = {
    ("GET", "/health_generate"): native.health_generate,
    ("GET", "/model_info"): native.model_info,
    ("GET", "/get_model_info"): native.model_info,
    ("GET", "/server_info"): native.server_info,
    ("GET", "/get_server_info"): native.server_info,
    ("GET", "/metrics"): native.metrics,
    ("GET", "/v1/loads"): native.loads,
    ("POST", "/generate"): native.generate,
    ("PUT", "/generate"): native.generate,
    ("POST", "/abort_request"): native.abort_request,
    ("GET", "/flush_cache"): native.flush_cache,
    ("POST", "/flush_cache"): native.flush_cache,
    ("POST", "/tokenize"): native.tokenize,
    ("POST", "/v1/tokenize"): native.tokenize,
    ("POST", "/detokenize"): native.detokenize,
}


class Application:
    """Answer what a server with this engine answers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.routes = COMPATIBLE if engine.options.openai_only else {**COMPATIBLE, **NATIVE}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = await read(scope, receive)
        try:
            await write(await self.reply(request), send)
        finally:
            request.gone.cancel()

    async def reply(self, request: Request) -> Reply:
        """Return the answer to a request."""
        route = self.routes.get((request.method, request.path))
        if route is None:
            known = request.path in {path for _, path in self.routes}
            return as_json({"detail": "Method Not Allowed" if known else "Not Found"}, 405 if known else 404)
        try:
            return await route(self.engine, request)
        except Refused as refused:
            return as_json(refused.document, refused.status)
