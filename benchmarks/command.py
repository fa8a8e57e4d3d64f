"""One table: the parts of a GRPO step here and in the peers, as ratios of one run on the same work:  make bench

    python -m benchmarks --workloads short --measures generation update --repeats 3      a part of it
    python -m benchmarks --device cuda                                   two shapes of Qwen2, on a GPU

Results and notes go to ``outputs/bench.json``; a whole run on the CPU also writes ``docs/performance.md``. ``scaling``
and ``clipo_overhead`` are of the small policy on the CPU and left out elsewhere. It has not been run on a GPU yet.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from itertools import product
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.arms import TRAINERS, ArmFailed, NoEnvironment, Tell, peer_python
from benchmarks.clipo import clipo_overhead
from benchmarks.measures import MEASURES, PAIRS, PARTS, Findings
from benchmarks.page import page
from benchmarks.side_by_side import SideBySide, UnequalWork, scaling
from benchmarks.workloads import FOLDER, MODELS, QWEN2, SMALL, WORKLOADS, on
from experiments.schema import register
from experiments.system.files import write_json, write_text

OUTPUT = Path("outputs") / "bench.json"
AT_HOME = ("scaling", "clipo_overhead")
PAGE = Path("docs") / "performance.md"
KEYS = [workload.key for workload in WORKLOADS]
NO_VLLM = {
    False: "vLLM was not measured: it needs a GPU, and this machine has none.",
    True: "vLLM was not measured: there is no arm for it yet.",
}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="counted repeats of every measure")
    parser.add_argument("--workloads", nargs="+", choices=KEYS, default=KEYS)
    parser.add_argument("--measures", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--device", choices=TRAINERS, default="cpu", help="where all arms compute")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="takes the results and the notes")
    parser.add_argument("--models", nargs="+", choices=MODELS, help="default: small on the CPU, the others on a GPU")
    chosen = parser.parse_args()
    chosen.models = chosen.models or ([SMALL] if chosen.device == "cpu" else list(QWEN2))
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda needs a CUDA device, and this machine has none")
    if chosen.device != "cpu" or chosen.models != [SMALL]:
        chosen.measures = [measure for measure in chosen.measures if measure not in AT_HOME]
    if chosen.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {chosen.repeats}")
    chosen.whole = set(chosen.measures) == set(MEASURES) and set(chosen.workloads) == set(KEYS)
    return chosen


def run(chosen: argparse.Namespace, found: Findings, tell: Tell) -> None:
    """All chosen measures; what a peer cannot do is a note, and the rest goes on."""
    on_workloads = {*PARTS, *PAIRS} & set(chosen.measures)
    python = None
    if set(PARTS) & on_workloads:
        tell("the peers' environment (some minutes, once)")
        found.notes.append(NO_VLLM[torch.cuda.is_available()])
        try:
            python = peer_python(FOLDER / "peers")
        except NoEnvironment as reason:
            found.notes.append(f"TRL and transformers were not measured: {reason}.")
    for model, workload in product(chosen.models, WORKLOADS):
        if workload.key in chosen.workloads and on_workloads:
            SideBySide(
                workload=on(workload, model=model, device=chosen.device),
                measures=on_workloads,
                repeats=chosen.repeats,
                python=python,
                found=found,
                tell=lambda what, title=f"{workload.title}, {model}": tell(f"{title} · {what}"),
            )()
    if "scaling" in chosen.measures:
        scaling(repeats=chosen.repeats, found=found, tell=lambda what: tell(f"scaling · {what}"))
    if "clipo_overhead" in chosen.measures:
        tell("clipo_overhead")
        found.results.append(clipo_overhead(repeats=chosen.repeats))


def report(found: Findings, console: Console, output: Path) -> None:
    """A table for each workload, and all of it in a file."""
    write_json(output, asdict(found))
    tables: dict[str, Table] = {}
    for result in found.results:
        columns = ("measure", "against", "ratio", "from", "to", "ours s", "peer s")
        table = tables.setdefault(result.workload, Table(*columns, title=result.workload))
        numbers = (result.ratio, result.ratio_min, result.ratio_max, result.ours_s, result.peer_s)
        table.add_row(result.measure, result.peer, *(f"{number:#.3g}" for number in numbers))
    console.print(*tables.values(), *found.notes, sep="\n")
    console.print("A ratio is the peer's seconds over ours; of clipo_overhead ours over the peer's.")
    console.print("Of decode_roofline it is the fraction of what the memory's bandwidth allows.")
    console.print(f"Written: {output}")


def main() -> None:
    chosen, console, found = options(), Console(), Findings()
    register()
    failure = None
    with console.status("starting") as status:
        try:
            run(chosen, found, status.update if console.is_terminal else console.print)
        except (ArmFailed, UnequalWork) as error:  # ours: what was measured before it is kept
            failure = str(error)
        except KeyboardInterrupt:
            failure = "stopped before its end; what was measured until then is kept"
    report(found, console, chosen.output)
    if failure is not None:
        raise SystemExit(failure)
    if chosen.whole:
        write_text(PAGE, page(found, repeats=chosen.repeats))
        console.print(f"Written: {PAGE}")
    else:
        console.print(f"A part of the measures: {PAGE} stays as it is.")
