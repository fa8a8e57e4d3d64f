"""A study: a question, the primary comparison, and arms that run with several seeds. Read from YAML or from MLflow.

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
extends: NAME                        optional: the study with the keys that this file leaves out, also within primary,
                                     start and equivalence. The arms are those named here; an arm takes its missing
                                     keys from the arm of the same name

The file is merged with :class:`StudyFile` by OmegaConf, which reports unknown keys and wrong types with their path.

MLflow has a run of kind ``study`` in the study's experiment, which stores what was fixed before the first job:

    params                 primary.metric, primary.arm, primary.baseline at the first launch
    first/NAME.yaml        the file at the first launch
    NAME.yaml              the file at the last launch, for users who do not have it

A file that extends another study is stored with the keys of both. Without torch, so that reports begin at once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from experiments.config.folders import CONF, own_folder, study_names
from experiments.config.hints import command_line, did_you_mean
from experiments.mlflow_sync import Tracker
from experiments.system.terminal import first_line, one_line

FILE = ".yaml"
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
KIND, FIRST = "study", "first"
"""Of the run in MLflow: its kind, and the folder of the first launch."""


class StudyError(ValueError):
    """Raised for an invalid study; the message is one sentence with key, value and choices."""


# The classes of the file are not frozen: OmegaConf could not merge a file with a frozen one. Nothing changes them.


@dataclass(kw_only=True)
class Arm:
    """One variant of training and its number of seeds."""

    about: str
    overrides: list[str]
    seeds: int


@dataclass(kw_only=True)
class Primary:
    """The comparison that decides, fixed before the runs."""

    metric: str
    arm: str
    baseline: str

    @property
    def at_the_end(self) -> str:
        """The metric of the trained policy: ``metric``, or sampled success if that is ``AUC``."""
        return METRICS[1] if self.metric == AUC else self.metric


@dataclass(kw_only=True)
class Equivalence:
    """Pairs whose difference may be shown to lie within ±``margin`` points."""

    margin: float
    pairs: list[list[str]]


@dataclass(kw_only=True)
class Start:
    """The experiment whose warm start runs before the arms."""

    overrides: list[str]
    seed: int | str
    """A number or ``EACH``."""


@dataclass(kw_only=True)
class StudyFile:
    """The keys of the file; see the module docstring."""

    question: str
    primary: Primary
    curve: str
    common: list[str]
    start: Start | None
    arms: dict[str, Arm]
    order: list[list[str]]
    parallel: int
    first_seed: int = 0
    tests: list[list[str]] = field(default_factory=list)
    equivalence: Equivalence | None = None
    extends: str | None = None


@dataclass(kw_only=True)
class Study(StudyFile):
    """A study with its name and origin."""

    name: str
    called: str
    """The name or file path by which the user called it."""
    text: str | None
    """The text of its file, with the keys of the study that it extends; None if it was read from MLflow."""

    @property
    def command(self) -> str:
        return command_line("study", self.called)

    @property
    def measure(self) -> str:
        """The primary metric and what it is."""
        auc = f"{AUC} (the mean of {self.curve} over the validations after step 0)"
        return auc if self.primary.metric == AUC else self.primary.metric

    def seeds(self, arm: str) -> range:
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
    text, content = _content(path)
    study = _typed(path.stem, content)
    if study.extends is not None:
        study = _with_extended(path.stem, content, study.extends)
        text = OmegaConf.to_yaml(study)
    return _build(path.stem, study, called=name, text=text)


def _path_of(name: str, where: str = "") -> Path:
    """Returns the path of a study's file; ``where``: begins the message if there is none."""
    folders = [folder / "study" for folder in (CONF, own_folder()) if folder is not None]
    places = [Path(name).expanduser()] if name.endswith(FILE) else [folder / f"{name}{FILE}" for folder in folders]
    if (path := next(filter(Path.is_file, places), None)) is None:
        raise StudyError(f"{where}no study {name!r}; {did_you_mean(name, study_names())}")
    return path


