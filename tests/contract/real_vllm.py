"""A real ``vllm serve`` with our worker extension, in the environment that VLLM_PYTHON names.

    VLLM_PYTHON=vllm-env/bin/python python -m pytest -c pyproject.toml -n 0 -m real tests/contract

docs/vllm.md says how to make such an environment on a machine without a GPU.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from contrastive_reasoning.rollout import vllm_server
from tests.contract.recording import Answer
from tests.ports import free_port

OPTIONS = [
    *("--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager", "--max-num-seqs", "32"),
    *("--max-num-batched-tokens", "32768"),  # on a CPU a seeded request dies where its prompt is read in chunks
    *("--worker-extension-cls", "weight_sync.WeightSync"),
]
ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "TORCH_COMPILE_DISABLE": "1",  # its sampler would be compiled at the first request, for minutes
    "HF_HUB_OFFLINE": "1",
    "PYTHONPATH": str(Path(vllm_server.__file__).parent),
}
PATIENCE = 900
"""Seconds that a start may take, on a machine that does other things as well."""


@dataclass
class RealVLLM:
    process: subprocess.Popen[bytes]
    port: int
    closeness: float = 1e-4

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, body: dict[str, Any]) -> Answer:
        status, content = self._request("POST", path, json.dumps(body).encode())
        return status, json.loads(content) if content else None

    def kill(self) -> None:
        """End the server and its workers, which outlive it otherwise."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ready(self) -> bool:
        try:
            return self._request("GET", "/health", b"")[0] == 200
        except (OSError, HTTPException):
            return False

    def _request(self, verb: str, path: str, content: bytes) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            connection.request(verb, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


@contextmanager
def real_vllm(model: Path, log: Path, *options: str, port: int | None = None) -> Iterator[RealVLLM]:
    """A server of the model in this folder, until the end of the context; skips where there is no vLLM."""
    python = os.environ.get("VLLM_PYTHON")
    if not python:
        pytest.skip("VLLM_PYTHON names no Python of an environment with vLLM, see docs/vllm.md")
    port = port or free_port()
    command = [
        str(Path(python).absolute().with_name("vllm")),
        "serve",
        str(model),
        "--port",
        str(port),
        *OPTIONS,
        *options,
    ]
    with (
        log.open("wb") as said,
        subprocess.Popen(
            command, env=os.environ | ENVIRONMENT, cwd=log.parent, stdout=said, stderr=said, start_new_session=True
        ) as process,
    ):
        server = RealVLLM(process, port)
        try:
            deadline = time.monotonic() + PATIENCE
            while not server.ready():
                assert process.poll() is None, f"vLLM ended: {log.read_text()[-2000:]}"
                assert time.monotonic() < deadline, f"vLLM did not start: {log.read_text()[-2000:]}"
                time.sleep(1)
            yield server
        finally:
            server.kill()
