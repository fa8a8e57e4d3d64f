"""A real MLflow server, and a door before it that can be shut, slow, or say 500."""

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
    """``mlflow server`` on a database of its own, which outlives the process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns once it answers."""
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
                asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                asked.request("GET", "/health")
                if asked.getresponse().status == 200:
                    return
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL to all of its processes; more than once does no harm."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Door:
    """Hands requests on to a server; what of metrics passed is counted.

    ``mood`` may be changed at any time: ``open``; ``500``, which asks nobody; ``forgetful``, which asks, and says 500
    where an address is asked for the first time. ``seconds`` is what an answer takes.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.port = free_port()
        self.mood, self.seconds = "open", 0.0
        self.requests = 0
        self.points: list[tuple[str, str, int]] = []
        """Run, name and step of every number that the server took."""
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
                status, kind, said = 500, "text/plain", b"disk full, or worse"
                if door.mood != "500":
                    answer = door._ask(self.command, self.path, body, dict(self.headers))
                    known = door.mood == "open" or self.path in door._asked
                    status, kind, said = answer if known else (status, kind, said)
                    door._asked.add(self.path)
                with suppress(OSError):  # nobody waits any more
                    self.send_response(status)
                    self.send_header("Content-Type", kind)
                    self.send_header("Content-Length", str(len(said)))
                    self.end_headers()
                    self.wfile.write(said)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def shut(self) -> None:
        """Refuse connections, as a machine on which nothing listens; more than once does no harm."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None

    def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str, bytes]:
        asked = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        headers["Host"] = f"127.0.0.1:{self.server.port}"
        try:
            asked.request(method, path, body, headers)
            answer = asked.getresponse()
            said = answer.read()
        except OSError:
            return 502, "text/plain", b"the server is gone"
        if answer.status == 200 and path.endswith("runs/log-batch"):
            sent = json.loads(body)
            self.points += [(sent["run_id"], m["key"], int(m.get("step", 0))) for m in sent.get("metrics", [])]
        return answer.status, answer.headers.get("Content-Type", "text/plain"), said


def _without_address() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
