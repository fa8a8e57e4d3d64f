"""The work that all arms do: prompts, groups, lengths. Prompts are Countdown's own, numbers drawn from a fixed seed.

short   8 prompts of ~30 tokens × 8 completions × 128 tokens
long    4 prompts of ~1,800 tokens (two worked searches in each) × 8 completions × 128 tokens
uneven  8 prompts of ~30 tokens × 8 completions of 32 to 512 tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import log
from pathlib import Path
from random import Random
from typing import Any

import torch

from contrastive_reasoning.policies.tiny import TinyArchitecture, TinyModel, tiny_model, train_tokenizer
from contrastive_reasoning.rollout.sampling import Seed, row_uniforms
from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown import CountdownProblem
from experiments.system.files import write_json

SEED: Seed = (0, "rollout", 0, 0)
"""What our rollouts are drawn by in every repeat: seed, purpose, rollout batch, rank."""
END_SHARE = 1 / 200
"""The probability of the end token at every token, where completions end by themselves."""
SHORTEST = 32
VOCABULARY = 512
"""Of the tokenizer, and of the small policy."""
HEAD_WIDTH = 32
SMALL = "small"
CONTEXT = 4096

_QWEN2_05B = TinyArchitecture(
    kind="qwen2",
    hidden_size=896,
    intermediate_size=4864,
    layers=24,
    heads=14,
    key_value_heads=2,
    max_length=CONTEXT,
    vocab_size=151936,
)
QWEN2 = {
    "qwen2_05b": _QWEN2_05B,
    "qwen2_15b": replace(_QWEN2_05B, hidden_size=1536, intermediate_size=8960, layers=28, heads=12),
}
"""Of Qwen2's two smallest, embeddings tied to the head as in theirs."""
MODELS = (SMALL, *QWEN2)


@dataclass(frozen=True, kw_only=True)
class Workload:
    key: str
    title: str
    prompts: int
    group_size: int
    prompt_numbers: int | None
    """Numbers stated in the prompt, which set its length; None: LongProc's form, with two worked searches."""
    max_tokens: int
    """Of a completion."""
    uneven: bool
    """Whether completions end by themselves; else each has ``max_tokens``."""
    microbatch_rows: int
    """Rows that go through the policy at once where a peer counts rows; we get the same budget in tokens."""
    hidden_size: int = 192
    """Width of the policy, where ``model`` leaves it open."""
    model: str = SMALL
    """One of ``MODELS``."""
    device: str = "cpu"
    """Where all arms compute: cpu or cuda."""

    @property
    def shape(self) -> TinyArchitecture:
        """Of the policy; ``small`` is a Llama of 4 layers."""
        if self.model in QWEN2:
            return QWEN2[self.model]
        return TinyArchitecture(
            kind="llama",
            hidden_size=self.hidden_size,
            intermediate_size=self.hidden_size * 8 // 3,
            layers=4,
            heads=self.hidden_size // HEAD_WIDTH,
            key_value_heads=self.hidden_size // HEAD_WIDTH,
            max_length=CONTEXT,
            vocab_size=VOCABULARY,
        )

    def problems(self) -> list[Problem]:
        """The same in every process."""
        random = Random(0)
        made = [self._problem(random, index) for index in range(self.prompts)]
        return [_late_ending(problem, self.group_size) for problem in made] if self.uneven else made

    def _problem(self, random: Random, index: int) -> Problem:
        numbers = [random.randint(10, 49) for _ in range(self.prompt_numbers or 4)]
        target = random.randint(100, 999)
        prompt = stated(numbers, target) if self.prompt_numbers else CountdownProblem(numbers, target).prompt
        return Problem(id=f"{self.key}{index}", prompt=prompt, answer=str(target))


def on(workload: Workload, *, model: str, device: str) -> Workload:
    """The same work for another model or on another device; titles tell them apart."""
    if (model, device) == (workload.model, workload.device):
        return workload
    title = f"{workload.title}, {model} on {device}"
    return replace(workload, key=f"{workload.key}-{model}-{device}", title=title, model=model, device=device)


def stated(numbers: Sequence[int], target: int) -> str:
    """A prompt of 3 tokens a number: two digits and a comma."""
    return f"Numbers: {list(numbers)}\nTarget: {target}\n"


def _late_ending(problem: Problem, group_size: int) -> Problem:
    """The problem under an id whose dice end none of its completions before ``SHORTEST`` tokens.

    A row's dice are a function of the seed and its problem's id. The end token is the first with any probability in
    the vocabulary, so it is drawn where a number falls below its share, which varies little; twice the share is safe.
    """
    for attempt in range(100_000):
        renamed = replace(problem, id=f"{problem.id}-{attempt}")
        dice = row_uniforms([renamed], group_size=group_size, length=SHORTEST - 1, seed=SEED)
        if float(dice.min()) > 2 * END_SHARE:
            return renamed
    raise RuntimeError(f"no id of problem {problem.id} keeps its completions from ending early")


