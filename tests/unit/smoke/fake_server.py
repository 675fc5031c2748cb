"""Imitate the routes of SGLang that smoke uses, with a fault on demand.

Started as the interpreter of a fake environment: ``fake_server.py -P -m sglang.launch_server --port N ...``. The
fault is named by the environment variable ``FAKE_FAULT``.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FACTS = {"The capital of France is": " Paris.", "One and one is": " two."}
JSON_TEXT = '{"city": "Paris", "country": "France"}'
TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nAttributeError: no threshold\n'


def option(name: str) -> str | None:
    """Return the value of an option on our command line."""
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


SPECULATIVE = option("--speculative-algorithm") is not None
THRESHOLD = int(option("--speculative-disable-batch-threshold") or 0)
# How long the requests of a batch are together, in tokens.
TOGETHER = 64
FAULTS = os.environ.get("FAKE_FAULT", "").split(",")
ACTIVE = FAULTS[0]


class Model:
    """Say the same thing for the same prompt, one byte a token; count what is asked."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = 0
        self.peak = 0
        self.served = 0

    def text(self, prompt: str, tokens: int) -> str:
        """Return a continuation: the fact if there is one, then letters that the prompt decides."""
        letters = hashlib.sha256(prompt.encode()).hexdigest() * 20
        return (FACTS.get(prompt, "") + letters)[:tokens]

    def generate(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer ``/generate``."""
        with self.lock:
            self.running += 1
            self.peak = max(self.peak, self.running)
            self.served += 1
            turn = self.served
        time.sleep(0.3 if THRESHOLD else 0.05 if ACTIVE in {"garbage-together", "nan-in-a-batch"} else 0.003)
        together = self.running
        sampling = body["sampling_params"]
        tokens = int(sampling["max_new_tokens"])
        text = self.text(body["text"], tokens)
        finish = "length"
        if "json_schema" in sampling:
            text, finish = JSON_TEXT, "stop"
        elif ACTIVE == "stops-early" and tokens > 150:
            text, finish = text[:150], "stop"
        text = self.broken(text, together, turn, constrained="json_schema" in sampling)
        with self.lock:
            peak = self.peak
            self.running -= 1
            self.peak = self.peak if self.running else 0
        sent = text[:-1] if ACTIVE == "loses-a-token" and finish == "length" and len(text) > 8 else text
        meta: dict[str, Any] = {"finish_reason": {"type": finish, "length": tokens}, "completion_tokens": len(text)}
        if SPECULATIVE and ACTIVE != "no-speculation":
            steps = self.steps(len(text), peak)
            meta |= {"spec_verify_ct": steps, "spec_num_correct_drafts": len(text) - steps}
        if body.get("return_logprob") and ACTIVE != "no-logprobs":
            meta |= self.scored(sent, together, body["top_logprobs_num"])
        return {"text": sent, "output_ids": [ord(letter) for letter in sent], "meta_info": meta}

    def scored(self, text: str, together: int, candidates: int) -> dict[str, Any]:
        """Return the log-probabilities of a text, one letter a token, with the active fault in them."""
        rows: list[list[Any]] = []
        top: list[list[list[Any]]] = []
        for place, letter in enumerate(text):
            values: list[float | None] = [-0.25 - number for number in range(candidates)]
            late, in_a_batch = place >= 150, together > 2 and place == 7
            if (ACTIVE == "nan-late" and late) or (ACTIVE == "nan-in-a-batch" and in_a_batch):
                values = [None] * candidates
            if ACTIVE == "nan-replaced" and late:
                values = [-5.5] * candidates
            rows.append([values[0], ord(letter), None])
            top.append([[value, ord(letter) + number, None] for number, value in enumerate(values)])
        if ACTIVE == "speculation-without-logprobs" and SPECULATIVE:
            rows, top = rows[:1], top[:1]
        return {"output_token_logprobs": rows, "output_top_logprobs": top}

    def steps(self, tokens: int, together: int) -> int:
        """Return how many verifications a text took: three tokens each, one while the batch is above the threshold."""
        if ACTIVE == "no-acceptance":
            return tokens
        alone = tokens
        if 0 < THRESHOLD < together and ACTIVE != "threshold-ignored":
            alone = 0 if ACTIVE == "threshold-sticks" else max(0, tokens - TOGETHER)
        return tokens - alone + max(1, alone // 3)

    def broken(self, text: str, together: int, turn: int, *, constrained: bool) -> str:
        """Return the text with the active fault in it."""
        match ACTIVE:
            case "not-repeatable" if not constrained:
                return f"{turn}{text}"[: len(text)]
            case "wrong-fact":
                return text.replace("Paris", "Lyons")
            case "invalid-json" if constrained:
                return JSON_TEXT.replace(":", ";")
            case "wrong-json" if constrained:
                return '{"city": 5, "country": "France"}'
            case "open-json" if constrained:
                return JSON_TEXT[:-1]
            case "speculation-changes-text" if SPECULATIVE and not constrained:
                return text[:-1] + "?"
            case "garbage-together" if together > 2:
                return text[:-1] + "!"
            case "repeats-a-token" if len(text) > 180 and not constrained:
                return text[:60] + "!" * (len(text) - 60)
            case "empty" if len(text) > 1:
                return ""
            case _:
                return text


MODEL = Model()


class Handler(BaseHTTPRequestHandler):
    """The routes."""

    def do_GET(self) -> None:
        """Answer questions about the server."""
        if self.path == "/health":
            self.answer({}, 200)
        elif self.path == "/model_info" and ACTIVE != "old-route":
            self.answer({"model_path": "fake"}, 503 if "never-ready" in FAULTS else 200)
        elif self.path == "/get_model_info":
            self.answer({"model_path": "fake"}, 200)
        elif self.path == "/server_info":
            self.answer({"version": "0.0.fake"}, 200)
        else:
            self.answer({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        """Decode."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        tokens = body["sampling_params"]["max_new_tokens"]
        if ACTIVE == "hangs-at-first-token" or (ACTIVE == "hangs-after-200-tokens" and SPECULATIVE and tokens > 200):
            time.sleep(600)
        if ACTIVE == "dies-in-decode" and MODEL.served > 4:
            sys.stderr.write(TRACEBACK)
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        if ACTIVE == "refuses" and tokens > 4:
            self.answer({"error": {"message": "out of pages"}}, 500)
            return
        if ACTIVE == "dies-after-json" and "json_schema" in body["sampling_params"]:
            threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        if ACTIVE == "raises-while-serving" and tokens > 100:
            sys.stderr.write(TRACEBACK)
        self.answer(MODEL.generate(body), 200)

    def answer(self, document: object, status: int) -> None:
        """Send a JSON document."""
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Stay quiet."""


class Server(ThreadingHTTPServer):
    """Takes as many requests at once as smoke sends to a GPU."""

    request_queue_size = 128


def main() -> None:
    """Serve until SIGTERM."""
    print("server_args={}", flush=True)
    if THRESHOLD and ACTIVE != "threshold-silent":
        print(f"sglforge: speculation threshold {THRESHOLD} (a fake worker)", flush=True)
    port = int(option("--port") or 0)
    if f"loses-port-{port}" in FAULTS:
        sys.exit(f"OSError: [Errno 98] error while attempting to bind on port {port}: address already in use")
    if ACTIVE == "dies-at-start" or (ACTIVE == "control-dies" and not SPECULATIVE):
        sys.stderr.write(TRACEBACK)
        sys.exit(3)
    if ACTIVE == "leaves-a-child":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if "traceback" in FAULTS:
        sys.stderr.write(TRACEBACK)
        sys.stderr.flush()
    if ACTIVE == "ignores-sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    print("Load weight begin.", flush=True)
    server = Server(("127.0.0.1", port), Handler)
    print("Application startup complete.", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
