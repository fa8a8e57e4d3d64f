"""A study as its YAML says it: a question, what decides it, and the arms that are run with several seeds each.

question: …                          what the study is to tell
primary: {metric: …, arm: …, baseline: …}   fixed before the runs: what is compared with what, by which number
curve: …                             the validation metric that is compared at equal compute
common: [task.counts=[4], …]         overrides of all jobs: the test bed
start: {overrides: […], seed: 0}     whose warm start all arms and seeds begin from; null: each arm's policy.pretrained
                                     says; seed: each draws one for every seed, from which all its arms begin
arms: {name: {about: …, overrides: […], seeds: 5}}
order: [[the minimum set], [the rest]]      a row is run with seed 0, then with seed 1, …, before the next row
parallel: 2                          jobs at once on this machine
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from experiments.config.folders import own_folder
from experiments.config.hints import command_line, did_you_mean

FILE = ".yaml"
STUDIES = Path(__file__).resolve().parents[2] / "conf" / "study"
METRICS = ("test/verifier/accuracy", "test/verifier/accuracy_sampled")
"""What can decide a study: these are known problem by problem."""
SETTING = "main"
"""Of the suite, what decides: the task as it was trained on."""
CURVES = ("val/verifier/accuracy", "val/verifier/accuracy_sampled")
PASS_AT = r"val/verifier/pass_at_[1-9]\d*"
"""The curves that validation draws, and a third kind: pass@k of as many samples as it takes of each problem."""
START = "start"
EACH = "each"
"""For ``start.seed``: as many warm starts as seeds, so that an interval over seeds is over starts too."""
SET_BY_THE_STUDY = ("seed", "name", "arm")
BEGUN_FROM = "policy.pretrained"
"""The key that a ``start`` sets for all arms."""
KINDS: dict[Any, str] = {str: "a text", int: "a whole number", list: "a list", dict: "a mapping", type(None): "null"}


class StudyError(ValueError):
    """A study that cannot be run, in one sentence with key, value and choices."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way of training, and how often."""

    name: str
    about: str
    overrides: Sequence[str]
    seeds: int


@dataclass(frozen=True, kw_only=True)
class Primary:
    """What was fixed beforehand."""

    metric: str
    arm: str
    baseline: str


