"""The commands of ``contrastive-reasoning``: the module that each runs and its arguments. Standard library only.

They have the names and variables of the Makefile's targets:

    make exp name=llama_critic over='seed=1'          contrastive-reasoning exp llama_critic seed=1
    make plan name=grpo_gsm8k scale=paper gpus=8      contrastive-reasoning plan grpo_gsm8k scale=paper gpus=8
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

EVALUATED, SUITE = "llama_critic", "countdown_laptop"
"""Defaults of ``eval``, as in the Makefile."""
EVALUATIONS = "eval"
"""Name of the experiment for ``eval`` without a name: a model of any origin is not a run of ``EVALUATED``."""
COMPARED = "[metric=…] [sets=main,…] [by=key,key] [baseline=NAME] [curve=…]"
OF_THE_CONFIGURATION = ("key", "sweep", "suite", "scale")
"""Keys in usage texts that belong to the configuration."""


def without_name(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Returns the name, given first or as ``name=``, and the other arguments."""
    if arguments and "=" not in arguments[0] and not arguments[0].startswith("-"):
        return arguments[0], [*arguments[1:]]
    return without_key("name", arguments)


def without_key(key: str, arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Returns the value of ``key=``, the last if there are several, and the other arguments."""
    values = [argument.removeprefix(f"{key}=") for argument in arguments if argument.startswith(f"{key}=")]
    return (values or [None])[-1], [argument for argument in arguments if not argument.startswith(f"{key}=")]


def for_experiment(arguments: Sequence[str]) -> list[str]:
    name, rest = without_name(arguments)
    return rest if name is None else [f"experiment={name}", *rest]


def for_sweep(arguments: Sequence[str]) -> list[str]:
    return ["-m", *for_experiment(arguments)]


def for_study(arguments: Sequence[str]) -> list[str]:
    name, rest = without_name(arguments)
    return rest if name is None else [name, *rest]


def for_evaluation(arguments: Sequence[str]) -> list[str]:
    name, rest = without_name(arguments)
    suite, rest = without_key("suite", rest)
    model, rest = without_key("model", rest)
    policy = [f"policy.pretrained={model}", "policy.chat_template=null"] if model else []
    apart = [] if name else [f"name={EVALUATIONS}"]
    return [f"experiment={name or EVALUATED}", "stages=[evaluate]", f"suite={suite or SUITE}", *apart, *policy, *rest]


def for_sync(arguments: Sequence[str]) -> list[str]:
    given = [word for word in arguments if word.startswith("name=") or not (word.startswith("-") or "=" in word)]
    names = [name for word in given for name in word.removeprefix("name=").split()]
    rest = [word for word in arguments if word not in given]
    return [*([f"outputs/runs/{name}" for name in names] or ["outputs"]), *rest]


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command: its help and the module that it runs."""

    summary: str
    """One line, the same as that of the Makefile's target."""
    usage: str = ""
    """Arguments that may follow the command's name."""
    example: str
    """Example arguments after the program's name."""
    module: str
    """Run as ``python -m``."""
    arguments: Callable[[Sequence[str]], list[str]] = list
    """Maps the arguments after the command's name to those of the module."""
    names: Literal["experiment", "study", ""] = ""
    """Kind of thing that arguments without ``=`` name."""
    overrides: bool = False
    """Whether keys of the configuration may follow."""

    @property
    def own_keys(self) -> list[str]:
        """The keys that do not belong to the configuration."""
        return [key for key in re.findall(r"\[(\w+)=", self.usage) if key not in OF_THE_CONFIGURATION]


COMMANDS = {
    "exp": Command(
        summary="run one experiment",
        usage="NAME [key=value …]",
        example="exp llama_critic seed=1 objective=gspo",
        module="experiments.run",
        arguments=for_experiment,
        names="experiment",
        overrides=True,
    ),
    "sweep": Command(
        summary="run what is left of a sweep, show its table",
        usage="NAME [sweep=PRESET] [key=value,value …]",
        example="sweep clipo_laptop sweep=tau seed=0,1,2",
        module="experiments.run",
        arguments=for_sweep,
        names="experiment",
        overrides=True,
    ),
    "study": Command(
        summary="run the arms and seeds of a study that are left",
        usage="NAME [parallel=1] [only=arm,arm] [first=12] [seeds=2] [launcher=submitit_slurm] [progress=json]",
        example="study countdown_credit parallel=1",
        module="experiments.study",
        arguments=for_study,
        names="study",
    ),
    "list": Command(
        summary="list experiments with their questions, studies and sweeps",
        example="list",
        module="experiments.cli.catalogue",
    ),
    "model": Command(
        summary="fetch a pretrained model into outputs/models",
        usage="NAME [revision=BRANCH_TAG_OR_COMMIT] [output_dir=outputs]",
        example="model smollm2-135m-q4",
        module="experiments.model",
        arguments=for_study,
    ),
    "plan": Command(
        summary="show what an experiment costs, without loading anything",
        usage="NAME [scale=paper] [gpus=8] [gpu_memory=80] [mfu=0.4] [tflops=989] [prompt_tokens=200] "
        "[completion_tokens=800] [key=value …]",
        example="plan grpo_gsm8k scale=paper gpus=8",
        module="experiments.plan",
        arguments=for_experiment,
        names="experiment",
        overrides=True,
    ),
    "eval": Command(
        summary="evaluate a model",
        usage="[NAME] [model=HUB_NAME_OR_FOLDER] [suite=SUITE] [key=value …]",
        example="eval model=Qwen/Qwen2.5-0.5B-Instruct suite=track1",
        module="experiments.run",
        arguments=for_evaluation,
        names="experiment",
        overrides=True,
    ),
    "sample": Command(
        summary="draw completions of one problem, judged step by step",
        usage="[model=HUB_NAME_OR_FOLDER] [prompt=TEXT] [answer=TEXT] [critic=FOLDER] [n=1] [temperature=1.0] "
        "[max_tokens=48] [key=value …]",
        example="sample prompt='numbers=3,5,8 target=23' n=3",
        module="experiments.sample",
        overrides=True,
    ),
    "compare": Command(
        summary="show table and curves of finished runs",
        usage=f"NAME [NAME …] {COMPARED}",
        example="compare grpo_laptop clipo_laptop",
        module="experiments.compare",
        names="experiment",
    ),
    "report": Command(
        summary="write one HTML page of finished runs",
        usage=f"NAME [NAME …] {COMPARED} [output=FILE]",
        example="report grpo_laptop clipo_laptop",
        module="experiments.report",
        names="experiment",
    ),
    "dashboard": Command(
        summary="open MLflow on the local results, for this machine alone",
        usage="[NAME …] [MLflow's own flags]",
        example="dashboard llama_baseline llama_critic --port 5001",
        module="experiments.dashboard",
        names="experiment",
    ),
    "sync": Command(
        summary="send to MLflow what it missed while it was unreachable",
        usage="[NAME …]",
        example="sync llama_critic",
        module="experiments.track",
        arguments=for_sync,
        names="experiment",
    ),
    "bench": Command(
        summary="measure a GRPO step side by side with its peers, as ratios on this machine",
        usage="[--workloads …] [--measures …] [--repeats N] [--device cpu|cuda]",
        example="bench --workloads short --measures generation update --repeats 3",
        module="benchmarks",
    ),
}
