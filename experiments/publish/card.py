"""The model card of a policy, critic or CLIPO head: method, data, figures, command, commit and licence of its run.

Its metadata are written by huggingface_hub. Secrets and local paths are removed from all of it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from omegaconf import OmegaConf

from experiments.analysis.statistics import over_seeds
from experiments.config.composition import critic_checkpoints
from experiments.config.folders import EMBEDDED, without_command
from experiments.config.known_models import HUB_NAME, ORIGIN as FETCHED, known_models
from experiments.run_folder.reader import (
    MANIFEST,
    ORIGIN,
    RESULT,
    STAGES,
    Origin,
    last_values,
    read_config,
    read_json,
    stage_folders,
)
from experiments.system.secrets import hide_secrets, shorten_override, without_paths

OURS = "apache-2.0"
"""Licence of this package and of the policies that come with it."""
METHOD = ("objective", "advantage", "reward", "adapter", "scale")
CRITICS = ("critic", "loss", "datamodule", "scale")
MEASURED = {  # part → stage, pattern of a metric → meaning
    "policy": (
        "evaluate",
        {
            "test/(.+/)?verifier/accuracy": "greedy success",
            "test/(.+/)?verifier/accuracy_sampled": "sampled success",
            "test/average/.+": "success, averaged over sets",
            "start/(.+/)?verifier/accuracy": "greedy success before training",
        },
    ),
    "critic": (
        "critic",
        {
            "val/critic/categorical_accuracy": "categorical accuracy on validation batches",
            "val/oracle/auprc": "AUPRC against exact reachability",
        },
    ),
    "clipo": (
        "grpo",
        {
            "train/clipo/positive_cosine": "cosine of positive pairs at the last step",
            "train/clipo/loss": "contrastive loss at the last step",
        },
    ),
}
USE = {
    "policy": "`make eval model=FOLDER`, or `policy.pretrained=FOLDER policy.chat_template=null` in any experiment.",
    "critic": "`{critic}.checkpoint=FOLDER`, in an experiment whose critic has the configuration in `critic.json`.",
    "clipo": "`safetensors.torch.load_file` reads the head; `clipo.json` has the configuration of its reward.",
}


TEXT = """\
# {name}: {part}

{about}

Trained by contrastive-reasoning, stage `{stage}`. Base: {base}.

## Method

{method}

## Data

Trained on the task `{task}`: {data}.{tested}

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


def hub_datasets(task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields (split, hub name) of a task's data sets; nothing if it reads files or generates problems.

    The split is the task's: ``train``, ``validation`` or ``test``.
    """
    if task.get("path") is not None or task.get("source") == "generated":
        return
    for split, value in task.items():
        if not isinstance(value, Mapping):
            continue
        if "split" not in value:
            yield from hub_datasets(value)
        elif HUB_NAME.fullmatch(str(value["path"])) and not Path(value["path"]).exists():
            yield split, value["path"]


def evaluated(run: Path) -> tuple[str, str | None]:
    """Returns the name of the problems on which a run was tested, empty if unknown, and that of their hub data set."""
    found = {stage: read_json(folder / RESULT) for stage, folder, _ in stage_folders(run)}
    main = read_config(run).get("suite", {}).get("settings", {}).get("main", {})
    dataset = dict(hub_datasets(main.get("task", {}))).get(main.get("split", ""))
    return found.get("evaluate", {}).get("problems") or "", dataset


def measured(run: Path, part: str) -> dict[str, tuple[str, list[float]]]:
    """Returns metric → meaning, and its value in a run with both ends of its interval over problems if it has one."""
    of, meanings = MEASURED[part]
    values = next((last_values(folder) for stage, folder, _ in stage_folders(run) if stage == of), {})
    return {
        name: (meaning, [values[name + end] for end in ("", "_low", "_high") if name + end in values])
        for pattern, meaning in meanings.items()
        for name in values
        if re.fullmatch(pattern, name)
    }


def same_runs(run: Path) -> list[Path]:
    """Returns the runs beside this one, itself included, with its commit and overrides, one for each seed.

    Of uncommitted or unknown code it is this run alone.
    """
    commit = str(read_config(run).get("git_sha") or "-dirty")
    if commit.endswith("-dirty"):
        return [run]
    runs, own = sorted(path.parent for path in run.parent.glob(f"*/{STAGES}")), _identity(run)
    found = {read_config(other)["seed"]: other for other in runs if _identity(other) == own}
    found[read_config(run)["seed"]] = run  # even if a later run has this seed
    return [*found.values()]


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
    for name, meaning in {name: meaning for one in found for name, (meaning, _) in one.items()}.items():
        values = [one[name][1] for one in found if name in one]
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
    sets = [*dict.fromkeys(name for split, name in hub_datasets(config["task"]) if split != "test")]
    # a reward without a critic is replaced by reward=critic
    critic = next((path for path, _ in critic_checkpoints(OmegaConf.create(config["reward"]))), "reward=critic reward")
    options, (problems, dataset) = CRITICS if part == "critic" else METHOD, evaluated(run)
    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=dataset,
            dataset_name=problems,
            metric_type="accuracy",
            metric_name=meaning,
            metric_value=round(values[0], 6),  # of these weights
        )
        for name, (meaning, values) in measured(run, part).items()
        if dataset and problems and name.startswith("test/verifier/")  # the main set, whose problems these are
    ]
    text = TEXT.format(
        name=config["name"],
        part=part,
        about=without_command(origin.about),
        stage=stage.parent.name,
        base=base.text,
        method="\n".join(f"- {option}: `{choices[option]}`" for option in options if option in choices),
        task=choices["task"],
        data=f"data sets {', '.join(sets)}" if sets else "generated or local problems",
        tested=f" Tested on: {problems}." if problems and part == "policy" else "",
        figures=figures(run, part),
        use=USE[part].format(critic=critic),
        commit=config.get("git_sha") or "unknown",
        python=origin.python,
        packages=", ".join(f"{package} {version}" for package, version in origin.packages.items()),
        command=f"python -m experiments.run {shlex.join(map(shorten_override, origin.overrides))}",
        licence=base.licence or "not known here",
    )
    data = ModelCardData(
        base_model=base.hub,
        datasets=sets or None,
        eval_results=results or None,
        metrics=["accuracy"] if results else None,
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
