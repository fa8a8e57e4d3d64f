"""A study as its YAML describes it: a question, what decides it, and the arms that are run with several seeds each.

question: …                          what the study is to tell
primary: {metric: …, arm: …, baseline: …}   fixed before the runs: what is compared with what, by which number
curve: …                             the validation metric that is compared at equal compute
common: [task.counts=[4], …]         overrides of all jobs: the test bed
start: {overrides: […], seed: 0}     whose warm start all arms and seeds begin from; null: each arm's policy.pretrained
                                     does; seed: each draws one for every seed, from which all its arms begin
arms: {name: {about: …, overrides: […], seeds: 5}}
first_seed: 0                        optional: the first of the arms' seeds, for starts that no earlier study had
order: [[the minimum set], [the rest]]      a row is run with seed 0, then with seed 1, …, before the next row
parallel: 2                          jobs at once on this machine
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.config.folders import CONF, own_folder, study_names
from experiments.config.hints import command_line, did_you_mean
from experiments.config.whole import schema_flaws
from experiments.schema import LEAST
from experiments.system.terminal import one_line

FILE = ".yaml"
METRICS = ("test/verifier/accuracy", "test/verifier/accuracy_sampled")
"""What can decide a study: these are known problem by problem."""
SETTING = "main"
"""Of the suite, what decides: the task as it was trained on."""
CURVES = ("val/verifier/accuracy", "val/verifier/accuracy_sampled")
PASS_AT = r"val/verifier/pass_at_[1-9]\d*"
"""The curves that validation draws, and a third kind: pass@k of as many samples as it takes of each problem."""
START, EACH = "start", "each"
SET_BY_THE_STUDY = ("seed", "name", "arm")
BEGUN_FROM = "policy.pretrained"
"""The key that a ``start`` sets for all arms."""


class StudyError(ValueError):
    """A study that cannot be run, in one sentence with key, value and choices."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way of training, and how often."""

    about: str
    overrides: Sequence[str]
    seeds: int = field(metadata={LEAST: 1})


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
    seed: int | Literal["each"]


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """The keys of the file, see the module."""

    question: str
    primary: Primary
    curve: str
    common: Sequence[str]
    start: Start | None
    arms: Mapping[str, Arm]
    order: Sequence[Sequence[str]]
    parallel: int = field(metadata={LEAST: 1})
    first_seed: int = field(default=0, metadata={LEAST: 0})


@dataclass(frozen=True, kw_only=True)
class Study(StudyFile):
    """A study under its name."""

    name: str
    called: str
    """As it was given, to be given again: its name, or the path of its file."""
    file: Path | None
    """Where it was read from; None for one that MLflow kept."""

    @property
    def command(self) -> str:
        """What runs it."""
        return command_line("study", self.called)

    def seeds(self, arm: str) -> range:
        """Those that an arm is run with."""
        return range(self.first_seed, self.first_seed + self.arms[arm].seeds)

    @property
    def start_per_seed(self) -> bool:
        """Whether each seed draws a warm start of its own, so that an interval over seeds is over starts too."""
        return self.start is not None and self.start.seed == EACH


def find_study(name: str) -> Study:
    """The study ``name`` of ``conf/study/`` or of a folder of one's own, or of the file where it ends in ``.yaml``.

    Raises:
        StudyError: for a name that there is not, and for a file that is no study.
    """
    folders = [folder / "study" for folder in (CONF, own_folder()) if folder is not None]
    places = [Path(name)] if name.endswith(FILE) else [folder / f"{name}{FILE}" for folder in folders]
    path = next(filter(Path.is_file, places), None)
    if path is None:
        raise StudyError(f"no study {name!r}; {did_you_mean(name, study_names())}")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise StudyError(f"{path} is no YAML: {one_line(error)}") from error
    return read_study(path.stem, content, called=name, file=path)


def split(names: Sequence[str]) -> tuple[list[str], list[Study]]:
    """The names of the experiments in MLflow, and those of them that are studies.

    Raises:
        StudyError: for a file that there is not, or that is no study.
    """
    studies = {name: find_study(name) for name in names if name.endswith(FILE) or name in study_names()}
    return [studies[name].name if name in studies else name for name in names], [*studies.values()]


