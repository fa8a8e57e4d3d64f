from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contrastive_reasoning.distributed import this_rank
from contrastive_reasoning.rollout import Sampling
from contrastive_reasoning.rollout.vllm import VLLMEngine, request_seeds
from contrastive_reasoning.rollout.vllm_client import ServerError, check_log_probs, on_every_rank, on_first_rank
from contrastive_reasoning.tasks.base import Problem
from tests.two_ranks import on_ranks

SETTINGS: dict[str, Any] = {
    "url": "http://127.0.0.1:8000",
    "weights_folder": "weights",
    "disk_folder": "disk",
    "sleep_level": None,
    "concurrency": 1,
    "timeout": 1.0,
    "retries": 0,
    "max_batch_tokens": 1,
}


@pytest.mark.parametrize(
    ("name", "value"),
    [("sleep_level", 3), ("concurrency", 0), ("max_batch_tokens", 0), ("url", "localhost")],
)
def test_vllm_engine_rejects_settings_out_of_range(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"rollout\.engine\.{name}.*{value}"):
        VLLMEngine(**{**SETTINGS, name: value})


def test_request_seeds_depend_on_seed_problem_and_repetition() -> None:
    a, b = (Problem(id=name, prompt="same", answer="") for name in "ab")
    first = request_seeds([a, b, a], (1, "rollout", 0))
    assert first == request_seeds([a, b, a], (1, "rollout", 0))
    assert first[:1] + first[2:] == request_seeds([a, a], (1, "rollout", 0))
    assert not set(first) & set(request_seeds([a, b, a], (1, "rollout", 1)))
    assert len(set(first)) == 3
    assert all(0 <= seed < 2**62 for seed in first)


def test_check_log_probs_rejects_an_unknown_mode() -> None:
    sampling = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=1, stop=[])
    check_log_probs("raw_logprobs", sampling)
    check_log_probs("processed_logprobs", replace(sampling, temperature=0.0, top_p=0.5))
    with pytest.raises(ServerError, match="log-probs are None"):
        check_log_probs(None, sampling)


def _results() -> list[Any]:
    """Returns what this rank gets from the first, what it raises for failing work, and how often it worked."""
    rank, calls = this_rank(), 0

    def work() -> int:
        nonlocal calls
        calls += 1
        return 40 + rank

    def fail() -> None:
        work()
        raise ServerError("not there")

    def error_of(call: Callable[[], Any]) -> str:
        try:
            call()
        except (ServerError, RuntimeError, KeyError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    first = on_first_rank(work)
    failed = error_of(lambda: on_first_rank(fail))
    everywhere = error_of(lambda: on_every_rank(fail if rank == 1 else work))
    found = [first, failed, everywhere, calls, on_every_rank(work)]
    return [*found, error_of(lambda: on_every_rank(lambda: {0: None}[rank]))]


@pytest.mark.whole
def test_first_rank_results_and_errors_of_any_rank_reach_both_ranks(tmp_path: Path) -> None:
    """Work of all ranks that fails on one of them fails on all."""
    failed = "ServerError: not there"
    assert on_ranks(_results, tmp_path) == [
        [40, failed, failed, 3, 40, "RuntimeError: KeyError on rank 1: 1"],
        [40, failed, failed, 1, 41, "KeyError: 1"],
    ]
