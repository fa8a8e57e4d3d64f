"""A proxy between the tested engine and a fake or real server. It records requests and can change responses."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

Answer = tuple[int, Any]
"""Status and content; None for no content."""


class Backend(Protocol):
    closeness: float
    """Largest allowed difference of its log-probs from those of our forward pass in float32."""

    def answer(self, path: str, body: dict[str, Any]) -> Answer: ...


@dataclass
class Served:
    """A backend with its own address.

    ``tamper``: path, or method of a remote call → function that changes the content of a successful response.
    ``drop``: number of connections to close without a response.
    """

    backend: Backend
    url: str = ""
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    tamper: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    drop: int = 0

    def paths(self) -> list[str]:
        return [_name(path, body) for path, body in self.requests]

    def completions(self) -> list[dict[str, Any]]:
        """The bodies of the requests for completions."""
        return [body for path, body in self.requests if path == "/v1/completions"]

    def answer(self, path: str, body: dict[str, Any]) -> Answer:
        self.requests.append((path, body))
        status, content = self.backend.answer(path, body)
        change = self.tamper.get(_name(path, body))
        return status, change(content) if change and status == 200 else content


def _name(path: str, body: dict[str, Any]) -> str:
    return body["method"] if path == "/collective_rpc" else path


@contextmanager
def serving(backend: Backend) -> Iterator[Served]:
    """Serves the backend over real HTTP until the context ends."""
    served = Served(backend)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(served))
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def handler_of(served: Served) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if served.drop > 0:
                served.drop -= 1
                self.connection.close()
                return
            status, made = served.answer(self.path, body)
            content = b"" if made is None else json.dumps(made).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
