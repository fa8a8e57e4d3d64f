from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torch import distributed, multiprocessing

from contrastive_reasoning.distributed import barrier
from contrastive_reasoning.rollout import Sampling
from contrastive_reasoning.rollout.vllm import VLLMEngine, request_seeds
from contrastive_reasoning.rollout.vllm_client import ServerError, check_log_probs, on_every_rank, on_first_rank
from contrastive_reasoning.tasks.base import Problem
from tests.ports import free_port

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
    [("sleep_level", 3), ("sleep_level", 0), ("concurrency", 0), ("max_batch_tokens", 0), ("url", "localhost")],
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


def _rank(rank: int, port: int, queue: Any) -> None:
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    calls: list[int] = []

    def work() -> int:
        calls.append(rank)
        return 40 + rank

    def fail() -> None:
        calls.append(rank)
        raise ServerError("not there")

    found = on_first_rank(work)
    barrier()
    try:
        on_first_rank(fail)
        failed = ""
    except ServerError as error:
        failed = str(error)
    try:
        on_every_rank(fail if rank == 1 else work)
        everywhere = ""
    except ServerError as error:
        everywhere = str(error)
    queue.put((rank, found, failed, list(calls), on_every_rank(work), everywhere, _error_of_second(rank)))
    distributed.destroy_process_group()


def _error_of_second(rank: int) -> tuple[str, str]:
    """The type and message of what this rank raises after the second rank's work raised a KeyError."""
    try:
        on_every_rank(lambda: {0: None}[rank])
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


@pytest.mark.whole
def test_first_rank_results_and_errors_of_any_rank_reach_both_ranks() -> None:
    port = free_port()
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    processes = [context.Process(target=_rank, args=(rank, port, queue), daemon=True) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0, 0]
    found = sorted(queue.get() for _ in processes)
    assert [one[:4] for one in found] == [(0, 40, "not there", [0, 0, 0]), (1, 40, "not there", [1])]
    assert [one[6] for one in found] == [("RuntimeError", "KeyError on rank 1: 1"), ("KeyError", "1")]
    assert [one[4:6] for one in found] == [(40, "not there"), (41, "not there")], "one that fails alone fails all"
