"""The data sets of a stage, as a tracker lists them: by name and digest, with what makes them and how they are used.

Most data here is drawn by a task from its settings, so those settings are the source, and with the hashes of the files
that they name they give the digest: the same problems have the same one, whatever the batch size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.system.checksums import fingerprint
from experiments.tracking.parameters import flatten

TRAINING, EVALUATION = "training", "evaluation"
PLACES = {
    "warm_start": ("task", "warm_start.datamodule.task"),
    "critic": ("datamodule", "datamodule"),
    "grpo": ("task", "prompts.task"),
}
"""Stage → the group whose option names its data, and the node that makes it."""
LOADING = ("batch_size", "oracle_batch_size", "workers", "search_workers")
"""Settings of a data module that say how its data is read, not which it is."""


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """What one stage read."""

    name: str
    digest: str
    """12 hex digits over what makes it, files included."""
    context: str
    """``training`` or ``evaluation``."""
    made_by: Mapping[str, str]
    """The settings of the task or data module, by dotted path; values as they are shown, long ones cut."""
    files: Mapping[str, str]
    """Name → hash of those it reads."""

    def entry(self) -> dict[str, str]:
        """The fields that MLflow has for it: a data set made by code, from settings that stand in its source."""
        source, profile = {"tags": dict(self.made_by)}, {"files": dict(self.files)}
        return {
            "name": self.name,
            "digest": self.digest,
            "source_type": "code",
            "source": json.dumps(source, ensure_ascii=False),
            "profile": json.dumps(profile, ensure_ascii=False),
        }


def data_sets_of(
    stage: str, config: Mapping[str, Any], *, files: Mapping[str, str], choices: Mapping[str, str]
) -> list[DataSet]:
    """The data sets of a stage; none where its configuration names none.

    Args:
        stage: its name.
        config: its resolved configuration.
        files: name in the configuration → hash of what lay there.
        choices: group → option, of its experiment.
    """
    context = EVALUATION if stage == "evaluate" else TRAINING
    return [_data_set(name, node, context, files) for name, node in _nodes(stage, config, choices)]


def _nodes(stage: str, config: Mapping[str, Any], choices: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    if stage in PLACES:
        group, place = PLACES[stage]
        if node := _at(config, place):
            yield choices.get(group, place), node
        return
    suite, name = config.get("suite", {}), choices.get("suite", "suite")
    if "sets" in suite:
        yield name, suite["sets"]
    for setting, settings in suite.get("settings", {}).items():
        yield f"{name}/{setting}", settings["task"]


def _at(config: Mapping[str, Any], path: str) -> Any:
    node: Any = config
    for key in path.split("."):
        node = node.get(key, {}) if isinstance(node, Mapping) else {}
    return node


def _data_set(name: str, node: Any, context: str, files: Mapping[str, str]) -> DataSet:
    made_by = {key: value for key, value in node.items() if key not in LOADING}
    read = {file: mark for file, mark in files.items() if file in set(_texts(made_by))}
    digest = fingerprint({"made_by": made_by, "files": read})
    return DataSet(name=name, digest=digest, context=context, made_by=flatten(made_by), files=read)


def _texts(node: Any) -> Iterator[str]:
    """Every string in it, whole."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, Mapping | list):
        for value in node.values() if isinstance(node, Mapping) else node:
            yield from _texts(value)
