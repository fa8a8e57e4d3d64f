"""Our own arm as a real process, on little work: it does the work it says, in every repeat the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.arms import arms_that_close
from benchmarks.measures import PARTS
from benchmarks.side_by_side import check_lengths, our_arm
from benchmarks.workloads import BASE, WorkFiles


@pytest.mark.whole
def test_our_arm_answers_for_every_part_of_the_step(tmp_path: Path) -> None:
    workload = replace(BASE, prompts=2, group_size=2, prompt_numbers=3, max_tokens=4, microbatch_rows=2)
    files = WorkFiles(workload, tmp_path)
    with arms_that_close() as arms:
        arms.append(our_arm(files))
        steps = [arms[0].ask("step") for _ in range(2)]
        scoring = arms[0].ask("scoring")
    assert set(steps[0].seconds) | set(scoring.seconds) == set(PARTS)
    assert steps[0].tokens == steps[1].tokens
    assert steps[0].tokens["prompt"] == 2 * 2 * files.prompt_tokens
    assert steps[0].tokens["lengths"] == [4, 4, 4, 4]
    check_lengths(workload, steps[0].tokens["lengths"])
