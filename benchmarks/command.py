"""Compare the parts of a GRPO step here and in the peers on the same work, as ratios of one run:  make bench

    python -m benchmarks --workloads short --measures generation update --repeats 3      a part of it
    python -m benchmarks --models smollm2-135m-q4                        a pretrained model, once it is fetched
    python -m benchmarks --device cuda                                   two shapes of Qwen2, on a GPU
    python -m benchmarks --device cuda --variants cuda_graphs varlen     our step with and without these settings

Results and notes go to ``outputs/bench.json``. A run of one model on the CPU, without --workloads and --measures, also
replaces the results on a page: ``docs/performance.md`` for the small policy, ``docs/performance_pretrained.md`` for the
pretrained one.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.arms import ROOT, TRAINERS, ArmFailed, NoEnvironment, Show, peer_python
from benchmarks.measures import MEASURES, PARTS, Findings
from benchmarks.page import results_section, tables, with_results
from benchmarks.side_by_side import SideBySide, UnequalWork
from benchmarks.variants import VARIANTS, WithAndWithout
from benchmarks.workloads import FOLDER, MODELS, PRETRAINED, QWEN2, SMALL, WORKLOADS, on
from experiments.config.known_models import OUTPUTS, model_folder
from experiments.system.files import write_json, write_text

OUTPUT = Path("outputs") / "bench.json"
PAGES = {SMALL: ROOT / "docs" / "performance.md", PRETRAINED: ROOT / "docs" / "performance_pretrained.md"}
"""Model → the page of a complete run that measures only this model, on the CPU."""
KEYS = [workload.key for workload in WORKLOADS]
NO_VLLM = "vLLM was not measured: --vllm does not name its command; docs/vllm.md describes the installation."
HOW_TO_READ = (
    "A ratio is the peer's figure over ours.",
    "Of decode_roofline it is the fraction of what the memory's bandwidth allows,",
    "of update_roofline the fraction of the rate of a large matrix product.",
)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="counted repeats of every measure")
    parser.add_argument("--workloads", nargs="+", choices=KEYS, help="default: all that the models do")
    parser.add_argument("--measures", nargs="+", choices=MEASURES, default=MEASURES, help="default: all")
    parser.add_argument("--device", choices=TRAINERS, default="cpu", help="where all arms compute")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="takes the results and the notes")
    parser.add_argument("--models", nargs="+", choices=MODELS, help="default: small on the CPU, the others on a GPU")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, help="instead of the peers: ours with such settings")
    parser.add_argument("--vllm", help="the command of vLLM, such as vllm-env/bin/vllm")
    chosen = parser.parse_args()
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda needs a CUDA device, and this machine has none")
    if chosen.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {chosen.repeats}")
    on_cpu = chosen.device == "cpu"
    chosen.models = chosen.models or ([SMALL] if on_cpu else list(QWEN2))
    # `is`, not ==: a run with --measures writes no page, even if it names all of them
    complete = not chosen.workloads and not chosen.variants and chosen.measures is MEASURES
    whole = on_cpu and len(chosen.models) == 1 and complete
    chosen.page = PAGES.get(chosen.models[0]) if whole else None
    suited = [workload.key for workload in WORKLOADS if any(map(workload.suits, chosen.models))]
    chosen.workloads = chosen.workloads or suited
    if idle := [key for key in chosen.workloads if key not in suited]:
        parser.error(f"--workloads {idle[0]} is not done by {', '.join(chosen.models)}; choose of {', '.join(suited)}")
    if PRETRAINED in chosen.models and not model_folder(PRETRAINED, OUTPUTS).is_dir():
        parser.error(f"the model {PRETRAINED} is not there; make model name={PRETRAINED} fetches it")
    return chosen


def run(chosen: argparse.Namespace, found: Findings, show: Show) -> None:
    """Runs all chosen measures. What a peer or a variant cannot do becomes a note, and the other measures go on."""
    python = None
    if not chosen.variants and set(PARTS) & set(chosen.measures):
        show("the peers' environment (some minutes, once)")
        if chosen.vllm is None:
            found.notes.append(NO_VLLM)
        try:
            python = peer_python(FOLDER / "peers")
        except NoEnvironment as reason:
            found.notes.append(f"TRL was not measured: {reason}.")
    for model, workload in product(chosen.models, WORKLOADS):
        if workload.key not in chosen.workloads or not workload.suits(model):
            continue
        common: dict[str, Any] = {
            "workload": on(workload, model=model, device=chosen.device),
            "repeats": chosen.repeats,
            "found": found,
            "show": lambda what, title=f"{workload.title}, {model}": show(f"{title} · {what}"),
        }
        if chosen.variants:
            WithAndWithout(variants=chosen.variants, **common)()
        else:
            SideBySide(measures=chosen.measures, python=python, vllm=chosen.vllm, **common)()


def report(found: Findings, output: Path) -> None:
    """Prints a table for each workload and writes all findings to a file."""
    write_json(output, asdict(found))
    for table in tables(found.results):
        table.show()
    print(*found.notes, *HOW_TO_READ, f"Written: {output}", sep="\n")


def main() -> None:
    chosen, console, found = options(), Console(), Findings()
    failure = None
    with console.status("starting") as status:
        try:
            run(chosen, found, status.update if console.is_terminal else console.print)
        except (ArmFailed, UnequalWork) as error:  # of our own arm; earlier results are kept
            failure = str(error)
        except KeyboardInterrupt:
            failure = "stopped before its end; what was measured until then is kept"
    report(found, chosen.output)
    if failure is not None:
        raise SystemExit(failure)
    if chosen.page:
        write_text(chosen.page, with_results(chosen.page, results_section(found, repeats=chosen.repeats)))
        print(f"Written: {chosen.page}")
    else:
        print("A part of the measures, or another model or device: no page is written.")
