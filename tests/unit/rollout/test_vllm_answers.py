from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout import Sampling
from contrastive_reasoning.rollout.vllm import AnswerReader, Drawn
from contrastive_reasoning.rollout.vllm_client import ServerError

PROMPT = [5, 6]
SAMPLING = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=3, stop=[])


@pytest.fixture
def reader(policy: CausalLMPolicy) -> AnswerReader:
    return AnswerReader(policy, SAMPLING)


@pytest.fixture
def good(policy: CausalLMPolicy) -> dict[str, Any]:
    """Two completions: one that ends with an end token, and one that reaches its limit of three tokens."""
    end = policy.eos_token_ids[0]
    rows = [([7, end], [-0.5, -1.5], "stop"), ([7, 8, 9], [-0.5, 0.0, -3.0], "length")]
    return {
        "choices": [
            {
                "index": index,
                "prompt_token_ids": list(PROMPT),
                "token_ids": ids,
                "logprobs": {"token_logprobs": log_probs},
                "finish_reason": reason,
            }
            for index, (ids, log_probs, reason) in enumerate(rows)
        ]
    }


def read(reader: AnswerReader, answer: Any) -> list[Drawn]:
    return reader.read(answer, prompt=PROMPT, group_size=2, limit=3)


def test_answer_reader_orders_completions_by_index(
    reader: AnswerReader, good: dict[str, Any], policy: CausalLMPolicy
) -> None:
    expected = [
        Drawn(ids=[7, policy.eos_token_ids[0]], log_probs=[-0.5, -1.5], stopped=True),
        Drawn(ids=[7, 8, 9], log_probs=[-0.5, 0.0, -3.0], stopped=False),
    ]
    assert read(reader, good) == expected
    assert read(reader, {"choices": good["choices"][::-1]}) == expected


def overwrite(**values: Any) -> Callable[[dict[str, Any]], None]:
    """Overwrites fields of the second completion."""
    return lambda answer: answer["choices"][1].update(values)


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda answer: answer.pop("choices"), "choices"),
        (lambda answer: answer.update(choices=["a", "b"]), "choices"),
        (lambda answer: answer["choices"].pop(), "2 .* 1$"),
        (lambda answer: answer["choices"].append(answer["choices"][0]), "2 .* 3$"),
        (overwrite(index=0), "2 completions"),
        (overwrite(index=None), "2 completions"),
        (overwrite(prompt_token_ids=[1, 5, 6]), "prompt's token ids"),
        (overwrite(prompt_token_ids=None), "prompt's token ids"),
        (overwrite(token_ids=None), "token_ids"),
        (overwrite(token_ids=["7", "8", "9"]), "token_ids"),
        (overwrite(token_ids=[7, True, 9]), "token_ids"),
        (overwrite(token_ids=[]), "0 tokens.* 1 to 3"),
        (overwrite(token_ids=[7, 8, 9, 9]), "4 tokens.* 1 to 3"),
        (overwrite(token_ids=[7, 8, 10**6]), "1000000.* [23][0-9]{2}$"),
        (overwrite(token_ids=[7, 8, -1]), "token -1"),
        (overwrite(logprobs=None), "token_logprobs"),
        (overwrite(logprobs={"token_logprobs": [-1.0]}), "3 .* 1 token_logprobs"),
        *[
            (overwrite(logprobs={"token_logprobs": [-1.0, wrong, -1.0]}), f"log-prob {wrong}")
            for wrong in (None, float("nan"), float("-inf"), -9999.0, 0.5)
        ],
        (overwrite(token_ids=[7, 8], logprobs={"token_logprobs": [-1.0, -1.0]}), "2 of 3 .*'length'"),
        (overwrite(finish_reason="abort"), "3 of 3 .*'abort'"),
        (overwrite(finish_reason="stop"), "finish_reason 'stop'"),
    ],
)
def test_answer_reader_rejects_malformed_answers_with_a_one_line_error(
    reader: AnswerReader, good: dict[str, Any], spoil: Callable[[dict[str, Any]], None], named: str
) -> None:
    spoil(good)
    with pytest.raises(ServerError, match=named) as caught:
        read(reader, good)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("answer", [None, [], "text", 3, {"choices": {}}, {"error": {"message": "no such model"}}])
def test_answer_reader_rejects_answers_without_choices(reader: AnswerReader, answer: Any) -> None:
    with pytest.raises(ServerError, match="choices"):
        read(reader, json.loads(json.dumps(answer)))
