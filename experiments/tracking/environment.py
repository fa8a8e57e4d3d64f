"""What a run ran on, for whoever wants to run it again: the machine, and every package with its version.

    outputs/runs/NAME/RUN/environment.json    system, Python, processors, memory, accelerators
    outputs/runs/NAME/RUN/installed.txt       name==version, a line a package: a lock that ``pip install -r`` reads;
                                              this project is not in it, and a build (torch 2.13.0+cpu) is a remark

No variable of the environment and no address that a package was installed from is among it: those may hold secrets.
"""

from __future__ import annotations

import os
import platform
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch

ENVIRONMENT, INSTALLED = "environment.json", "installed.txt"
OURS = "contrastive-reasoning"


def environment() -> dict[str, Any]:
    """The machine and the interpreter."""
    return {
        "system": platform.platform(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "processors": os.cpu_count(),
        "memory_megabytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 10**6,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "accelerators": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
    }


def processor() -> str:
    """The processor's name, as far as the system says it: on another one the last digits may be others."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text(encoding="utf-8").splitlines() if known.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine()


def installed() -> str:
    """One line for each package that Python finds here, by name, with the version that an index has it under."""
    found = {one.metadata["Name"]: one.version for one in distributions() if one.metadata["Name"]}
    found.pop(OURS, None)
    return "".join(f"{_locked(name, found[name])}\n" for name in sorted(found, key=str.lower))


def _locked(name: str, version: str) -> str:
    public, plus, _ = version.partition("+")
    return f"{name}=={public}" + (f"  # {version}" if plus else "")
