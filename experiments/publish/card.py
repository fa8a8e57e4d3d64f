"""The model card of a policy, critic or CLIPO head: method, data, figures, command, commit and licence of its run.

Its metadata are written by huggingface_hub. Secrets and local paths are removed from all of it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from experiments.analysis.statistics import over_seeds
from experiments.config.folders import EMBEDDED, without_command
from experiments.config.known_models import HUB_NAME, known_models
from experiments.config.known_models import ORIGIN as FETCHED
from experiments.run_folder.reader import (
    MANIFEST,
    ORIGIN,
    STAGES,
    Origin,
    last_values,
    read_config,
    read_json,
    stage_folders,
)
from experiments.system.secrets import hide_secrets, without_paths

OURS = "apache-2.0"
"""Licence of this package and of the policies that come with it."""
METHOD = ("objective", "advantage", "reward", "adapter", "scale")
CRITICS = ("critic", "loss", "datamodule", "scale")
MEASURED = {  # part → (stage, metric) → meaning
    "policy": {
        ("evaluate", "test/verifier/accuracy"): "greedy success on test problems",
        ("evaluate", "test/verifier/accuracy_sampled"): "sampled success on test problems",
        ("evaluate", "start/verifier/accuracy"): "greedy success before training",
    },
    "critic": {
        ("critic", "val/critic/categorical_accuracy"): "categorical accuracy on validation batches",
        ("critic", "val/oracle/auprc"): "AUPRC against exact reachability",
    },
    "clipo": {
        ("grpo", "train/clipo/positive_cosine"): "cosine of positive pairs at the last step",
        ("grpo", "train/clipo/loss"): "contrastive loss at the last step",
    },
}
USE = {
    "policy": "`make eval model=FOLDER`, or `policy.pretrained=FOLDER policy.chat_template=null` in any experiment.",
    "critic": "`reward.checkpoint=FOLDER`, in an experiment whose critic has the configuration in `critic.json`.",
    "clipo": "`safetensors.torch.load_file` reads the head; `clipo.json` has the configuration of its reward.",
}


TEXT = """\
# {name}: {part}

{about}

Trained by contrastive-reasoning, stage `{stage}`. Base: {base}.

## Method

{method}

## Data

Task `{task}`, {data}.

## Figures

{figures}

## Use

{use}

## Origin

Commit `{commit}`, Python {python}, {packages}.

```sh
{command}
```

Licence of the base model: {licence}.
"""


@dataclass(frozen=True, kw_only=True)
class Base:
    """The model from which training started."""

    text: str
    hub: str | None = None
    licence: str | None = None


def base_of(pretrained: str | None, files: Mapping[str, Any]) -> Base:
    """Returns the base of a run whose configuration names it so; ``files`` are the local ones that the stage read."""
    if pretrained is None:
        return Base(text="none, from random weights")
    if pretrained.startswith(EMBEDDED):
        return Base(text=f"`{pretrained}`, which comes with contrastive-reasoning", licence=OURS)
    folder = Path(pretrained).expanduser()
    name = str(read_json(folder / FETCHED).get("name", "")) or (folder.name if folder.name in known_models() else "")
    if model := known_models().get(name):
        return Base(text=model.what, licence=model.licence.lower())
    if HUB_NAME.fullmatch(name):  # fetched by make model
        return Base(text=f"the hub's {name}", hub=name, licence=read_json(folder / FETCHED).get("licence"))
    if folder.is_dir() or pretrained in files or not HUB_NAME.fullmatch(pretrained):
        return Base(text=f"a local model, `{folder.name}`")
    return Base(text=f"the hub's {pretrained}", hub=pretrained)


def hub_datasets(task: Mapping[str, Any]) -> Iterator[str]:
    """Yields the hub names of data sets in a task's configuration, none if it reads files or generates problems."""
    if task.get("path") is not None or task.get("source") == "generated":
        return
    for value in filter(lambda value: isinstance(value, Mapping), task.values()):
        if "split" not in value:
            yield from hub_datasets(value)
        elif HUB_NAME.fullmatch(str(value["path"])) and not Path(value["path"]).exists():
            yield value["path"]


def measured(run: Path, part: str) -> dict[str, list[float]]:
    """Returns metric → its value in a run, then both ends of its interval over problems if it has one."""
    values = {stage: last_values(folder) for stage, folder, _ in stage_folders(run)}
    names = {name: values.get(stage, {}) for stage, name in MEASURED[part]}
    ends = ("", "_low", "_high")
    return {
        name: [there[name + end] for end in ends if name + end in there]
        for name, there in names.items()
        if name in there
    }


