"""An unfinished stage that differs by settings: left lying where one was typed, else only where that was asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.stages.checkpoints import CheckpointError
from experiments.stages.resume import check_left
from tests.unit.experiments.stages.test_begun import chain, stopped

BASE = ["experiment=llama_baseline"]
WIDER = [*BASE, "advantage.epsilon=0.5"]


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (BASE, BASE),  # a default was edited
        (WIDER, BASE),  # an override was forgotten
        (BASE, [*BASE, "progress=quiet", "output_dir=here", "checkpoints.keep=3", "+logger.more=1"]),
    ],
)
def test_a_setting_that_nobody_typed_leaves_a_stage_lying_only_where_that_was_asked_for(
    tmp_path: Path, then: list[str], now: list[str]
) -> None:
    stopped(before := chain(tmp_path, "advantage.epsilon=0.5"), typed=then)
    after = chain(tmp_path)
    told = re.escape(f"{before[1].folder} is unfinished at checkpoint 6, begun with advantage.epsilon 0.5 (now 1e-06);")
    with pytest.raises(CheckpointError, match=rf"^grpo: {told} .* with checkpoints\.begin_anew=true$"):
        check_left(after, anew=False, compared=False, typed=now)
    check_left(after, anew=True, compared=False, typed=now)
    check_left(after, anew=False, compared=True, typed=now)


@pytest.mark.parametrize("which", ["debug=fast", "seed=1", "experiment=llama_critic", "+arm=x"])
def test_without_what_said_which_run_it_was_another_one_is_meant(tmp_path: Path, which: str) -> None:
    stopped(chain(tmp_path, "advantage.epsilon=0.5"), typed=[*WIDER, which])
    check_left(chain(tmp_path), anew=False, compared=False, typed=BASE)


@pytest.mark.parametrize("then", [BASE, None])
def test_one_that_was_typed_now_or_of_which_nothing_is_known_is_meant(tmp_path: Path, then: list[str] | None) -> None:
    stopped(chain(tmp_path), typed=then)
    check_left(chain(tmp_path, "advantage.epsilon=0.5"), anew=False, compared=False, typed=WIDER)
    check_left(chain(tmp_path, "advantage.epsilon=0.5"), anew=False, compared=False)
