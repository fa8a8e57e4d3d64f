"""Reads a study from YAML: a question, the primary comparison, and arms that run with several seeds.

question: …                          the question of the study
primary: {metric: …, arm: …, baseline: …}   the comparison that decides, fixed before the runs
curve: …                             the validation metric to compare at equal compute; metric: auc is its mean over the
                                     validations after step 0
tests: [[arm, baseline], …]          optional: further differences of the primary metric, one family with Holm's
                                     correction at 5%
equivalence: {margin: 2.0, pairs: [[arm, baseline], …]}    optional: differences that may lie within ±margin points
common: [task.counts=[4], …]         overrides of all jobs, which define the test bed
start: {overrides: […], seed: 0}     the warm start of all arms and seeds; null: policy.pretrained of each arm;
                                     seed: each trains one warm start per seed, shared by its arms
arms: {name: {about: …, overrides: […], seeds: 5}}
first_seed: 0                        optional: the first seed of the arms, for new starts
order: [[the minimum set], [the rest]]      a row runs with seed 0, then with seed 1, …, before the next row
parallel: 2                          number of concurrent jobs on this machine
extends: NAME                        optional: the study with the keys that this file leaves out. The arms are those
                                     named here; an arm takes its missing keys from the arm of the same name
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
from experiments.config.types import schema_flaws
from experiments.schema import ABOVE, LEAST
from experiments.system.terminal import one_line

FILE = ".yaml"
EXTENDS = "extends"
AUC = "auc"
METRICS = ("test/verifier/accuracy", "test/verifier/accuracy_sampled", AUC)
"""Allowed primary metrics. The first two are recorded per problem. ``AUC`` is the curve's mean over the validations
after step 0: it measures speed too, and has a smaller spread over starts."""
SETTING = "main"
"""The setting of the suite that decides: the task as the policy was trained on it."""
CURVES = ("val/verifier/accuracy", "val/verifier/accuracy_sampled")
PASS_AT = r"val/verifier/pass_at_[1-9]\d*"
RIGHT_PLAN = "val/arithmetic/right_plan"
"""Validation curves that can be compared; ``PASS_AT`` matches pass@k with all samples of each problem, and
``RIGHT_PLAN`` is the share of stories whose steps are right, whatever the answer."""
START, EACH = "start", "each"
SET_BY_THE_STUDY = ("seed", "name", "arm")
BEGUN_FROM = "policy.pretrained"
"""The key that ``start`` sets for all arms."""


class StudyError(ValueError):
    """Raised for an invalid study; the message is one sentence with key, value and choices."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One variant of training and its number of seeds."""

    about: str
    overrides: Sequence[str]
    seeds: int = field(metadata={LEAST: 1})


@dataclass(frozen=True, kw_only=True)
class Primary:
    """The comparison that decides, fixed before the runs."""

    metric: str
    arm: str
    baseline: str

    @property
    def at_the_end(self) -> str:
        """The metric of the trained policy: ``metric``, or sampled success if that is ``AUC``."""
        return METRICS[1] if self.metric == AUC else self.metric


@dataclass(frozen=True, kw_only=True)
class Equivalence:
    """Pairs whose difference may be shown to lie within ±``margin`` points."""

    margin: float = field(metadata={ABOVE: 0})
    pairs: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Start:
    """The experiment whose warm start runs before the arms."""

    overrides: Sequence[str]
    seed: int | Literal["each"]


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """The keys of the file; see the module docstring."""

    question: str
    primary: Primary
    curve: str
    common: Sequence[str]
    start: Start | None
    arms: Mapping[str, Arm]
    order: Sequence[Sequence[str]]
    parallel: int = field(metadata={LEAST: 1})
    first_seed: int = field(default=0, metadata={LEAST: 0})
    tests: Sequence[Sequence[str]] = ()
    equivalence: Equivalence | None = None


