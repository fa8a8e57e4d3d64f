"""Starts a real ``vllm serve`` with our worker extension, from the environment of VLLM_PYTHON.

    VLLM_PYTHON=vllm-env/bin/python python -m pytest -c pyproject.toml -n 0 -m real tests/contract

docs/vllm.md describes how to create such an environment on a machine without a GPU.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from benchmarks.vllm_server import served
from tests.contract.recording import Answer

PATIENCE = 900
"""Maximum duration of the start in seconds, on a machine with other load."""


@dataclass
class RealVLLM:
    process: subprocess.Popen[bytes]
    url: str
    closeness: float = 1e-4

    def answer(self, path: str, body: dict[str, Any]) -> Answer:
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=600)
        try:
            connection.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
            return response.status, json.loads(content) if content else None
        finally:
            connection.close()

    def kill(self) -> None:
        """Kills the server and its workers, which would otherwise outlive it."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def real_vllm(model: Path, log: Path, *options: str, port: int | None = None) -> Iterator[RealVLLM]:
    """Serves the model in this folder until the context ends. Skips the test if there is no vLLM."""
    python = os.environ.get("VLLM_PYTHON")
    if not python:
        pytest.skip("VLLM_PYTHON names no Python of an environment with vLLM, see docs/vllm.md")
    program = str(Path(python).absolute().with_name("vllm"))
    with served(program, model, device="cpu", log=log, seconds=PATIENCE, options=options, port=port) as (url, process):
        yield RealVLLM(process, url)
