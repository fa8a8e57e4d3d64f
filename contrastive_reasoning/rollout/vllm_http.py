"""JSON over HTTP to one server, by the standard library: bounded waits, bounded repeats, one sentence for a failure."""

from __future__ import annotations

import json
import time
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

PAUSE = 0.5
"""Seconds before the first repeat; each further one waits twice as long."""
SHOWN = 300
"""Characters of a server's answer that an error quotes."""


class ServerError(RuntimeError):
    """The server is not there, does not answer in time, refuses, or answers what it should not."""


class JSONServer:
    """Posts to the paths below one address; a connection of its own for each, so that any thread may.

    Args:
        url: ``http://host:port`` or ``https://…``, without a path.
        timeout: seconds that connecting may take, and each wait for a part of the answer.
        retries: repeats after a connection that was refused or closed. An answer that is late is not asked for again:
            the server still works on the first one.

    Raises:
        ValueError: for another kind of address, a timeout that is not positive or a negative ``retries``.
    """

    def __init__(self, *, url: str, timeout: float, retries: int) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"rollout.engine.url must be http://host:port, got {url!r}")
        if timeout <= 0:
            raise ValueError(f"rollout.engine.timeout must be positive, got {timeout}")
        if retries < 0:
            raise ValueError(f"rollout.engine.retries must be at least 0, got {retries}")
        self.url, self.timeout, self.retries = url.rstrip("/"), timeout, retries
        self._connection = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._host, self._port = parts.hostname, parts.port

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """What the server answers, None for an empty answer.

        Raises:
            ServerError: as its docstring says.
        """
        content = json.dumps(body or {}).encode()
        for attempt in range(self.retries + 1):
            try:
                return self._read(path, *self._once(path, content))
            except TimeoutError as error:
                raise ServerError(f"{self.url}{path} did not answer within {self.timeout:g} seconds") from error
            except (OSError, HTTPException) as error:
                if attempt == self.retries:
                    tries = "once" if attempt == 0 else f"{attempt + 1} times"
                    raise ServerError(f"{self.url}{path} cannot be reached (tried {tries}): {error!r}") from error
                time.sleep(PAUSE * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _once(self, path: str, content: bytes) -> tuple[int, bytes]:
        connection = self._connection(self._host, self._port, timeout=self.timeout)
        try:
            connection.request("POST", path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _read(self, path: str, status: int, content: bytes) -> Any:
        shown = content.decode("utf-8", "replace")[:SHOWN]
        if status != 200:
            raise ServerError(f"{self.url}{path} answered with status {status}: {shown}")
        try:
            return json.loads(content) if content else None
        except ValueError as error:
            raise ServerError(f"{self.url}{path} answered what is no JSON: {shown!r}") from error