@dataclass(frozen=True, kw_only=True)
class Study(StudyFile):
    """A study with its name and origin."""

    name: str
    called: str
    """The name or file path by which the user called it."""
    file: Path | None
    """The file it was read from; None if it was read from MLflow."""

    @property
    def command(self) -> str:
        """The command that runs it."""
        return command_line("study", self.called)

    @property
    def measure(self) -> str:
        """The primary metric and what it is."""
        auc = f"{AUC} (the mean of {self.curve} over the validations after step 0)"
        return auc if self.primary.metric == AUC else self.primary.metric

    def seeds(self, arm: str) -> range:
        """Returns the seeds of an arm."""
        return range(self.first_seed, self.first_seed + self.arms[arm].seeds)

    @property
    def start_per_seed(self) -> bool:
        """Whether each seed trains its own warm start, so that an interval over seeds is also one over starts."""
        return self.start is not None and self.start.seed == EACH


def find_study(name: str) -> Study:
    """Reads a study by name from ``conf/study/`` or the user's folder, or from a file if it ends in ``.yaml``.

    Raises:
        StudyError: if there is no such study, or the file is invalid.
    """
    path = _path_of(name)
    if path is None:
        raise StudyError(_no_study(name))
    return read_study(path.stem, _extended(path.stem, _content(path)), called=name, file=path)


def _path_of(name: str) -> Path | None:
    folders = [folder / "study" for folder in (CONF, own_folder()) if folder is not None]
    places = [Path(name).expanduser()] if name.endswith(FILE) else [folder / f"{name}{FILE}" for folder in folders]
    return next(filter(Path.is_file, places), None)


def _no_study(name: str) -> str:
    return f"no study {name!r}; {did_you_mean(name, study_names())}"


