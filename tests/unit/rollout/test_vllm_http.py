from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import takewhile

import pytest

from contrastive_reasoning.rollout.vllm_client import JSONServer, ServerError

Serve = Callable[[bytes | None], str]


def answer(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that sends the same bytes to every connection (None: no reply), and returns its URL."""
    done = threading.Event()
    servers: list[socketserver.ThreadingTCPServer] = []

    def start(content: bytes | None) -> str:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                """Reads the whole request: closing a socket with unread bytes may lose the reply."""
                head = [line.lower() for line in takewhile(bytes.strip, self.rfile)]
                self.rfile.read(sum(int(line.split(b":")[1]) for line in head if line.startswith(b"content-length")))
                if content is None:
                    done.wait(10)
                else:
                    self.wfile.write(content)

        servers.append(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.05,)).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}"

    yield start
    done.set()
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (answer("404 Not Found", b'{"detail": "Not Found"}'), r"404: .*Not Found"),
        (answer("500 Oops", b"x" * 5000), r"500: x{300}$"),
        (answer("200 OK", b"<html>hello</html>"), r"JSON: '<html>hello"),
        (answer("200 OK", b"\xff\xfe"), "JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", "once.*IncompleteRead"),
        (b"what?\r\n\r\n", "once.*BadStatusLine"),
        (b"", "once.*RemoteDisconnected"),
    ],
    ids=["404", "500", "html", "bytes", "cut", "no-http", "closed"],
)
def test_json_server_raises_one_line_errors_for_invalid_answers(serve: Serve, content: bytes, named: str) -> None:
    url = serve(content)
    with pytest.raises(ServerError, match=f"^{url}/x .*{named}") as caught:
        JSONServer(url=url, timeout=5.0, retries=0).post("/x")
    assert "\n" not in str(caught.value)


def test_key_comes_from_the_environment_and_its_absence_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []

    class Guarded(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.headers["Authorization"])
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(400 if asked[-1] == "Bearer right-key" else 401)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Guarded) as listening:
        threading.Thread(target=listening.serve_forever).start()
        try:
            server = JSONServer(url=f"http://127.0.0.1:{listening.server_port}", timeout=5.0, retries=0)
            for key, refused in ((None, True), ("wrong-key", True), ("right-key", False)):
                monkeypatch.delenv("VLLM_API_KEY", raising=False)
                if key is not None:
                    monkeypatch.setenv("VLLM_API_KEY", key)
                with pytest.raises(ServerError, match="VLLM_API_KEY") if refused else nullcontext():
                    server.check_key()
        finally:
            listening.shutdown()
    assert asked == [None, "Bearer wrong-key", "Bearer right-key"]


def test_json_server_does_not_retry_after_a_timeout(serve: Serve) -> None:
    url = serve(None)
    with pytest.raises(ServerError, match=f"^{url}/x .*0.2 seconds"):
        JSONServer(url=url, timeout=0.2, retries=3).post("/x")


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host:1", "http://", "http://host:8000/v1", ""])
def test_json_server_rejects_invalid_urls(url: str) -> None:
    with pytest.raises(ValueError, match=r"rollout\.engine\.url"):
        JSONServer(url=url, timeout=1.0, retries=0)


def test_json_server_takes_no_login_in_its_url() -> None:
    with pytest.raises(ValueError, match=r"rollout\.engine\.url .*VLLM_API_KEY") as caught:
        JSONServer(url="http://ann:secret@127.0.0.1:8000", timeout=1.0, retries=0)
    assert "secret" not in str(caught.value)
