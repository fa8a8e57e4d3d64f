"""Check what works on this machine's GPU, part by part, and write the results on a page:  make gpu-check

    python -m benchmarks.gpu_check [MODEL] [device=cuda] [parts=tests,bench] [minutes=30] [experiment=…] [vllm=…]

Every part is a process with a time limit. Its output goes to ``outputs/gpu_check/PART.log``. If it fails, the page
gives the reason, and the next part runs. Exit codes: 0 nothing failed, 1 something failed, 2 there is no GPU or an
argument is invalid.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from benchmarks.arms import ROOT, TRAINERS
from benchmarks.gpu_check.parts import EXPERIMENT, NEEDS, PARTS, Check, outcome_of
from benchmarks.gpu_check.results import Outcome, outcomes_section
from benchmarks.page import with_results
from experiments.cli.arguments import KeyValueParser
from experiments.config.known_models import OUTPUTS
from experiments.run_folder.record import PACKAGES, environment, git_sha, processor
from experiments.system.files import write_text
from experiments.system.launch import FAILED, INTERRUPTED
from experiments.system.terminal import USAGE_ERROR, be_quiet, protect_output

FOLDER, PAGE = "gpu_check", ROOT / "docs" / "gpu.md"
OF_A_GPU = ("deepspeed", "liger-kernel", "nvidia-ml-py", "vllm")
NO_GPU = "make gpu-check needs a CUDA device, and this machine has none; device=cpu runs its parts on the CPU"


def main(arguments: Sequence[str]) -> int:
    parser = KeyValueParser("python -m benchmarks.gpu_check", __doc__)
    named = "as make model names it, or a folder; default: the hub's, else the index's"
    parser.add_argument("model", nargs="?", help=named)
    parser.add_argument("--device", choices=TRAINERS, default="cuda", help="where the parts compute")
    parser.add_argument("--parts", default=",".join(PARTS), help="with commas between them")
    parser.add_argument("--minutes", type=float, default=sum(part.minutes for part in PARTS.values()), help="of all")
    parser.add_argument("--experiment", default=EXPERIMENT, help="its name and overrides, in quotes")
    parser.add_argument("--vllm", help="the vLLM command; default: vllm-env/bin/vllm, else the one on the path")
    parser.add_argument("--output_dir", type=Path, default=OUTPUTS, help=f"its {FOLDER}/ is emptied, and takes all")
    parser.add_argument("--page", type=Path, help="default: docs/gpu.md; on the CPU gpu.md beside the rest")
    options = parser.read(arguments)
    chosen = options.parts.split(",")
    if unknown := [part for part in chosen if part not in PARTS]:
        parser.error(f"parts={options.parts}: there is no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    if options.minutes <= 0:
        parser.error(f"minutes must be positive, got {options.minutes:g}")
    if options.device == "cuda" and not torch.cuda.is_available():
        print(NO_GPU, file=sys.stderr)
        return USAGE_ERROR
    folder = options.output_dir / FOLDER
    place = options.page or (PAGE if options.device == "cuda" else folder / PAGE.name)
    settings = {key: getattr(options, key) for key in ("device", "model", "experiment", "vllm")}
    check = Check(**settings, folder=folder)
    shutil.rmtree(folder, ignore_errors=True)  # otherwise a finished stage would be reused and not measured
    needed = {*chosen, *(NEEDS[part] for part in chosen if part in NEEDS)}
    try:
        outcomes = run_parts(check, needed, options.minutes, place)
    except KeyboardInterrupt:
        print("stopped; the parts that had ended are on the page", file=sys.stderr)
        return INTERRUPTED
    print(f"Written: {place}")
    return FAILED if any(outcome.failures for outcome in outcomes.values()) else 0


def run_parts(check: Check, chosen: set[str], minutes: float, place: Path) -> dict[str, Outcome]:
    """Runs the chosen parts in order. Writes the page after each, so that a stopped check keeps its outcomes."""
    here, share = machine(), minutes / sum(part.minutes for part in PARTS.values())
    outcomes = {
        name: Outcome(not_run="the check was stopped before it" if name in chosen else "it was not chosen")
        for name in PARTS
    }
    for name, part in ((name, part) for name, part in PARTS.items() if name in chosen):
        seconds = 60 * part.minutes * share
        print(f"{name}: at most {seconds:.0f} s", flush=True)
        outcomes[name] = outcome = outcome_of(part, check, seconds=seconds)
        lines = [f"{what}: {why}" for what, why in outcome.failures] or [outcome.not_run or f"{outcome.seconds:.0f} s"]
        print(*(f"{name}: {outcome.state}, {line}" for line in lines), sep="\n", flush=True)
        write_text(place, with_results(PAGE, outcomes_section(here, outcomes, device=check.device)))
    return outcomes


def machine() -> list[tuple[str, str]]:
    """Returns the rows of the page about this machine and its software."""
    found = environment()
    return [
        ("date, commit", f"{datetime.now(UTC).date()}, {git_sha() or 'unknown'}"),
        ("devices", ", ".join(found["accelerators"]) or "no GPU"),
        ("processor", f"{processor()}, {found['processors']} cores, {found['memory_megabytes']:,} MB"),
        ("system", f"{found['system']}, {found['python']}, CUDA {found['cuda'] or 'none'}"),
        ("versions", ", ".join(f"{name} {_version(name)}" for name in (*PACKAGES, *OF_A_GPU))),
    ]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    be_quiet()
    protect_output()
    sys.exit(main(sys.argv[1:]))
