# SPDX-License-Identifier: MIT
"""Stands in for vLLM: `vllm serve MODEL --host H --port P` as far as the experiments use it.

The same HTTP API (GET /health and /version, POST /v1/completions, streamed or not), with tokens
that are a hash of the prompt. A process of its own stands for the engine: it uses some CPU, and
does not leave when it is asked to. STAND_IN in the environment, or `mode`, says what goes wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

VOCAB = 32000
SLOW_S = 0.05  # before the first token
IDLE_S = 0.1  # after which a connection is closed, in the mode `impatient`
KNOWN = {"model", "prompt", "max_tokens", "temperature", "stream", "return_token_ids"}
KNOWN |= {"ignore_eos", "min_tokens", "top_p", "top_k", "seed", "stop_token_ids"}
ENGINE = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    end = time.process_time() + 0.01
    while time.process_time() < end: pass
    time.sleep(0.04)
"""

Event = dict[str, Any]


def tokens_of(asked: Event) -> list[int]:
    """A pure function of the prompt and, where the sampling is not greedy, of the seed."""
    seed = asked["seed"] if asked["temperature"] > 0 else None
    state = zlib.crc32(json.dumps([asked["prompt"], seed]).encode())
    found = []
    for _ in range(asked["max_tokens"]):
        found.append(state % VOCAB)
        state = zlib.crc32(state.to_bytes(4, "little"))
        if found[-1] in asked.get("stop_token_ids", ()):
            break
    return found


def wrong_with(asked: Event, model: str) -> str:
    """What is said about a request that vLLM would not take; nothing about a good one."""
    if unknown := asked.keys() - KNOWN:
        return f"unknown: {unknown}"
    if asked["model"] != model:
        return f"The model `{asked['model']}` does not exist."
    prompt = asked["prompt"]
    good = prompt and all(type(token) is int and 0 <= token < VOCAB for token in prompt)
    return "" if good and asked["ignore_eos"] is True else "bad prompt"


class Handler(BaseHTTPRequestHandler):
    """One connection, which lives on after a response."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: StandIn

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(503 if self.server.mode == "loading" else 200, b"")
        elif self.path == "/version":
            self.answer(200, b'{"version": "0.0-stand-in"}')
        else:
            self.answer(404, b'{"error": {"message": "Not Found"}}')

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        mode = self.server.mode_of(asked)
        said = wrong_with(asked, self.server.model) if self.path == "/v1/completions" else "where?"
        if said or mode in ("failing", "busy"):
            status = {"failing": 500, "busy": 503}.get(mode, 400)
            self.answer(status, json.dumps({"error": {"message": said or mode}}).encode())
        elif asked["stream"]:
            self.stream(asked, mode)
        else:
            tokens = tokens_of(asked)
            choice = {"index": 0, "text": "", "finish_reason": "length"}
            choice |= {} if mode == "old" else {"token_ids": tokens}
            self.answer(200, json.dumps({"choices": [choice]}).encode())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, asked: Event, mode: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        if mode == "closing":
            self.send_header("Connection", "close")
        self.end_headers()
        if mode == "slow":
            time.sleep(SLOW_S)
        for number, data in enumerate(events(asked, mode)):
            if mode == "truncated" and number == 3:
                self.close_connection = True
                return
            self.write(f"data: {data}\n\n".encode(), mode)
        self.wfile.write(b"0\r\n\r\n")
        if mode == "impatient":  # like uvicorn, from the first response on
            self.connection.settimeout(IDLE_S)

    def write(self, event: bytes, mode: str) -> None:
        """A chunk for each event; or events torn over chunks, and these over segments."""
        size = 7 if mode == "torn" else len(event)
        for at in range(0, len(event), size):
            part = event[at : at + size]
            chunk = b"%x\r\n%s\r\n" % (len(part), part)
            for piece in (chunk[:2], chunk[2:]) if mode == "torn" else (chunk,):
                self.wfile.write(piece)


def events(asked: Event, mode: str) -> Iterator[str]:
    """What follows `data:` in each event of a stream."""
    tokens = tokens_of(asked)
    if mode == "wrong":
        tokens[len(tokens) // 2] ^= 1
    tokens = tokens[:-1] if mode == "short" else tokens
    size = 5 if mode == "together" else 1
    for at in range(0, len(tokens), size):
        last = at + size >= len(tokens)
        choice = {"index": 0, "text": " a", "finish_reason": "length" if last else None}
        choice["token_ids"] = tokens[at : at + size]
        yield "{" if mode == "garbled" and at else json.dumps({"choices": [choice]})
        if mode == "erring" and at:
            yield json.dumps({"error": {"message": "engine died", "code": 500}})
            break
    if mode != "endless":
        yield "[DONE]"


class StandIn(ThreadingHTTPServer):
    """Serves in threads within the with-block. In a mode that breaks requests, every fourth of
    those that stream is broken."""

    daemon_threads = True
    request_queue_size = 1024
    KIND = ("together", "torn", "slow", "closing", "impatient", "loading", "old", "")

    def __init__(self, model: str = "m", mode: str = "", port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.model, self.mode = model, mode
        self.asked: list[Event] = []
        self._lock = threading.Lock()

    @property
    def port(self) -> int:
        return self.server_port

    def mode_of(self, asked: Event) -> str:
        """The mode in which one more request is answered."""
        with self._lock:
            self.asked.append(asked)
            broken = asked["stream"] and len(self.asked) % 4 == 0
        return self.mode if self.mode in self.KIND or broken else ""

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="vllm")
    parser.add_argument("serve", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", required=True, type=int)
    options = parser.parse_args()
    mode = os.environ.get("STAND_IN", "")
    if mode == "dying":
        print("RuntimeError: no kernel image is available", file=sys.stderr)
        return 1
    subprocess.Popen([sys.executable, "-c", ENGINE])
    # Before there are threads: the kernel gives a signal to any that does not block it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with StandIn(options.model, mode, options.port):
        signal.sigwait({signal.SIGTERM})
    return 0


if __name__ == "__main__":
    sys.exit(main())
