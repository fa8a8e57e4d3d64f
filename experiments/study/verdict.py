"""What a study was to tell, by what was fixed beforehand; at equal compute beside it, which was not.

resolved    both intervals, the nested bootstrap's and Student's or Welch's over seeds, lie on one side of zero: with
            few seeds either alone holds the truth too rarely (contrastive_reasoning/evaluation/nested_bootstrap.py)
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.study.equal_cost import AtCost
from experiments.study.plan import Study
from experiments.study.rows import Gain, Row
from experiments.study.wording import is_welch, plus_minus, with_interval

AT_EQUAL = "after as many batches that teach the policy"
"""Arms with a calibrated value or a head of CLIPO's have some batches more, from which these alone learn
(``datamodules/reasoning_prompts.py``)."""


def verdict(study: Study, rows: Sequence[Row]) -> str:
    """A few sentences on the primary arm."""
    primary = study.primary
    what = f"Primary: {primary.metric} of {primary.arm} minus that of {primary.baseline}, {AT_EQUAL}"
    row = next((row for row in rows if row.name == primary.arm), None)
    if row is None:
        return f"{what}: no seed of {primary.arm} has finished yet."
    if row.gain is None:
        return f"{what}: no seed of {primary.arm} has finished that {primary.baseline} has too."
    planned = {name: study.arms[name].seeds for name in (primary.arm, primary.baseline)}
    done = {other.name: len(other.seeds) for other in rows if other.name in planned}
    early = [f"{done[name]} of {most} seeds of {name}" for name, most in planned.items() if done[name] < most]
    so_far = f" So far {' and '.join(early)}." if early else ""
    return f"{what}: {_evidence(row.gain)} {_at_equal(study, row)} {_resolution(row.gain)}{so_far}"


def side(gain: Gain) -> int:
    """1 where an arm is above the baseline by both intervals, -1 where below; 0: not resolved."""
    ends = (gain.nested.low, gain.nested.high), (gain.over_seeds.low, gain.over_seeds.high)
    if all(low > 0 for low, _ in ends):
        return 1
    return -1 if all(high < 0 for _, high in ends) else 0


def _evidence(gain: Gain) -> str:
    nested = f"{with_interval(gain.nested, signed=True)} points"
    ours, theirs = gain.seeds
    if len(ours) == len(theirs) == 1:
        alone = "one seed" if ours == theirs else f"seed {ours[0]} against seed {theirs[0]}"
        return f"{nested} over problems alone ({alone})."
    if 1 in (len(ours), len(theirs)):
        return f"{nested} over problems and the seeds of one side alone ({len(ours)} against {len(theirs)})."
    how = " (Welch's)" if is_welch(gain.over_seeds) else ""
    return f"{nested} over seeds and problems, {plus_minus(gain.over_seeds)} over seeds{how}."


def _at_equal(study: Study, row: Row) -> str:
    """The validation curve's difference over seeds: not the primary metric, and on other problems."""
    found = [_said("tokens", row.tokens), _said("seconds", row.seconds)]
    return f"By {study.curve}: {'; '.join(found)}."


def _said(name: str, at: AtCost | None) -> str:
    if at is None or at.gain is None:
        return f"at equal {name} not known, as not all runs counted them"
    alone = " (one seed)" if at.gain.n == 1 else ""
    return f"at equal {name} ({at.cost:,.0f}) {plus_minus(at.gain)}{alone}"


def _resolution(gain: Gain) -> str:
    if gain.over_seeds.n == 1:
        return "Not resolved: one seed says nothing of the spread between seeds."
    where = {1: "above", -1: "below"}.get(side(gain))
    return f"Resolved: both 95% intervals lie {where} zero." if where else "Not resolved: a 95% interval holds zero."
