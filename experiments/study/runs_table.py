"""Every run of a study on a line of its own, as CSV: what the means are made of, for other programs to read."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from statistics import fmean

from experiments.study.results import ArmResult, SeedResult

RUNS = "study_runs.csv"
COLUMNS = (
    *("arm", "seed", "greedy", "sampled", "tokens", "seconds", "critic_seconds", "auroc_siblings"),
    *("threads", "processor", "git_sha", "run_id"),
)


def runs_as_csv(arms: Sequence[ArmResult]) -> str:
    """Shares as they are; tokens and seconds are those of all training, the critic's before it included in seconds.

    What is unknown is empty.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([arm.name, seed, *_cells(result)] for arm in arms for seed, result in arm.seeds.items())
    return text.getvalue()


def _cells(result: SeedResult) -> list[object]:
    numbers = (
        fmean(result.greedy),
        None if result.sampled is None else fmean(result.sampled),
        result.tokens,
        result.seconds,
        result.critic_seconds,
        result.auroc_siblings,
    )
    texts = (" ".join(result.threads), "; ".join(result.processors), " ".join(result.commits), result.run.run_id)
    return [*("" if number is None else number for number in numbers), *texts]
