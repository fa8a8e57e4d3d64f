"""A study as its YAML describes it: a question, what decides it, and the arms that are run with several seeds each.

question: …                          what the study is to tell
primary: {metric: …, arm: …, baseline: …}   fixed before the runs: what is compared with what, by which number
curve: …                             the validation metric that is compared at equal compute
common: [task.counts=[4], …]         overrides of all jobs: the test bed
start: {overrides: […], seed: 0}     whose warm start all arms and seeds begin from; null: each arm's policy.pretrained
                                     does; seed: each draws one for every seed, from which all its arms begin
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
KINDS: dict[type, str] = {str: "a text", int: "a whole number", list: "a list", dict: "a mapping", type(None): "null"}
FIELDS: dict[str, Mapping[str, tuple[type, ...]]] = {
    "study": {
        "question": (str,),
        "primary": (dict,),
        "curve": (str,),
        "common": (list,),
        "start": (dict, type(None)),
        "arms": (dict,),
        "order": (list,),
        "parallel": (int,),
    },
    "primary": {"metric": (str,), "arm": (str,), "baseline": (str,)},
    "arm": {"about": (str,), "overrides": (list,), "seeds": (int,)},
    "start": {"overrides": (list,), "seed": (int, str)},
}
"""The keys of each mapping, and of which types their values may be."""


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
    """As it was given, to be given again: its name, or the path of its file."""
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


def split(names: Sequence[str]) -> tuple[list[str], list[Study]]:
    """The names of the experiments in MLflow, and those of them that are studies.

    Raises:
        StudyError: for a file that there is not, or that is no study.
    """
    studies = {name: find_study(name) for name in names if name.endswith(FILE) or name in study_names()}
    return [studies[name].name if name in studies else name for name in names], [*studies.values()]


def _files() -> dict[str, Path]:
    """By name; those of one's own hide none of conf/study/ (``experiments/config/folders.py``)."""
    own = own_folder()
    folders = [STUDIES, *([own / STUDIES.name] if own else [])]
    return {path.stem: path for folder in folders for path in folder.glob(f"*{FILE}")}


def read_study(name: str, content: Any) -> Study:
    """The study that a file's content describes.

    Raises:
        StudyError: for keys that are missing or unknown, values of another kind, and names that do not fit together.
    """
    fields = _checked(content, name, "study")
    study = Study(
        name=name,
        question=fields["question"],
        primary=Primary(**_checked(fields["primary"], f"{name}.primary", "primary")),
        curve=fields["curve"],
        common=_overrides(fields["common"], f"{name}.common"),
        start=None if fields["start"] is None else _start(fields["start"], f"{name}.start"),
        arms={str(key): _arm(str(key), node, f"{name}.arms.{key}") for key, node in fields["arms"].items()},
        order=[_row(row, f"{name}.order") for row in fields["order"]],
        parallel=fields["parallel"],
    )
    _check_arms(study)
    _check_metrics(study)
    _check_start(study)
    if study.parallel < 1:
        raise StudyError(f"{study.name}.parallel must be at least 1, got {study.parallel}")
    return study


def _checked(node: Any, where: str, kind: str) -> dict[str, Any]:
    """A mapping that has the keys of ``FIELDS[kind]``, of their types, and no other."""
    fields = FIELDS[kind]
    if not isinstance(node, dict):
        raise StudyError(f"{where} must be a mapping with {', '.join(fields)}; got {node!r}")
    for key in node:
        if key not in fields:
            raise StudyError(f"{where}.{key}: no such key; {did_you_mean(str(key), fields)}")
    for key, types in fields.items():
        if key not in node:
            raise StudyError(f"{where}.{key} is missing; there must be {', '.join(fields)}")
        if type(node[key]) not in types:  # of exactly this type: true is not the number 1
            raise StudyError(f"{where}.{key} must be {' or '.join(KINDS[t] for t in types)}, got {node[key]!r}")
    return node


def _arm(name: str, node: Any, where: str) -> Arm:
    fields = _checked(node, where, "arm")
    if not re.fullmatch(r"[a-z]\w*", name) or name == START:
        raise StudyError(f"{where}: an arm is named by small letters, digits and _, and not {START!r}")
    if fields["seeds"] < 1:
        raise StudyError(f"{where}.seeds must be at least 1, got {fields['seeds']}")
    return Arm(name=name, **{**fields, "overrides": _overrides(fields["overrides"], f"{where}.overrides")})


def _start(node: Any, where: str) -> Start:
    fields = _checked(node, where, "start")
    seed = fields["seed"]
    if isinstance(seed, str) and seed != EACH:
        raise StudyError(f"{where}.seed must be a whole number, or {EACH!r} for one of each seed's own, got {seed!r}")
    return Start(overrides=_overrides(fields["overrides"], f"{where}.overrides"), seed=None if seed == EACH else seed)


def _overrides(listed: Sequence[Any], where: str) -> list[str]:
    """Hydra overrides; what the study itself sets is refused."""
    for override in listed:
        if not isinstance(override, str) or "=" not in override:
            raise StudyError(f"{where}: {override!r} is no override: write 'key=value'")
        if override.partition("=")[0] in SET_BY_THE_STUDY:
            raise StudyError(f"{where}: {override}: the study sets {', '.join(SET_BY_THE_STUDY)} itself")
    return list(listed)


def _row(row: Any, where: str) -> list[str]:
    if not isinstance(row, list) or not all(isinstance(name, str) for name in row):
        raise StudyError(f"{where}: each row must be a list of arms, got {row!r}")
    return row


def _check_arms(study: Study) -> None:
    """Every arm that is named is there, and is run once."""
    listed, primary = list(chain.from_iterable(study.order)), study.primary
    named = [*(("order", arm) for arm in listed), ("primary.arm", primary.arm), ("primary.baseline", primary.baseline)]
    for where, arm in named:
        if arm not in study.arms:
            raise StudyError(f"{study.name}.{where}: no arm {arm!r}; {did_you_mean(arm, study.arms)}")
    for arm in study.arms:
        if listed.count(arm) != 1:
            raise StudyError(f"{study.name}.order must hold each arm once, but {arm!r} {listed.count(arm)} times")
    if primary.arm == primary.baseline:
        raise StudyError(f"{study.name}.primary: arm and baseline are both {primary.arm!r}")


def _check_metrics(study: Study) -> None:
    if study.primary.metric not in METRICS:
        raise StudyError(f"{study.name}.primary.metric must be {' or '.join(METRICS)}, got {study.primary.metric!r}")
    if study.curve not in CURVES and not re.fullmatch(PASS_AT, study.curve):
        nearest = did_you_mean(study.curve, (*CURVES, "val/verifier/pass_at_4"))
        raise StudyError(f"{study.name}.curve: no success over training is called {study.curve!r}; {nearest}")


def _check_start(study: Study) -> None:
    """Beside a start nothing else may set the policy that arms begin from: it would be overwritten without a word."""
    if study.start is None:
        return
    of_arms = [(f"arms.{arm.name}.overrides", arm.overrides) for arm in study.arms.values()]
    for where, overrides in [("common", study.common), ("start.overrides", study.start.overrides), *of_arms]:
        for override in overrides:
            key, _, value = override.partition("=")
            if key == BEGUN_FROM and (where != "start.overrides" or value != "null"):
                raise StudyError(
                    f"{study.name}.{where}: {override}: all arms begin from the policy of {study.name}.start, "
                    f"so nothing else may set {BEGUN_FROM}; or write start: null"
                )
