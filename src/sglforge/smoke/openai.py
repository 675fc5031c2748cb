"""SGLang's own requests in the words of the OpenAI-compatible routes, which other engines understand too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from sglforge.smoke.client import Request

COMPLETIONS = "/v1/completions"


def translated(request: Request, model: str | None) -> Request:
    """Return a plain continuation (``/generate``) as a completion of a model; any other request as it is.

    Only the prompt, the number of tokens, temperature and JSON schema are carried over: a probe that says more
    needs SGLang itself.
    """
    match (request.path, request.body):
        case ("/generate", {"text": str(prompt), "sampling_params": dict(sampling), **others}):
            asked: dict[str, object] = {
                "model": model,
                "prompt": prompt,
                "max_tokens": sampling.get("max_new_tokens"),
                "temperature": sampling.get("temperature", 0),
            }
            if others.get("stream"):
                asked["stream"] = True
            if schema := sampling.get("json_schema"):
                asked["response_format"] = _response_format(schema)
            return replace(request, path=COMPLETIONS, body=asked)
        case _:
            return request


def _response_format(schema: object) -> Mapping[str, object]:
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": json.loads(str(schema)), "strict": True},
    }
