"""Characters and tokens of the model's own completions: the credited tokens are the text of the step."""

from __future__ import annotations

import pytest

from contrastive_reasoning.rewards.oracle import OracleReward
from contrastive_reasoning.rewards.verifier import VerifierReward
from contrastive_reasoning.rollout.spans import readable, token_bytes
from tests.real.conftest import Written
from tests.unit.lightning_modules.grpo_kit import TASK

pytestmark = pytest.mark.real


@pytest.mark.parametrize("batch", ["written", "played"])
def test_texts_and_spans_match_tokens(batch: str, request: pytest.FixtureRequest) -> None:
    made: Written = request.getfixturevalue(batch)
    tokenizer, rollouts = made.policy.tokenizer, made.rollouts
    for row, text in enumerate(rollouts.texts):
        ids = rollouts.completion_ids[row][rollouts.mask[row]].tolist()
        assert tokenizer.decode(ids, skip_special_tokens=True) == readable(text)
        assert len(rollouts.token_spans[row]) == len(ids)
        for token, (start, end) in zip(ids, rollouts.token_spans[row], strict=True):
            spelled = token_bytes(tokenizer)[token]
            assert spelled in text[start:end].encode("utf-8", "surrogateescape")
            assert bool(spelled) == (start < end)


def test_step_credit_covers_exactly_tokens_of_step(played: Written) -> None:
    rollouts = played.rollouts
    credit = OracleReward(outcome=VerifierReward(task=TASK), task=TASK, weight=0.1)(rollouts)
    parsed = rollouts.steps_by(TASK)
    assert credit.steps is not None
    assert sum(map(len, credit.steps)) >= 3, "the model plays legal moves"
    for row, credited in enumerate(credit.steps):
        ids = rollouts.completion_ids[row]
        legal = [step for step in parsed[row] if step.legal]
        for step, found in zip(legal, credited, strict=True):
            tokens = ids[found.first_token : found.last_token + 1]
            assert played.policy.tokenizer.decode(tokens) == rollouts.texts[row][step.start : step.end]
