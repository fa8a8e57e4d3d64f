"""Runs a vLLM server of a policy, with our worker extension, within a context."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from lightning.fabric.plugins.environments.lightning import find_free_network_port

from benchmarks.processes import failure, start, stop
from contrastive_reasoning.rollout import vllm_server

OPTIONS = {
    "cuda": ("--gpu-memory-utilization", "0.3"),  # the trainer needs the rest of the same device
    "cpu": (
        *("--dtype", "float32", "--enforce-eager", "--max-num-seqs", "64"),
        *("--max-num-batched-tokens", "32768"),  # a seeded request fails if its prompt is read in chunks
    ),
}
"""Device → options of ``vllm serve``."""
EXTENSION = ("--worker-extension-cls", "weight_sync.WeightSync")
VARIABLES = {
    "VLLM_SERVER_DEV_MODE": "1",  # opens the endpoints that change weights
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONPATH": str(Path(vllm_server.__file__).parent),
}
ON_A_CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "TORCH_COMPILE_DISABLE": "1",  # otherwise the first request compiles the sampler for minutes
}
LOCAL = "127.0.0.1"


class NotUp(RuntimeError):
    """Raised if the server does not start; the message is one sentence."""


@contextmanager
def served(
    program: str,
    policy: Path,
    *,
    device: str,
    log: Path,
    seconds: float,
    options: Sequence[str] = (),
    port: int | None = None,
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Yields the address and the process of a server, which is stopped at the end of the context.

    ``serve`` and the options are appended to the command ``program``. ``device`` is cpu or cuda, ``seconds`` limits the
    start, and ``port`` None is a free one.

    Raises:
        NotUp: if it ends before it answers, or does not answer in time.
        OSError: if the program does not exist.
    """
    port = port or find_free_network_port()
    url, place = f"http://{LOCAL}:{port}", ("--host", LOCAL, "--port", str(port))
    command = [*shlex.split(program), "serve", str(policy.resolve()), *place, *EXTENSION, *OPTIONS[device], *options]
    server = start(command, log=log, variables=VARIABLES | (ON_A_CPU if device == "cpu" else {}))
    try:
        wait_until_up(server, url, log=log, seconds=seconds)
        yield url, server
    finally:
        stop(server)


def wait_until_up(server: subprocess.Popen[bytes], url: str, *, log: Path, seconds: float) -> None:
    """Waits until the server answers. Raises NotUp if it ends before or does not answer in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (code := server.poll()) is not None:
            raise NotUp(failure(code, log))
        try:
            with urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise NotUp("it did not answer within the time limit")