def _with_extended(name: str, content: Mapping[str, Any], extends: str) -> DictConfig:
    """Returns the content of a file, with the missing keys of the study that it extends, and its arms with theirs."""
    above = _path_of(extends, f"{name}.extends: ")
    base = _typed(above.stem, _content(above)[1])
    if base.extends is not None:
        raise StudyError(f"{name}.extends: {above.stem} extends {base.extends} itself; extend that one instead")
    merged = _typed(name, content, base=base)
    merged.extends = None
    if "arms" in content:
        merged.arms = {arm: merged.arms[arm] for arm in content["arms"]}
    return merged


def _content(path: Path) -> tuple[str, Any]:
    """Returns the text of a file and what it contains."""
    text = path.read_text(encoding="utf-8")
    try:
        return text, yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise StudyError(f"{path} is not YAML: {one_line(error)}") from error


def _typed(name: str, content: Any, *, base: DictConfig | None = None) -> DictConfig:
    """Merges the content of a file with the types of ``StudyFile``, or into ``base``. Keys may be missing."""
    study = OmegaConf.structured(StudyFile) if base is None else base
    if not isinstance(content, Mapping):
        raise StudyError(f"{name} must be a mapping of {', '.join(study)}; got {content!r}")
    for key, value in content.items():  # one by one: the error of a wrong kind of container has no path
        try:
            study.merge_with({key: value})
        except OmegaConfBaseException as error:
            raise StudyError(_sentence(name, error, key)) from error
    return study


def _sentence(name: str, error: OmegaConfBaseException, key: str = "") -> str:
    hint = ""
    if isinstance(error, ConfigKeyError) and is_dataclass(error.object_type):
        hint = f"; {did_you_mean(str(error.key), [one.name for one in fields(error.object_type)])}"
    return f"{name}.{error.full_key or key}: {first_line(error)}{hint}"


def read_study(name: str, content: Any) -> Study:
    """Builds a study from the content of its file.

    Raises:
        StudyError: for missing or unknown keys, values of a wrong type, and names that do not fit together.
    """
    return _build(name, _typed(name, content), called=name, text=None)


