"""Studies among the names that a person types: of conf/study/, of a folder of one's own, or the path of a file."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.study.plan import FILE, Study, find_study, study_names


def is_study(name: str) -> bool:
    """Whether a name can only be a study's."""
    return name.endswith(FILE) or name in study_names()


def split(names: Sequence[str]) -> tuple[list[str], list[Study]]:
    """The names of the experiments in MLflow, and those of them that are studies.

    Raises:
        StudyError: for a file that there is not, or that is no study.
    """
    studies = {name: find_study(name) for name in names if is_study(name)}
    return [studies[name].name if name in studies else name for name in names], [*studies.values()]
