"""Two real processes and one server on the same devices."""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.distributed import this_rank
from contrastive_reasoning.rollout import vllm
from contrastive_reasoning.rollout.requests import ServerError
from contrastive_reasoning.tasks.base import Problem
from tests.contract.conftest import policy_of
from tests.contract.fake_vllm import FakeVLLM, FakeWorker, TokenIn
from tests.contract.recording import serving
from tests.contract.vllm_kit import SAMPLED, SEED, engine_of
from tests.two_ranks import on_ranks


def _released(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("gave*"))


def _release_late(folder: Path) -> None:
    time.sleep(0.5 * this_rank())
    (folder / f"gave{this_rank()}").touch()


def _generate(
    url: str, folder: Path, tokenizer: PreTrainedTokenizerFast, problems: Sequence[Problem]
) -> dict[str, Any]:
    """Returns which processes had released memory at each request of this one, and the drawn token ids."""
    vllm.torch.cuda.empty_cache = partial(_release_late, folder)
    engine = engine_of(url, folder, sleep_level=1)
    send, found = engine.server.post, []

    def post(path: str, *body: Any) -> Any:
        found.append((path, _released(folder)))
        return send(path, *body)

    engine.server.post = post
    policy = policy_of(tokenizer, seed=1)
    rollouts = engine.generate(policy, problems, group_size=2, sampling=SAMPLED, seed=SEED)
    return {"found": found, "ids": rollouts.completion_ids}


def _fail(url: str, folder: Path, tokenizer: PreTrainedTokenizerFast, problems: Sequence[Problem], at: str) -> str:
    """Returns the error of this process; the first one fails while it saves the weights or while it sends them."""
    policy, engine = policy_of(tokenizer, seed=1), engine_of(url, folder)

    def save(folder: Path, **_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if this_rank() == 0 and at == "save":
        policy.save = save
    with pytest.raises(ServerError) as caught:
        engine.generate(policy, problems, group_size=2, sampling=SAMPLED, seed=SEED)
    return str(caught.value)


def _everything(
    url: str, folder: Path, tokenizer: PreTrainedTokenizerFast, problems: Sequence[Problem]
) -> dict[str, Any]:
    failed = {at: _fail(url, folder, tokenizer, problems, at) for at in ("save", "load_policy")}
    return failed | _generate(url, folder, tokenizer, problems)


@pytest.fixture(scope="module")
def weights_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def results(
    weights_folder: Path, tokenizer: PreTrainedTokenizerFast, problems: Sequence[Problem]
) -> list[dict[str, Any]]:
    """Of each process. The server loses the connection at the first transfer of weights."""

    def lose(answer: Any) -> Any:
        server.tamper.clear()
        raise ConnectionError("the server ends here")

    worker = FakeWorker(policy_of(tokenizer, seed=99, kind=TokenIn), logprobs_mode="raw_logprobs")
    with serving(FakeVLLM(worker)) as server:
        server.tamper["load_policy"] = lose
        return on_ranks(_everything, weights_folder, server.url, weights_folder, tokenizer, problems[:2])


@pytest.mark.whole
@pytest.mark.parametrize(
    ("at", "cause"), [("save", "rollout.engine.weights_folder"), ("load_policy", "cannot be reached")]
)
def test_failed_transfer_of_first_process_ends_all_with_one_sentence(
    results: list[dict[str, Any]], weights_folder: Path, at: str, cause: str
) -> None:
    first, second = (result[at] for result in results)
    assert first == second
    assert cause in first
    assert [*(weights_folder / "weights").iterdir()] == []


@pytest.mark.whole
def test_server_wakes_after_every_process_has_released_memory(results: list[dict[str, Any]]) -> None:
    first, second = results
    assert first["found"][0] == ("/wake_up?tags=weights", ["gave0", "gave1"])
    assert [path for path, _ in second["found"]] == ["/v1/completions"] * 2
    assert first["ids"].shape == second["ids"].shape