def same_runs(run: Path) -> list[Path]:
    """Returns the runs beside this one, itself included, with its commit and overrides, one for each seed."""
    found: dict[Any, Path] = {}
    for other in sorted(path.parent for path in run.parent.glob(f"*/{STAGES}")):
        if _identity(other) == _identity(run):
            found[read_config(other)["seed"]] = other
    return [*({**found, read_config(run)["seed"]: run}.values())]


def _identity(run: Path) -> tuple[Any, ...]:
    overrides = {override for override in origin_of(run).overrides if not override.startswith("seed=")}
    return overrides, read_config(run).get("git_sha"), read_json(run / STAGES).keys()


def origin_of(run: Path) -> Origin:
    return Origin.parse((run / ORIGIN).read_bytes())


def figures(run: Path, part: str) -> str:
    """Returns the table of figures: means over seeds with intervals, or those of the only run, named as such."""
    runs = same_runs(run)
    found = [measured(one, part) for one in runs]
    rows: list[tuple[str, str, str, int]] = []
    for (_, name), meaning in MEASURED[part].items():
        values = [one[name] for one in found if name in one]
        if len(values) > 1:
            rows.append((meaning, name, over_seeds([value for value, *_ in values]).text(".3f"), len(values)))
        elif values:
            (value, *ends), interval = values[0], "[{:.3f}, {:.3f}]"
            rows.append((meaning, name, f"{value:.3f} {interval.format(*ends) if ends else ''}".rstrip(), 1))
    if not rows:
        return "This run measured none."
    seed = read_config(run)["seed"]
    many = f"{len(runs)} runs of different seeds, mean ± 95% by Student's t. These weights are those of seed {seed}."
    one = f"One run, of seed {seed}: nothing is known about other seeds. Brackets are 95% over the problems."
    head = [many if len(runs) > 1 else one, "", "| figure | metric | value | runs |", "|---|---|---|---|"]
    return "\n".join(
        [*head, *(f"| {meaning} | `{name}` | {value} | {count} |" for meaning, name, value, count in rows)]
    )


def card(run: Path, part: str, stage: Path) -> ModelCard:
    """Returns the card of what a stage of a run trained. Raises ValueError if its metadata cannot be read back."""
    config, origin, choices = read_config(run), origin_of(run), read_json(run / "choices.json")
    start = (
        config["critic"].get("encoder", {}).get("pretrained") if part == "critic" else config["policy"]["pretrained"]
    )
    base = base_of(start, read_json(stage / MANIFEST).get("files", {}))
    task, sets = str(choices["task"]), [*dict.fromkeys(hub_datasets(config["task"]))]
    options, own = CRITICS if part == "critic" else METHOD, measured(run, part)
    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=(sets or [task])[0],
            dataset_name=task,
            metric_type="accuracy" if "accuracy" in name else name.rpartition("/")[2],
            metric_name=MEASURED[part][of, name],
            metric_value=round(values[0], 6),  # of these weights
        )
        for (of, name), values in ((key, own[key[1]]) for key in MEASURED[part] if key[1] in own)
        if not name.startswith("start/")  # of the policy before training
    ]
    text = TEXT.format(
        name=config["name"],
        part=part,
        about=without_command(origin.about),
        stage=stage.parent.name,
        base=base.text,
        method="\n".join(f"- {option}: `{choices[option]}`" for option in options if option in choices),
        task=task,
        data=f"data sets {', '.join(sets)}" if sets else "generated or local problems",
        figures=figures(run, part),
        use=USE[part],
        commit=config.get("git_sha") or "unknown",
        python=origin.python,
        packages=", ".join(f"{package} {version}" for package, version in origin.packages.items()),
        command=f"python -m experiments.run {shlex.join(origin.overrides)}",
        licence=base.licence or "not known here",
    )
    data = ModelCardData(
        base_model=base.hub,
        datasets=sets or None,
        eval_results=results or None,
        metrics=[*dict.fromkeys(result.metric_type for result in results)] or None,
        model_name=f"{config['name']}-{part}",
        library_name="transformers" if part == "policy" else None,
        pipeline_tag="text-generation" if part == "policy" else None,
        license=base.licence,
        tags=["contrastive-reasoning", part],
    )
    made = ModelCard(f"---\n{data.to_yaml()}\n---\n\n{hide_secrets(without_paths(text))}")
    if made.data.to_dict() != data.to_dict():
        raise ValueError("the card's metadata cannot be read back")
    return made