def read_study(name: str, content: Any, *, called: str = "", file: Path | None = None) -> Study:
    """The study that a file's content describes.

    Raises:
        StudyError: for keys that are missing or unknown, values of another kind, and names that do not fit together.
    """
    try:
        flaw = next(_flaws(name, content), None)
    except OmegaConfBaseException as error:  # a value that OmegaConf does not hold, a date say
        flaw = f"{name}: {one_line(error)}"
    if flaw is not None:
        raise StudyError(flaw)
    start = content["start"]
    parts = {
        "primary": Primary(**content["primary"]),
        "start": None if start is None else Start(**start),
        "arms": {arm: Arm(**node) for arm, node in content["arms"].items()},
    }
    return Study(**{**content, **parts}, name=name, called=called or name, file=file)


def _flaws(name: str, content: Any) -> Iterator[str]:
    """What is wrong, in sentences. Each presupposes that there were none before it."""
    yield from _flaws_of(name, content, StudyFile)
    start, arms, order, primary, curve = (content[key] for key in ("start", "arms", "order", "primary", "curve"))
    if start is not None:
        yield from _flaws_of(f"{name}.start", start, Start)
    for arm, node in arms.items():
        yield from _flaws_of(f"{name}.arms.{arm}", node, Arm)
        if not re.fullmatch(r"[a-z]\w*", str(arm)) or arm == START:
            yield f"{name}.arms.{arm}: an arm is named by small letters, digits and _, and not {START!r}"
    of_arms = {f"arms.{arm}.overrides": node["overrides"] for arm, node in arms.items()}
    of_start = {} if start is None else {"start.overrides": start["overrides"]}
    for where, overrides in {"common": content["common"], **of_start, **of_arms}.items():
        for override in overrides:
            if not isinstance(override, str) or "=" not in override:
                yield f"{name}.{where}: {override!r} is no override: write 'key=value'"
            if override.partition("=")[0] in SET_BY_THE_STUDY:
                yield f"{name}.{where}: {override}: the study sets {', '.join(SET_BY_THE_STUDY)} itself"
            of_start_itself = where == "start.overrides" and override == f"{BEGUN_FROM}=null"
            if start is not None and override.startswith(f"{BEGUN_FROM}=") and not of_start_itself:
                yield (  # else it would be overwritten in silence
                    f"{name}.{where}: {override}: all arms begin from the policy of {name}.start, "
                    f"so nothing else may set {BEGUN_FROM}; or write start: null"
                )
    for row in order:
        if not isinstance(row, list) or not all(isinstance(arm, str) for arm in row):
            yield f"{name}.order: each row must be a list of arms, got {row!r}"
    listed = [*chain.from_iterable(order)]
    named = [*(("order", arm) for arm in listed), *((f"primary.{key}", primary[key]) for key in ("arm", "baseline"))]
    for where, arm in named:
        if arm not in arms:
            yield f"{name}.{where}: no arm {arm!r}; {did_you_mean(arm, arms)}"
    for arm in arms:
        if listed.count(arm) != 1:
            yield f"{name}.order must hold each arm once, but {arm!r} {listed.count(arm)} times"
    if primary["arm"] == primary["baseline"]:
        yield f"{name}.primary: arm and baseline are both {primary['arm']!r}"
    if primary["metric"] not in METRICS:
        yield f"{name}.primary.metric must be {' or '.join(METRICS)}, got {primary['metric']!r}"
    if curve not in CURVES and not re.fullmatch(PASS_AT, curve):
        nearest = did_you_mean(curve, (*CURVES, "val/verifier/pass_at_4"))
        yield f"{name}.curve: no success over training is called {curve!r}; {nearest}"


def _flaws_of(where: str, node: Any, schema: type) -> Iterator[str]:
    return schema_flaws(where, OmegaConf.create(node) if isinstance(node, dict) else node, schema)