@dataclass(frozen=True, kw_only=True)
class Start:
    """The experiment whose warm start is run before the arms."""

    overrides: Sequence[str]
    seed: int | None
    """Of the one that all begin from; None: each seed of the arms has its own."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """See the module."""

    name: str
    question: str
    primary: Primary
    curve: str
    common: Sequence[str]
    start: Start | None
    arms: Mapping[str, Arm]
    order: Sequence[Sequence[str]]
    parallel: int
    called: str = ""
    """As it was typed, to be typed again: its name, or the path of its file."""
    file: Path | None = None
    """Where it was read from."""

    @property
    def command(self) -> str:
        """What runs it."""
        return command_line("study", self.called or self.name)

    @property
    def start_per_seed(self) -> bool:
        """Whether each seed draws a warm start of its own."""
        return self.start is not None and self.start.seed is None


def find_study(name: str) -> Study:
    """The study ``name`` of ``conf/study/`` or of a folder of one's own, or of the file where it ends in ``.yaml``.

    Raises:
        StudyError: for a name that there is not, and for a file that is no study.
    """
    path = Path(name) if name.endswith(FILE) else _files().get(name)
    if path is None or not path.is_file():
        raise StudyError(f"no study {name!r}; {did_you_mean(name, study_names())}")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise StudyError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    return replace(read_study(path.stem, content), called=name, file=path)


def study_names() -> list[str]:
    return sorted(_files())


def _files() -> dict[str, Path]:
    """By name; those of one's own hide none of the house's (``experiments/cli/own_conf.py``)."""
    own = own_folder()
    folders = [STUDIES, *([own / STUDIES.name] if own else [])]
    return {path.stem: path for folder in folders for path in folder.glob(f"*{FILE}")}


def read_study(name: str, content: Any) -> Study:
    """The study that a file's content describes.

    Raises:
        StudyError: for keys that are missing or unknown, values of another kind, and names that do not fit together.
    """
    kinds = {"question": str, "primary": dict, "curve": str, "common": list, "start": (dict, type(None))}
    kinds |= {"arms": dict, "order": list, "parallel": int}
    taken = _taken(content, name, kinds)
    arms = {str(key): _arm(str(key), node, f"{name}.arms.{key}") for key, node in taken["arms"].items()}
    study = Study(
        name=name,
        question=taken["question"],
        primary=Primary(**_taken(taken["primary"], f"{name}.primary", {"metric": str, "arm": str, "baseline": str})),
        curve=taken["curve"],
        common=_overrides(taken["common"], f"{name}.common"),
        start=None if taken["start"] is None else _start(taken["start"], f"{name}.start"),
        arms=arms,
        order=[_row(row, f"{name}.order") for row in taken["order"]],
        parallel=taken["parallel"],
    )
    _check(study)
    return study


def _arm(name: str, node: Any, where: str) -> Arm:
    taken = _taken(node, where, {"about": str, "overrides": list, "seeds": int})
    if not re.fullmatch(r"[a-z]\w*", name) or name == START:
        raise StudyError(f"{where}: an arm is named by small letters, digits and _, and not {START!r}")
    if taken["seeds"] < 1:
        raise StudyError(f"{where}.seeds must be at least 1, got {taken['seeds']}")
    return Arm(
        name=name,
        about=taken["about"],
        overrides=_overrides(taken["overrides"], f"{where}.overrides"),
        seeds=taken["seeds"],
    )


def _start(node: Any, where: str) -> Start:
    taken = _taken(node, where, {"overrides": list, "seed": (int, str)})
    seed = taken["seed"]
    if isinstance(seed, str) and seed != EACH:
        raise StudyError(f"{where}.seed must be a whole number, or {EACH!r} for one of each seed's own, got {seed!r}")
    overrides = _overrides(taken["overrides"], f"{where}.overrides")
    return Start(overrides=overrides, seed=None if seed == EACH else seed)


def _overrides(words: Sequence[Any], where: str) -> list[str]:
    """Hydra overrides; what the study itself sets is refused."""
    for word in words:
        if not isinstance(word, str) or "=" not in word:
            raise StudyError(f"{where}: {word!r} is no override: write 'key=value'")
        if word.partition("=")[0] in SET_BY_THE_STUDY:
            raise StudyError(f"{where}: {word}: the study sets {', '.join(SET_BY_THE_STUDY)} itself")
    return list(words)


def _row(row: Any, where: str) -> list[str]:
    if not isinstance(row, list) or not all(isinstance(name, str) for name in row):
        raise StudyError(f"{where}: each row must be a list of arms, got {row!r}")
    return row


def _taken(node: Any, where: str, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping that has each of these keys, of its kind, and no other."""
    if not isinstance(node, dict):
        raise StudyError(f"{where} must be a mapping with {', '.join(kinds)}; got {node!r}")
    for key in node:
        if key not in kinds:
            raise StudyError(f"{where}.{key}: no such key; {did_you_mean(str(key), kinds)}")
    for key, kind in kinds.items():
        if key not in node:
            raise StudyError(f"{where}.{key} is missing; there must be {', '.join(kinds)}")
        allowed = kind if isinstance(kind, tuple) else (kind,)
        if type(node[key]) not in allowed:  # of exactly this type: true is not the number 1
            raise StudyError(f"{where}.{key} must be {' or '.join(KINDS[k] for k in allowed)}, got {node[key]!r}")
    return node


def _check(study: Study) -> None:
    """What no key shows by itself."""
    listed = list(chain.from_iterable(study.order))
    for where, arm in [*(("order", arm) for arm in listed), *_primary_arms(study.primary)]:
        if arm not in study.arms:
            raise StudyError(f"{study.name}.{where}: no arm {arm!r}; {did_you_mean(arm, study.arms)}")
    for arm in study.arms:
        if listed.count(arm) != 1:
            raise StudyError(f"{study.name}.order must hold each arm once, but {arm!r} {listed.count(arm)} times")
    if study.primary.arm == study.primary.baseline:
        raise StudyError(f"{study.name}.primary: arm and baseline are both {study.primary.arm!r}")
    if study.primary.metric not in METRICS:
        choices = " or ".join(METRICS)
        raise StudyError(f"{study.name}.primary.metric must be {choices}, got {study.primary.metric!r}")
    if study.curve not in CURVES and not re.fullmatch(PASS_AT, study.curve):
        raise StudyError(
            f"{study.name}.curve: no success over training is called {study.curve!r}; "
            f"{did_you_mean(study.curve, (*CURVES, 'val/verifier/pass_at_4'))}"
        )
    if study.start is not None:
        _check_start(study, study.start)
    if study.parallel < 1:
        raise StudyError(f"{study.name}.parallel must be at least 1, got {study.parallel}")


def _check_start(study: Study, start: Start) -> None:
    """Nothing else may say from where arms begin: it would be overwritten without a word."""
    of_arms = [(f"arms.{arm.name}.overrides", arm.overrides) for arm in study.arms.values()]
    for where, overrides in [("common", study.common), ("start.overrides", start.overrides), *of_arms]:
        for word in overrides:
            key, _, value = word.partition("=")
            if key == BEGUN_FROM and (where != "start.overrides" or value != "null"):
                raise StudyError(
                    f"{study.name}.{where}: {word}: all arms begin from the policy of {study.name}.start, "
                    f"so nothing else may set {BEGUN_FROM}; or write start: null"
                )


def _primary_arms(primary: Primary) -> list[tuple[str, str]]:
    return [("primary.arm", primary.arm), ("primary.baseline", primary.baseline)]
