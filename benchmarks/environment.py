"""The peers' environment: made by the command itself, once, with pinned versions; afterwards reused as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from experiments.system.files import write_json

TRL = "1.16.0"
REQUIREMENTS = (
    "torch==2.13.0",
    f"trl=={TRL}",
    "transformers==5.23.0",
    "accelerate==1.15.0",
    "datasets==5.2.0",
    "tokenizers==0.23.3",
    "numpy==2.4.6",
)
"""torch and transformers as ours, so that an arm's advantage is not its library's. pip gets all in one command."""
STAMP = "installed.json"


class NoEnvironment(RuntimeError):
    """The peers could not be installed; the message is one sentence."""


def peer_python(folder: Path, requirements: tuple[str, ...] = REQUIREMENTS) -> Path:
    """The interpreter of the environment in ``folder``, which is made where it is not there or of other versions.

    Raises:
        NoEnvironment: where pip does not succeed: no network, no such version.
    """
    python, stamp = folder / "bin" / "python", folder / STAMP
    if stamp.is_file() and json.loads(stamp.read_text(encoding="utf-8")) == list(requirements):
        return python
    stamp.unlink(missing_ok=True)
    _run([sys.executable, "-m", "venv", str(folder)], "make an environment")
    _run([str(python), "-m", "pip", "install", "--quiet", *requirements], "install " + ", ".join(requirements))
    write_json(stamp, list(requirements))
    return python


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = errors[-1].removeprefix("ERROR: ") if errors else f"exit status {done.returncode}"
        raise NoEnvironment(f"could not {what}: {reason}")
