"""A real MLflow server, and a proxy in front of it that can be closed, slow, or respond with 500."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.ports import free_port


class Server:
    """``mlflow server`` with its own database, which outlives the process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts the process and returns once it responds."""
        stores = ["--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db", "--artifacts-destination", "artifacts"]
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        with (self.folder / "server.log").open("ab") as log:
            command = [sys.executable, "-m", "mlflow", "server", *stores, *where]
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True, env=_without_address()
            )
        until = time.monotonic() + 120
        while True:
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < until, "the server does not answer"
            with suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            time.sleep(0.1)

    def kill(self) -> None:
        """Kills all of its processes with SIGKILL; can be called again."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Door:
    """A proxy that forwards requests to a server and records the metrics that the server accepted.

    ``mood`` can change at any time. ``open``: forwards. ``500``: responds with 500 and forwards nothing. ``forgetful``:
    forwards, but responds with 500 to the first request of each path. ``seconds`` is the delay of each response.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.port = free_port()
        self.mood, self.seconds = "open", 0.0
        self.requests = 0
        self.points: list[tuple[str, str, int]] = []
        """Run, name and step of every value that the server accepted."""
        self._asked: set[str] = set()
        self._http: ThreadingHTTPServer | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def listen(self) -> None:
        door = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                door.requests += 1
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                time.sleep(door.seconds)
                status, kind, content = 500, "text/plain", b"disk full, or worse"
                if door.mood != "500":
                    response = door._ask(self.command, self.path, body, dict(self.headers))
                    passed = door.mood == "open" or self.path in door._asked
                    status, kind, content = response if passed else (status, kind, content)
                    door._asked.add(self.path)
                with suppress(OSError):  # the client has disconnected
                    self.send_response(status)
                    self.send_header("Content-Type", kind)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

            def log_message(self, format: str, *args: Any) -> None:
                """Logs nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def shut(self) -> None:
        """Refuses connections from now on, as if nothing listened on the port; can be called again."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None

    def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        headers["Host"] = f"127.0.0.1:{self.server.port}"
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read()
        except OSError:
            return 502, "text/plain", b"the server is gone"
        if response.status == 200 and path.endswith("runs/log-batch"):
            sent = json.loads(body)
            self.points += [(sent["run_id"], m["key"], int(m.get("step", 0))) for m in sent.get("metrics", [])]
        return response.status, response.headers.get("Content-Type", "text/plain"), content


def _without_address() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
