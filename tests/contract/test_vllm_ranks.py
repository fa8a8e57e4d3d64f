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
from tests.contract.recording import Served
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


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["fake"], indirect=True)
@pytest.mark.parametrize("at", ["save", "load_policy"])
def test_failed_transfer_of_first_process_ends_all_with_one_sentence(
    server: Served, tokenizer: PreTrainedTokenizerFast, problems: Sequence[Problem], tmp_path: Path, at: str
) -> None:
    def lose(answer: Any) -> Any:
        raise ConnectionError("the server ends here")

    server.tamper["load_policy"] = lose
    first, second = on_ranks(_fail, tmp_path, server.url, tmp_path, tokenizer, problems[:2], at)
    assert first == second
    assert ("rollout.engine.weights_folder" if at == "save" else "cannot be reached") in first
    assert [*(tmp_path / "weights").iterdir()] == []


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["fake"], indirect=True)  # tests more client processes, not the server
def test_server_wakes_after_every_process_has_released_memory(
    server: Served, tokenizer: PreTrainedTokenizerFast, problems: Sequence[Problem], tmp_path: Path
) -> None:
    first, second = on_ranks(_generate, tmp_path, server.url, tmp_path, tokenizer, problems[:2])
    assert first["found"][0] == ("/wake_up?tags=weights", ["gave0", "gave1"])
    assert [path for path, _ in second["found"]] == ["/v1/completions"] * 2
    assert first["ids"].shape == second["ids"].shape
