"""A server that speaks as vLLM does, over real HTTP; behind it our worker extension and our own engine."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.tiny import tiny_llama, train_tokenizer
from contrastive_reasoning.rollout import Engine, RolloutBatch, Sampling
from contrastive_reasoning.rollout.vllm import VLLMEngine
from contrastive_reasoning.rollout.vllm_server.weight_sync import WeightSync
from contrastive_reasoning.tasks.base import Problem
from tests.contract.vllm_kit import SAMPLED, SEED, engine_of

NUMBERS = [(3, 4), (21, 16, 17, 26), (1, 2, 3), (49, 48, 47, 46), (5,)]


@pytest.fixture(scope="session")
def problems() -> Sequence[Problem]:
    return [Problem(id=str(n), prompt=f"Numbers: {list(n)}, target: {sum(n)}\n", answer="") for n in NUMBERS]


@pytest.fixture(scope="session")
def tokenizer(problems: Sequence[Problem]) -> PreTrainedTokenizerFast:
    return train_tokenizer([problem.prompt for problem in problems], vocab_size=280)


def policy_of(tokenizer: PreTrainedTokenizerFast, *, seed: int, kind: type[CausalLMPolicy]) -> Any:
    """Weights drawn wide, so that completions differ and some of them end by themselves."""
    model = tiny_llama(tokenizer, hidden_size=32)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(seed)
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.15)
    return kind(model=model, tokenizer=tokenizer, compute_dtype=torch.float32, chat_template=False)


@pytest.fixture
def policy(tokenizer: PreTrainedTokenizerFast) -> CausalLMPolicy:
    return policy_of(tokenizer, seed=1, kind=CausalLMPolicy)


class TokenIn(CausalLMPolicy):
    """A policy whose prompts are spelled as lists of token ids."""

    def prompt_ids(self, prompt: str) -> list[int]:
        return json.loads(prompt)


def drawn_as_one_request(
    engine: Engine, policy: TokenIn, prompt: list[int], *, seed: int, group_size: int, sampling: Sampling
) -> RolloutBatch:
    """What the server draws for one request: a function of its seed alone, as vLLM's is."""
    problem = Problem(id="request", prompt=json.dumps(prompt), answer="")
    return engine.generate(policy, [problem], group_size=group_size, sampling=sampling, seed=(seed,))


class FakeWorker(WeightSync):
    """What vLLM's worker has that the extension uses; its model is that of a policy of ours."""

    def __init__(self, policy: TokenIn) -> None:
        self.policy, self.device = policy, policy.device
        self.vllm_config = SimpleNamespace(model_config=SimpleNamespace(logprobs_mode="raw_logprobs"))

    def reload_weights(self, *, weights_iterator: Iterator[tuple[str, Tensor]]) -> None:
        missing, unexpected = self.policy.model.load_state_dict(dict(weights_iterator), strict=False)
        assert missing in ([], ["lm_head.weight"])
        assert not unexpected


Tamper = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass
class FakeVLLM:
    """The endpoints of ``vllm serve`` that we use, with the shapes that they have there."""

    worker: FakeWorker
    url: str = ""
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    tamper: Tamper | None = None
    """Changes the answer to a completion request."""
    drop: int = 0
    """Connections to close without an answer."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def paths(self) -> list[str]:
        return [path if path != "/collective_rpc" else body["method"] for path, body in self.requests]

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        with self.lock:  # one forward pass at a time; the engine switches the modes of the model
            self.requests.append((path, body))
            if path == "/v1/completions":
                made = self.complete(body)
                return 200, self.tamper(made) if self.tamper else made
            if path == "/collective_rpc":
                method = getattr(self.worker, body["method"], None)
                return (200, {"results": [method(*body["args"])]}) if method else (500, {"error": "no such method"})
            known = path.partition("?")[0] in ("/wake_up", "/sleep", "/reset_prefix_cache")
            return (200, None) if known else (404, {"detail": "Not Found"})

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        sampling = Sampling(
            temperature=body["temperature"],
            top_k=body["top_k"] or None,
            top_p=body["top_p"],
            max_tokens=body["max_tokens"],
            stop=body["stop"],
        )
        rollouts = drawn_as_one_request(
            Engine(max_batch_tokens=10_000),
            self.worker.policy,
            body["prompt"],
            seed=body["seed"],
            group_size=body["n"],
            sampling=sampling,
        )
        log_probs = self.recorded(rollouts)
        choices = []
        for row, reason in enumerate(rollouts.finish_reasons):
            ids = rollouts.completion_ids[row][rollouts.mask[row]].tolist()
            choices.append(
                {
                    "index": row,
                    "text": rollouts.texts[row].encode("utf-8", "replace").decode(),
                    "logprobs": {"token_logprobs": log_probs[row][: len(ids)].tolist(), "tokens": ["?"] * len(ids)},
                    "finish_reason": reason,
                    "prompt_token_ids": body["prompt"],
                    "token_ids": ids,
                }
            )
        return {"id": "cmpl-0", "object": "text_completion", "choices": choices}

    def recorded(self, rollouts: RolloutBatch) -> Tensor:
        """As vLLM does by default: of the model's own distribution, before the temperature."""
        if self.worker.vllm_config.model_config.logprobs_mode == "processed_logprobs":
            return rollouts.old_log_probs
        ids, mask = (part.expand(len(rollouts), -1) for part in (rollouts.prompt_ids, rollouts.prompt_mask))
        with torch.no_grad():
            return self.worker.policy.log_probs(ids, mask, rollouts.completion_ids, rollouts.mask)


def handler_of(fake: FakeVLLM) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if fake.drop > 0:
                fake.drop -= 1
                self.connection.close()
                return
            status, made = fake.answer(self.path, body)
            content = b"" if made is None else json.dumps(made).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


@pytest.fixture
def fake(tokenizer: PreTrainedTokenizerFast) -> Iterator[FakeVLLM]:
    """A server with weights of its own, which are nobody's."""
    made = FakeVLLM(FakeWorker(policy_of(tokenizer, seed=99, kind=TokenIn)))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(made))
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def expected(policy: CausalLMPolicy) -> Callable[..., RolloutBatch]:
    """What a server with the policy's weights draws for one request, without a server."""
    twin = copy.deepcopy(policy)
    token_in = TokenIn(model=twin.model, tokenizer=twin.tokenizer, compute_dtype=torch.float32, chat_template=False)

    def draw(prompt: list[int], **settings: Any) -> RolloutBatch:
        return drawn_as_one_request(Engine(max_batch_tokens=10_000), token_in, prompt, **settings)

    return draw


@pytest.fixture
def engine(fake: FakeVLLM, tmp_path: Path) -> VLLMEngine:
    return engine_of(fake.url, tmp_path)


@pytest.fixture
def draw(engine: VLLMEngine, policy: CausalLMPolicy, problems: Sequence[Problem]) -> Callable[..., RolloutBatch]:
    """What the engine draws for the first ``count`` problems, or ``posed``, by the policy."""

    def generate(
        count: int | None = None, *, group_size: int = 2, sampling: Sampling = SAMPLED, posed: Any = None, **more: Any
    ) -> RolloutBatch:
        chosen = problems[:count] if posed is None else posed
        return engine.generate(policy, chosen, group_size=group_size, sampling=sampling, seed=SEED, **more)

    return generate