def _build(name: str, typed: DictConfig, *, called: str, text: str | None) -> Study:
    try:  # not to_object, which would resolve the ``${…}`` of an override
        parts: Any = OmegaConf.to_container(typed, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise StudyError(_sentence(name, error)) from error
    parts["primary"] = Primary(**parts["primary"])
    parts["start"] = parts["start"] and Start(**parts["start"])
    parts["equivalence"] = parts["equivalence"] and Equivalence(**parts["equivalence"])
    parts["arms"] = {arm: Arm(**node) for arm, node in parts["arms"].items()}
    study = Study(**parts, name=name, called=called, text=text)
    if (flaw := next(_flaws(study), None)) is not None:
        raise StudyError(f"{name}.{flaw}")
    return study


def _flaws(study: Study) -> Iterator[str]:
    """Yields a sentence for each value that does not fit the others, beginning with its key.

    Whether the overrides are valid is checked before the jobs run, see :func:`experiments.jobs.study_jobs.check`.
    """
    start, arms, primary, equivalence = study.start, study.arms, study.primary, study.equivalence
    pairs = {"tests": study.tests, "equivalence.pairs": [] if equivalence is None else equivalence.pairs}
    listed = [*chain.from_iterable(study.order)]
    named = {"order": listed, "primary.arm": [primary.arm], "primary.baseline": [primary.baseline]}
    for where, names in {**named, **{key: [*chain.from_iterable(found)] for key, found in pairs.items()}}.items():
        for name in names:
            if name not in arms:
                yield f"{where}: no arm {name!r}; {did_you_mean(name, arms)}"
    for name, arm in arms.items():
        if not re.fullmatch(r"[a-z]\w*", name) or name == START:
            yield f"arms.{name}: an arm is named by small letters, digits and _, and not {START!r}"
        if arm.seeds < 1:
            yield f"arms.{name}.seeds must be at least 1, got {arm.seeds}"
        if listed.count(name) != 1:
            yield f"order must hold each arm once, but {name!r} {listed.count(name)} times"
    if primary.arm == primary.baseline:
        yield f"primary: arm and baseline are both {primary.arm!r}"
    for where, found in pairs.items():
        for pair in found:
            if len(pair) != 2 or pair[0] == pair[1]:
                yield f"{where}: each entry must be a list of two different arms, [arm, baseline], got {pair!r}"
            if found.count(pair) > 1:
                yield f"{where}: {pair!r} is listed {found.count(pair)} times"
    if equivalence is not None and not equivalence.margin > 0:
        yield f"equivalence.margin must be above 0, got {equivalence.margin}"
    if primary.metric not in METRICS:
        yield f"primary.metric must be {' or '.join(METRICS)}, got {primary.metric!r}"
    if study.curve not in (*CURVES, RIGHT_PLAN) and not re.fullmatch(PASS_AT, study.curve):
        nearest = did_you_mean(study.curve, (*CURVES, RIGHT_PLAN, "val/verifier/pass_at_4"))
        yield f"curve: no success over training is called {study.curve!r}; {nearest}"
    if start is not None and isinstance(start.seed, str) and start.seed != EACH:
        yield f"start.seed must be a whole number or {EACH!r}, got {start.seed!r}"
    overrides = {"common": study.common, **{f"arms.{name}.overrides": arm.overrides for name, arm in arms.items()}}
    overrides |= {} if start is None else {"start.overrides": start.overrides}
    for where, lines in overrides.items():
        for override in lines:
            key = override.partition("=")[0]
            if key in SET_BY_THE_STUDY:
                yield f"{where}: {override}: the study sets {', '.join(SET_BY_THE_STUDY)} itself"
            of_start_itself = where == "start.overrides" and override == f"{BEGUN_FROM}=null"
            if start is not None and key == BEGUN_FROM and not of_start_itself:
                yield (  # otherwise it would be silently overwritten
                    f"{where}: {override}: all arms begin from the policy of {study.name}.start, "
                    f"so nothing else may set {BEGUN_FROM}; or write start: null"
                )


def split(names: Sequence[str]) -> tuple[list[str], list[Study]]:
    """Returns the names of the experiments in MLflow, and the studies among them.

    Raises:
        StudyError: if a study's file does not exist or is invalid.
    """
    studies = {name: find_study(name) for name in names if name.endswith(FILE) or name in study_names()}
    return [studies[name].name if name in studies else name for name in names], [*studies.values()]


def with_launched(tracker: Tracker, studies: Sequence[Study], names: Sequence[str]) -> list[Study]:
    """Returns the studies with a local file, then those among ``names`` that exist only in MLflow, as last launched."""
    elsewhere = [name for name in names if name not in {study.name for study in studies}]
    launched = [
        read_study(run.experiment, yaml.safe_load(tracker.artifacts.read(run.run_id, file)))
        for run in tracker.runs(elsewhere, kind=KIND)
        if (file := f"{run.experiment}{FILE}") in tracker.artifacts.files(run.run_id)
    ]
    return [*studies, *launched]


def record_launch(tracker: Tracker, study: Study) -> None:
    """Records the launch of a study in MLflow. The values of the first launch are never overwritten."""
    if study.text is None:
        return
    key = f"{study.name}/{KIND}"
    found = tracker.find_run(study.name, key)
    if found is None:
        tags = {"key": key, "kind": KIND, "experiment": study.name}
        run_id = tracker.create_run(study.name, name=f"study {study.name}", start=time.time(), tags=tags, parent=None)
        tracker.describe(run_id, params=_params(study.primary), tags={})
    elif found.lifecycle_stage == "deleted":
        return  # a person deleted it
    else:
        run_id = found.run_id
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{study.name}{FILE}"
        file.write_text(study.text, encoding="utf-8")
        for place in ("",) if found else (FIRST, ""):
            tracker.log_file(run_id, file, place)
    tracker.set_status(run_id, "FINISHED", end=time.time())


def notes_on_primary(tracker: Tracker, study: Study) -> list[str]:
    """A sentence if the primary comparison has changed since the first launch."""
    first = next(iter(tracker.runs([study.name], kind=KIND)), None)
    if first is None or all(first.params.get(key) == value for key, value in _params(study.primary).items()):
        return []
    metric, arm, baseline = (first.params.get(key, "unknown") for key in _params(study.primary))
    when = time.strftime("%Y-%m-%d", time.gmtime(first.start))
    return [
        f"The primary comparison was changed after the first launch, on {when}. It was {metric} of {arm} minus that of "
        f"{baseline}."
    ]


def _params(primary: Primary) -> dict[str, str]:
    return {f"primary.{key}": value for key, value in asdict(primary).items()}
