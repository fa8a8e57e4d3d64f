"""Servers for the tests of VLLMEngine: a fake one, and with ``-m real`` vLLM itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.tiny import tiny_model, train_tokenizer
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.rollout.vllm import VLLMEngine
from contrastive_reasoning.tasks.base import Problem
from tests.contract.fake_vllm import FakeVLLM, FakeWorker, TokenIn
from tests.contract.real_vllm import real_vllm
from tests.contract.recording import Backend, Served, serving
from tests.contract.vllm_kit import SAMPLED, SEED, engine_of
from tests.tiny_models import tiny_architecture

NUMBERS = [(3, 4), (21, 16, 17, 26), (1, 2, 3), (49, 48, 47, 46), (5,)]


@pytest.fixture(scope="session")
def problems() -> Sequence[Problem]:
    return [Problem(id=str(n), prompt=f"Numbers: {list(n)}, target: {sum(n)}\n", answer="") for n in NUMBERS]


@pytest.fixture(scope="session")
def tokenizer(problems: Sequence[Problem]) -> PreTrainedTokenizerFast:
    return train_tokenizer([problem.prompt for problem in problems], vocab_size=280)


def policy_of(
    tokenizer: PreTrainedTokenizerFast, *, seed: int, kind: type[CausalLMPolicy] = CausalLMPolicy, **sizes: Any
) -> Any:
    """A policy with widely spread weights, so that completions differ and some of them end by themselves."""
    # heads of 32 values each: vLLM's attention on a CPU supports no smaller ones
    small = tiny_architecture(**{"heads": 2, "key_value_heads": 1} | sizes)
    model = tiny_model(small, tokenizer, seed=0)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(seed)
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.15)
    return kind(model=model, tokenizer=tokenizer, compute_dtype=torch.float32, chat_template=False)


@pytest.fixture
def policy(tokenizer: PreTrainedTokenizerFast) -> CausalLMPolicy:
    return policy_of(tokenizer, seed=1)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.real)])
def kind(request: pytest.FixtureRequest) -> str:
    """Kind of server."""
    return request.param


@pytest.fixture
def mode() -> str:
    """Mode of the server's log-probs; a test parametrizes ``mode`` to use another one."""
    return "raw_logprobs"


@pytest.fixture(scope="session")
def real_backend(
    tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Backend]]:
    """Returns vLLM with the given mode of log-probs; each is started once for all tests."""
    folder = tmp_path_factory.mktemp("vllm")
    policy_of(tokenizer, seed=99).save(folder / "nobodys")
    started: dict[str, Backend] = {}
    with ExitStack() as stack:

        def backend(mode: str) -> Backend:
            if mode not in started:
                server = real_vllm(folder / "nobodys", folder / f"{mode}.log", "--logprobs-mode", mode)
                started[mode] = stack.enter_context(server)
            return started[mode]

        yield backend


@pytest.fixture
def server(
    kind: str, mode: str, tokenizer: PreTrainedTokenizerFast, request: pytest.FixtureRequest
) -> Iterator[Served]:
    """A server whose weights differ from the policy's."""
    if kind == "real":
        backend = request.getfixturevalue("real_backend")(mode)
    else:
        backend = FakeVLLM(FakeWorker(policy_of(tokenizer, seed=99, kind=TokenIn), logprobs_mode=mode))
    with serving(backend) as served:
        yield served
    backend.answer("/wake_up", {})  # the test may have left it asleep, and the next test needs it awake


@pytest.fixture
def engine(server: Served, tmp_path: Path) -> VLLMEngine:
    return engine_of(server.url, tmp_path)


@pytest.fixture
def draw(engine: VLLMEngine, policy: CausalLMPolicy, problems: Sequence[Problem]) -> Callable[..., RolloutBatch]:
    """Generates rollouts with the engine and the policy, for the first ``count`` problems or for ``posed``."""

    def generate(
        count: int | None = None, *, group_size: int = 2, sampling: Any = SAMPLED, posed: Any = None, **more: Any
    ) -> RolloutBatch:
        chosen = problems[:count] if posed is None else posed
        return engine.generate(policy, chosen, group_size=group_size, sampling=sampling, seed=SEED, **more)

    return generate