SHORT = Workload(
    key="short",
    title="short prompts",
    prompts=8,
    group_size=8,
    prompt_numbers=8,
    max_tokens=128,
    uneven=False,
    microbatch_rows=64,
)
WORKLOADS = (
    SHORT,
    replace(SHORT, key="long", title="LongProc prompts", prompts=4, prompt_numbers=None, microbatch_rows=8),
    replace(SHORT, key="uneven", title="uneven lengths", max_tokens=512, uneven=True, microbatch_rows=32),
)

BASE = replace(
    SHORT,
    key="base",
    title="4 prompts of ~260 tokens × 8 × 64 tokens",
    prompts=4,
    prompt_numbers=84,
    max_tokens=64,
    microbatch_rows=32,
)
DOUBLED = {
    "group_size": replace(BASE, key="group", group_size=16),
    "prompt_length": replace(BASE, key="prompt", prompt_numbers=170),
    "completion_length": replace(BASE, key="completion", max_tokens=128),
    "width": replace(BASE, key="width", hidden_size=384),
}
"""What is doubled → the base with that doubled."""


NEVER = -3.0
"""Component 0 of a token that is not to be drawn: its logit lies about 4 h₀ below the others."""


@torch.no_grad()
def set_end_share(model: TinyModel, specials: Sequence[int], share: float) -> None:
    """Make the last of the special tokens, the end, as likely as ``share`` at every token; the others are never drawn.

    Component 0 of every token's embedding is a constant, so one component h₀ of the last hidden state is nearly the
    same everywhere; the head being tied, the end token's own component 0 sets its logit against all others:

        P(end) = e^{h₀ c} / (e^{h₀ c} + Σ_v e^{h₀ + …})   ⇒   c = 1 + log(n p / (1 − p)) / h₀    for n ordinary tokens
    """
    embedding: Any = model.get_input_embeddings().weight
    embedding[:, 0] = 1.0
    embedding[list(specials)] = 0.0
    embedding[list(specials), 0] = NEVER
    if share > 0:
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(len(specials), len(embedding), (8, 64), generator=generator)
        constant = float(model.base_model(input_ids=ids).last_hidden_state[..., 0].mean())
        embedding[specials[-1], 0] = 1 + log((len(embedding) - len(specials)) * share / (1 - share)) / constant


FOLDER = Path(".bench").resolve()
"""The peers' environment and the files of every workload; git ignores it."""
LEARNING_RATE = 1e-12
"""The update is done in full, and no weight of ordinary size changes by it: all repeats see the same policy."""


class WorkFiles:
    """The files of one workload."""

    def __init__(self, workload: Workload, folder: Path = FOLDER) -> None:
        self.workload = workload
        self.folder = folder / workload.key
        self.problems = workload.problems()
        shape = workload.shape
        # the same texts for every workload, so that all have one tokenizer
        corpus = [CountdownProblem((21, 16, 17, 26), 46).prompt, stated((21, 16, 17, 26), 46)]
        tokenizer: Any = train_tokenizer(corpus, vocab_size=VOCABULARY, kind=shape.kind)
        self.bos = str(tokenizer.bos_token)
        encoded = [tokenizer(problem.prompt)["input_ids"] for problem in self.problems]
        self.prompt_tokens = 1 + max(len(ids) for ids in encoded)
        """Of the longest prompt, the token that begins every text included."""
        model = tiny_model(shape, tokenizer, seed=0)
        specials = [tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id]
        set_end_share(model, specials, END_SHARE if workload.uneven else 0.0)
        if shape.vocab_size > VOCABULARY:  # by tokens that are never drawn: the work of a large head is done
            known = model.get_input_embeddings().num_embeddings
            model.resize_token_embeddings(shape.vocab_size, mean_resizing=False)
            embedding: Any = model.get_input_embeddings().weight
            embedding.data[known:] = 0.0
            embedding.data[known:, 0] = NEVER
        model.save_pretrained(self.folder / "policy")
        tokenizer.save_pretrained(self.folder / "policy")

    def for_us(self) -> Path:
        """Our own arm's: problems, and budgets in tokens that are the peer's budgets in rows."""
        longest = self.prompt_tokens + self.workload.max_tokens
        return self._write(
            "ours.json",
            problems=[asdict(problem) for problem in self.problems],
            microbatch_tokens=self.workload.microbatch_rows * longest,
            batch_tokens=len(self.problems) * self.workload.group_size * longest,
        )

    def for_peers(self, lengths: Sequence[int]) -> Path:
        """Prompts as text with the token that begins ours; of completions that end by themselves the lengths."""
        return self._write(
            "peers.json",
            prompts=[self.bos + problem.prompt for problem in self.problems],
            lengths=list(lengths) if self.workload.uneven else None,
            microbatch_rows=self.workload.microbatch_rows,
            scratch=str(self.folder / "scratch"),
        )

    def _write(self, name: str, **content: Any) -> Path:
        path = self.folder / name
        common = {
            "policy": str(self.folder / "policy"),
            "group_size": self.workload.group_size,
            "max_tokens": self.workload.max_tokens,
            "learning_rate": LEARNING_RATE,
            "device": self.workload.device,
        }
        write_json(path, {**common, **content})
        return path
