"""An unused port of this machine."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Returns a port that the system chose. It was free, but another process may take it before use."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
