"""How well each arm's values told sibling steps apart in its own runs, beside what the arm gained over the baseline.

The dose is the metric train/steps/auroc_siblings (contrastive_reasoning/rewards/step_metrics.py), the mean over a
run's rollout batches and then over seeds: by the verifier's verdicts, whatever the values were made of, so that an
oracle has no 1 there; the response is the gain in the primary metric. Arms that value no steps have no dose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import correlation, fmean

from scipy.stats import rankdata

from experiments.study.plan import Study
from experiments.study.rows import Gain, Row
from experiments.study.wording import over_seeds

LEAST_ARMS = 4
"""For a correlation of ranks: three arms fall into one order or its reverse a third of the time."""
PICTURE = "study_dose_response.png"
DOSE = (
    "AUROC among siblings: of two steps equally deep into the same problem, one of a rollout that the verifier "
    "accepted and one of a rollout that it did not, how often the former had the higher value, ties counting half; "
    "the mean over a run's rollout batches, then over seeds. The verifier's verdicts decide for every arm: even an "
    "oracle's values need not reach 1. At 0.5 values know nothing."
)


@dataclass(frozen=True, kw_only=True)
class DosedArm:
    """An arm that values steps, beside the baseline."""

    name: str
    seeds: int
    """How many have finished."""
    aurocs: Mapping[str, float]
    """Among siblings, by seed; without the seeds whose verdicts never differed."""
    gain: Gain

    @property
    def dose(self) -> float:
        """The mean over seeds."""
        return fmean(self.aurocs.values())


def dosed(rows: Sequence[Row]) -> list[DosedArm]:
    """The arms that value steps, the least dose first; the baseline is not among them."""
    arms = [
        DosedArm(name=row.name, seeds=len(row.seeds), aurocs=row.auroc_siblings, gain=row.gain)
        for row in rows
        if row.gain is not None and row.auroc_siblings
    ]
    return sorted(arms, key=lambda arm: arm.dose)


def rank_correlation(arms: Sequence[DosedArm]) -> float | None:
    """Spearman's, of dose and gain over arms, ties with their mean rank; None for too few arms, or all equal."""
    doses, gains = [arm.dose for arm in arms], [arm.gain.over_seeds.value for arm in arms]
    if len(arms) < LEAST_ARMS or len(set(doses)) == 1 or len(set(gains)) == 1:
        return None
    return correlation(rankdata(doses).tolist(), rankdata(gains).tolist())


def correlation_sentence(arms: Sequence[DosedArm]) -> str:
    """``Spearman's rank correlation over arms: +0.80 (n = 4).``"""
    n, found = len(arms), rank_correlation(arms)
    if found is not None:
        return f"Spearman's rank correlation over arms: {found:+.2f} (n = {n})."
    why = f"fewer than {LEAST_ARMS}" if n < LEAST_ARMS else "all equal in one of the two"
    return f"No rank correlation: {n} arm{'' if n == 1 else 's'}, {why}."


def as_section(study: Study, arms: Sequence[DosedArm]) -> str:
    """For the end of the Markdown report; the empty string where no arm values steps."""
    if not arms:
        return ""
    about = (
        "It says whether arms whose values told siblings apart better also gained more: 1 for the same order, -1 for "
        "the reverse. Arms differ in more than their values, and each AUROC was measured on rollouts of the policy "
        "that the arm trained: this is what went together, not what caused it."
    )
    found = correlation_sentence(arms) + ("" if rank_correlation(arms) is None else f" {about}")
    head = ["arm", "AUROC among siblings (range over seeds)", f"Δ to {study.primary.baseline} over seeds"]
    table = [head, ["---", "---:", "---:"], *map(_cells, arms)]
    return "\n".join(
        [
            *("## What accuracy of values went with what gain", "", f"![gain by AUROC]({PICTURE})", ""),
            *("| " + " | ".join(line) + " |" for line in table),
            *("", f"{DOSE} Δ in points of {study.primary.metric}.", "", found, ""),
        ]
    )


def _cells(arm: DosedArm) -> list[str]:
    return [arm.name, dose_text(arm), over_seeds(arm.gain.over_seeds)]


def dose_text(arm: DosedArm) -> str:
    """``0.612 (0.590–0.640)``; of fewer seeds than the gain, how many."""
    values = arm.aurocs.values()
    between = f" ({min(values):.3f}–{max(values):.3f})" if len(values) > 1 else ""
    return f"{arm.dose:.3f}{between}" + (f", {len(values)} of {arm.seeds} seeds" if len(values) < arm.seeds else "")
