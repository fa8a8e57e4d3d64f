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
    ("spoil", "sentence"),
    [
        (lambda answer: answer.pop("choices"), "no list of choices"),
        (lambda answer: answer.update(choices=["a", "b"]), "no list of choices"),
        (lambda answer: answer["choices"].pop(), "2 completions were requested, the server returned 1"),
        (lambda answer: answer["choices"].append(answer["choices"][0]), "2 completions were requested.* returned 3"),
        (overwrite(index=0), "2 completions were requested"),
        (overwrite(index=None), "2 completions were requested"),
        (overwrite(prompt_token_ids=[1, 5, 6]), "did not return the prompt's token ids as they were sent"),
        (overwrite(prompt_token_ids=None), "did not return the prompt's token ids as they were sent"),
        (overwrite(token_ids=None), "has no token_ids"),
        (overwrite(token_ids=["7", "8", "9"]), "has no token_ids"),
        (overwrite(token_ids=[7, True, 9]), "has no token_ids"),
        (overwrite(token_ids=[]), "has 0 tokens, not 1 to 3"),
        (overwrite(token_ids=[7, 8, 9, 9]), "has 4 tokens, not 1 to 3"),
        (overwrite(token_ids=[7, 8, 10**6]), "drew token 1000000, the policy's vocabulary has [23][0-9]{2}$"),
        (overwrite(token_ids=[7, 8, -1]), "drew token -1"),
        (overwrite(logprobs=None), "3 tokens came with no token_logprobs"),
        (overwrite(logprobs={"token_logprobs": [-1.0]}), "3 tokens came with 1 token_logprobs"),
        (overwrite(logprobs={"token_logprobs": [-1.0, None, -1.0]}), "log-prob None"),
        (overwrite(logprobs={"token_logprobs": [-1.0, float("nan"), -1.0]}), "log-prob nan"),
        (overwrite(logprobs={"token_logprobs": [-1.0, float("-inf"), -1.0]}), "log-prob -inf"),
        (overwrite(logprobs={"token_logprobs": [-1.0, -9999.0, -1.0]}), "log-prob -9999.0"),
        (overwrite(logprobs={"token_logprobs": [-1.0, 0.5, -1.0]}), "log-prob 0.5"),
        (overwrite(token_ids=[7, 8], logprobs={"token_logprobs": [-1.0, -1.0]}), "after 2 of 3 tokens.*'length'"),
        (overwrite(finish_reason="abort"), "after 3 of 3 tokens with finish_reason 'abort'"),
        (overwrite(finish_reason="stop"), "finish_reason 'stop', but with no end token or stop string"),
    ],
)
def test_answer_reader_rejects_malformed_answers_with_a_one_line_error(
    reader: AnswerReader, good: dict[str, Any], spoil: Callable[[dict[str, Any]], None], sentence: str
) -> None:
    spoil(good)
    with pytest.raises(ServerError, match=sentence) as caught:
        read(reader, good)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("answer", [None, [], "text", 3, {"choices": {}}, {"error": {"message": "no such model"}}])
def test_answer_reader_rejects_answers_without_choices(reader: AnswerReader, answer: Any) -> None:
    with pytest.raises(ServerError, match="no list of choices"):
        read(reader, json.loads(json.dumps(answer)))