def _content(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise StudyError(f"{path} is not YAML: {one_line(error)}") from error


def self_contained(file: Path) -> str:
    """Returns the text of a study's file; of one that extends another study, with the keys and arms of both."""
    content = _content(file)
    if not isinstance(content, dict) or EXTENDS not in content:
        return file.read_text(encoding="utf-8")
    return yaml.safe_dump(_extended(file.stem, content), sort_keys=False, allow_unicode=True)


def _extended(name: str, content: Any) -> Any:
    """Returns the content with the missing keys of the study that it extends, and its arms with theirs."""
    if not isinstance(content, dict) or EXTENDS not in content:
        return content
    extended = content[EXTENDS]
    if not isinstance(extended, str):
        raise StudyError(f"{name}.{EXTENDS} must be the name of a study, got {extended!r}")
    if (path := _path_of(extended)) is None:
        raise StudyError(f"{name}.{EXTENDS}: {_no_study(extended)}")
    base = _content(path)
    if isinstance(base, dict) and EXTENDS in base:
        raise StudyError(f"{name}.{EXTENDS}: {extended} extends {base[EXTENDS]} itself; extend that one instead")
    read_study(path.stem, base)  # raises for a flaw of the other file by its name
    merged = {**base, **{key: value for key, value in content.items() if key != EXTENDS}}
    if isinstance(arms := merged["arms"], dict):
        inherited = base["arms"]
        merged["arms"] = {
            arm: {**inherited.get(arm, {}), **node} if isinstance(node, dict) else node for arm, node in arms.items()
        }
    return merged


def split(names: Sequence[str]) -> tuple[list[str], list[Study]]:
    """Returns the names of the experiments in MLflow, and the studies among them.

    Raises:
        StudyError: if a study's file does not exist or is invalid.
    """
    studies = {name: find_study(name) for name in names if name.endswith(FILE) or name in study_names()}
    return [studies[name].name if name in studies else name for name in names], [*studies.values()]


def read_study(name: str, content: Any, *, called: str = "", file: Path | None = None) -> Study:
    """Builds a study from the content of its file.

    Raises:
        StudyError: for missing or unknown keys, values of a wrong type, and names that do not fit together.
    """
    try:
        flaw = next(_flaws(name, content), None)
    except OmegaConfBaseException as error:  # a value that OmegaConf does not support, for example a date
        flaw = f"{name}: {one_line(error)}"
    if flaw is not None:
        raise StudyError(flaw)
    start, equivalence = content["start"], content.get("equivalence")
    parts = {
        "equivalence": None if equivalence is None else Equivalence(**equivalence),
        "primary": Primary(**content["primary"]),
        "start": None if start is None else Start(**start),
        "arms": {arm: Arm(**node) for arm, node in content["arms"].items()},
    }
    return Study(**{**content, **parts}, name=name, called=called or name, file=file)


def _flaws(name: str, content: Any) -> Iterator[str]:
    """Yields a sentence for each error. Later checks assume that the earlier ones found none."""
    yield from _flaws_of(name, content, StudyFile)
    start, arms, order, primary, curve = (content[key] for key in ("start", "arms", "order", "primary", "curve"))
    tests, equivalence = content.get("tests", ()), content.get("equivalence")
    if start is not None:
        yield from _flaws_of(f"{name}.start", start, Start)
    if equivalence is not None:
        yield from _flaws_of(f"{name}.equivalence", equivalence, Equivalence)
    for arm, node in arms.items():
        yield from _flaws_of(f"{name}.arms.{arm}", node, Arm)
        if not re.fullmatch(r"[a-z]\w*", str(arm)) or arm == START:
            yield f"{name}.arms.{arm}: an arm is named by small letters, digits and _, and not {START!r}"
    of_arms = {f"arms.{arm}.overrides": node["overrides"] for arm, node in arms.items()}
    of_start = {} if start is None else {"start.overrides": start["overrides"]}
    for where, overrides in {"common": content["common"], **of_start, **of_arms}.items():
        for override in overrides:
            if not isinstance(override, str) or "=" not in override:
                yield f"{name}.{where}: {override!r} is not an override: write 'key=value'"
            if override.partition("=")[0] in SET_BY_THE_STUDY:
                yield f"{name}.{where}: {override}: the study sets {', '.join(SET_BY_THE_STUDY)} itself"
            of_start_itself = where == "start.overrides" and override == f"{BEGUN_FROM}=null"
            if start is not None and override.startswith(f"{BEGUN_FROM}=") and not of_start_itself:
                yield (  # otherwise it would be silently overwritten
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
    for where, pairs in {"tests": tests, "equivalence.pairs": equivalence["pairs"] if equivalence else ()}.items():
        yield from _flaws_of_pairs(f"{name}.{where}", pairs, arms)
    if primary["metric"] not in METRICS:
        yield f"{name}.primary.metric must be {' or '.join(METRICS)}, got {primary['metric']!r}"
    if curve not in (*CURVES, RIGHT_PLAN) and not re.fullmatch(PASS_AT, curve):
        nearest = did_you_mean(curve, (*CURVES, RIGHT_PLAN, "val/verifier/pass_at_4"))
        yield f"{name}.curve: no success over training is called {curve!r}; {nearest}"


def _flaws_of_pairs(where: str, pairs: Sequence[Any], arms: Mapping[str, Any]) -> Iterator[str]:
    for pair in pairs:
        named = isinstance(pair, list) and len(pair) == 2 and all(isinstance(arm, str) for arm in pair)
        if not named or pair[0] == pair[1]:
            yield f"{where}: each entry must be a list of two different arms, [arm, baseline], got {pair!r}"
        if pairs.count(pair) > 1:
            yield f"{where}: {pair!r} is listed {pairs.count(pair)} times"
        for arm in pair:
            if arm not in arms:
                yield f"{where}: no arm {arm!r}; {did_you_mean(str(arm), arms)}"


def _flaws_of(where: str, node: Any, schema: type) -> Iterator[str]:
    return schema_flaws(where, OmegaConf.create(node) if isinstance(node, dict) else node, schema)
