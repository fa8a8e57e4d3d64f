"""The commands of ``contrastive-reasoning``: which module each runs, and with which words. Standard library only.

They are the targets of the Makefile under the same names, with the same variables:

    make exp name=llama_critic over='seed=1'          contrastive-reasoning exp llama_critic seed=1
    make plan name=grpo_gsm8k scale=paper gpus=8      contrastive-reasoning plan grpo_gsm8k scale=paper gpus=8
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Words = list[str]
Names = Literal["experiment", "study", ""]

EVALUATED, SUITE = "llama_critic", "countdown_laptop"
"""What ``eval`` takes where nothing is said: the Makefile's own defaults."""
EVALUATIONS = "eval"
"""The experiment that its run then belongs to: a model of any origin is no run of ``EVALUATED``."""
COMPARED = "[metric=…] [sets=main,…] [by=key,key] [baseline=NAME] [curve=…]"


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command: what it says of itself, and the process that it becomes."""

    summary: str
    """One line; that of the Makefile's target."""
    usage: str
    """What may follow the command's name."""
    example: str
    """Words that could be typed behind the program's name."""
    module: str
    """Run as ``python -m``."""
    words: Callable[[Sequence[str]], Words]
    """The module's arguments, from what was typed behind the command."""
    names: Names = ""
    """What the words without ``=`` are names of."""
    own_keys: Sequence[str] = ()
    """The keys that are not the configuration's."""
    overrides: bool = False
    """Whether keys of the configuration may follow."""


def named(typed: Sequence[str]) -> tuple[str | None, Words]:
    """The name, written alone in the first place or as ``name=``, and the other words."""
    if typed and "=" not in typed[0] and not typed[0].startswith("-"):
        return typed[0], [*typed[1:]]
    return taken("name", typed)


def taken(key: str, typed: Sequence[str]) -> tuple[str | None, Words]:
    """The value of ``key=``, the last where there are several, and the words that are left."""
    values = [word.removeprefix(f"{key}=") for word in typed if word.startswith(f"{key}=")]
    return (values or [None])[-1], [word for word in typed if not word.startswith(f"{key}=")]


def of_experiment(typed: Sequence[str]) -> Words:
    name, rest = named(typed)
    return rest if name is None else [f"experiment={name}", *rest]


def of_sweep(typed: Sequence[str]) -> Words:
    return ["-m", *of_experiment(typed)]


def of_study(typed: Sequence[str]) -> Words:
    name, rest = named(typed)
    return rest if name is None else [name, *rest]


def of_evaluation(typed: Sequence[str]) -> Words:
    name, rest = named(typed)
    suite, rest = taken("suite", rest)
    model, rest = taken("model", rest)
    policy = [f"policy.pretrained={model}", "policy.chat_template=null"] if model else []
    apart = [] if name else [f"name={EVALUATIONS}"]
    return [f"experiment={name or EVALUATED}", "stages=[evaluate]", f"suite={suite or SUITE}", *apart, *policy, *rest]


def of_sync(typed: Sequence[str]) -> Words:
    given = [word for word in typed if word.startswith("name=") or not (word.startswith("-") or "=" in word)]
    names = [name for word in given for name in word.removeprefix("name=").split()]
    rest = [word for word in typed if word not in given]
    return [*([f"outputs/runs/{name}" for name in names] or ["outputs"]), *rest]


def as_typed(typed: Sequence[str]) -> Words:
    return [*typed]


COMMANDS = {
    "exp": Command(
        summary="run one experiment",
        usage="NAME [key=value …]",
        example="exp llama_critic seed=1 objective=gspo",
        module="experiments.run",
        words=of_experiment,
        names="experiment",
        overrides=True,
    ),
    "sweep": Command(
        summary="run what is left of a sweep, show what came out",
        usage="NAME [sweep=PRESET] [key=value,value …]",
        example="sweep clipo_laptop sweep=tau seed=0,1,2",
        module="experiments.run",
        words=of_sweep,
        names="experiment",
        overrides=True,
    ),
    "study": Command(
        summary="run the arms and seeds of a study that are left",
        usage="NAME [parallel=1] [only=arm,arm] [seeds=2] [progress=json]",
        example="study countdown_credit parallel=1",
        module="experiments.study",
        words=of_study,
        names="study",
        own_keys=("parallel", "only", "seeds", "progress"),
    ),
    "list": Command(
        summary="every experiment with its question, the studies, the sweeps",
        usage="",
        example="list",
        module="experiments.cli.catalogue",
        words=as_typed,
    ),
    "plan": Command(
        summary="what an experiment costs before anything is loaded",
        usage="NAME [scale=paper] [gpus=8] [gpu_memory=80] [mfu=0.4] [tflops=989] [key=value …]",
        example="plan grpo_gsm8k scale=paper gpus=8",
        module="experiments.plan",
        words=of_experiment,
        names="experiment",
        own_keys=("gpus", "gpu_memory", "mfu", "tflops", "prompt_tokens", "completion_tokens"),
        overrides=True,
    ),
    "eval": Command(
        summary="evaluate a model",
        usage="[NAME] [model=HUB_NAME_OR_FOLDER] [suite=SUITE] [key=value …]",
        example="eval model=Qwen/Qwen2.5-0.5B-Instruct suite=track1",
        module="experiments.run",
        words=of_evaluation,
        names="experiment",
        own_keys=("model",),
        overrides=True,
    ),
    "sample": Command(
        summary="completions of one problem, judged step by step",
        usage="[model=HUB_NAME_OR_FOLDER] [prompt=TEXT] [answer=TEXT] [critic=FOLDER] [n=1] [temperature=1.0] "
        "[max_tokens=48] [key=value …]",
        example="sample prompt='numbers=3,5,8 target=23' n=3",
        module="experiments.sample",
        words=as_typed,
        own_keys=("model", "prompt", "answer", "critic", "n", "temperature", "max_tokens"),
        overrides=True,
    ),
    "compare": Command(
        summary="table and curves of finished runs",
        usage=f"NAME [NAME …] {COMPARED}",
        example="compare grpo_laptop clipo_laptop",
        module="experiments.compare",
        words=as_typed,
        names="experiment",
        own_keys=("metric", "sets", "by", "baseline", "curve"),
    ),
    "report": Command(
        summary="one page of HTML of finished runs",
        usage=f"NAME [NAME …] {COMPARED} [output=FILE]",
        example="report grpo_laptop clipo_laptop",
        module="experiments.report",
        words=as_typed,
        names="experiment",
        own_keys=("metric", "sets", "by", "baseline", "curve", "output"),
    ),
    "dashboard": Command(
        summary="open MLflow on the local results, for this machine alone",
        usage="[NAME …] [MLflow's own flags]",
        example="dashboard llama_baseline llama_critic --port 5001",
        module="experiments.dashboard",
        words=as_typed,
        names="experiment",
    ),
    "sync": Command(
        summary="send to MLflow what it missed while it did not answer",
        usage="[NAME …]",
        example="sync llama_critic",
        module="experiments.track",
        words=of_sync,
        names="experiment",
    ),
    "bench": Command(
        summary="measure a GRPO step side by side with its peers, as ratios on this machine",
        usage="[--workloads …] [--measures …] [--repeats N] [--device cpu|cuda]",
        example="bench --workloads short --measures generation update --repeats 3",
        module="benchmarks",
        words=as_typed,
    ),
}
