"""Check what works on this machine's GPU, part by part, and write one page:  make gpu-check

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

from benchmarks.arms import TRAINERS
from benchmarks.gpu_check.page import Machine, page
from benchmarks.gpu_check.parts import EXPERIMENT, NEEDS, PARTS, Check, outcome_of
from benchmarks.gpu_check.results import Outcome
from experiments.cli.arguments import USAGE_ERROR, KeyValueParser
from experiments.config.known_models import OUTPUTS
from experiments.run_folder.record import PACKAGES, environment, git_sha, processor
from experiments.system.files import write_text
from experiments.system.launch import FAILED, INTERRUPTED
from experiments.system.terminal import be_quiet, protect_output

FOLDER, PAGE = "gpu_check", Path("docs") / "gpu.md"
OF_A_GPU = ("deepspeed", "liger-kernel", "nvidia-ml-py", "vllm")
NO_GPU = "make gpu-check needs a CUDA device, and this machine has none; device=cpu runs its parts on the CPU"


def main(arguments: Sequence[str]) -> int:
    parser = KeyValueParser("benchmarks.gpu_check", __doc__)
    parser.add_argument(
        "model", nargs="?", help="as make model names it, or a folder; default: the hub's, else the index's"
    )
    parser.add_argument("--device", choices=TRAINERS, default="cuda", help="where the parts compute")
    parser.add_argument("--parts", default=",".join(PARTS), help="with commas between them")
    parser.add_argument("--minutes", type=float, default=sum(part.minutes for part in PARTS.values()), help="of all")
    parser.add_argument("--experiment", default=EXPERIMENT, help="its name and overrides, in quotes")
    parser.add_argument("--vllm", help="the vLLM command; default: vllm-env/bin/vllm, else the one on the path")
    parser.add_argument("--output_dir", type=Path, default=OUTPUTS, help=f"its {FOLDER}/ is emptied, and takes all")
    parser.add_argument("--page", type=Path, help=f"default: {PAGE}; on the CPU {PAGE.name} beside the rest")
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
    check = Check(
        device=options.device,
        model=options.model,
        experiment=options.experiment,
        vllm=options.vllm,
        folder=folder,
    )
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
    here, share = machine(check.device), minutes / sum(part.minutes for part in PARTS.values())
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
        write_text(place, page(here, outcomes))
    return outcomes


def machine(device: str) -> Machine:
    versions: dict[str, str] = {}
    for name in (*PACKAGES, *OF_A_GPU):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    today = str(datetime.now(UTC).date())
    return Machine(
        date=today,
        commit=git_sha(),
        device=device,
        environment=environment(),
        processor=processor(),
        versions=versions,
    )


if __name__ == "__main__":
    be_quiet()
    protect_output()
    sys.exit(main(sys.argv[1:]))
