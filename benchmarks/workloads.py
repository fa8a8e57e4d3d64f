"""The work of all arms: prompts, groups and lengths. The content of prompts is generated from a fixed seed.

short     8 prompts of ~30 tokens × 8 completions × 128 tokens
long      4 prompts of ~1,800 tokens (two worked searches in each) × 8 completions × 128 tokens
uneven    8 prompts of ~30 tokens × 8 completions of 32 to 512 tokens
problems  8 word problems of ~85 tokens × 8 completions × 128 tokens, for a pretrained model
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import log
from pathlib import Path
from random import Random
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from contrastive_reasoning.policies.load import native_dtype
from contrastive_reasoning.policies.tiny import TinyArchitecture, TinyModel, tiny_model, train_tokenizer
from contrastive_reasoning.rollout.sampling import rollout_seed, row_uniforms
from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown import CountdownProblem
from experiments.config.known_models import OUTPUTS, model_folder
from experiments.system.files import write_json

SEED = rollout_seed(0, 0)
"""Seed of our rollouts in every repeat."""
END_SHARE = 1 / 200
"""Probability of the end token at every token, in the workload of uneven lengths."""
SHORTEST = 32
VOCABULARY = 512
"""Vocabulary size of the tokenizer and of the small policy."""
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
"""Architectures of the two smallest Qwen2 models; embeddings are tied to the head, as there."""
PRETRAINED = "smollm2-135m-q4"
"""A Llama of 135 million parameters with a vocabulary of 49,152, which ``make model`` fetches."""
MODELS = (SMALL, *QWEN2, PRETRAINED)
INSTRUCTION = r"Let's think step by step and output the final answer within \boxed{}."
"""CLIPO's instruction for GSM8K."""


def write_prompt(numbers: Sequence[int], target: int) -> str:
    """Returns a prompt that has 3 tokens per number: two digits and a comma."""
    return f"Numbers: {list(numbers)}\nTarget: {target}\n"


def draw_numbers(random: Random, count: int) -> tuple[list[int], int]:
    """Returns numbers of two digits and a target of three."""
    return [random.randint(10, 49) for _ in range(count)], random.randint(100, 999)


def number_prompt(random: Random, *, count: int) -> str:
    """Returns a prompt of ``count`` numbers, which determine its length."""
    return write_prompt(*draw_numbers(random, count))


def longproc_prompt(random: Random) -> str:
    """Returns a prompt in LongProc's form, with two worked searches."""
    return CountdownProblem(*draw_numbers(random, 4)).prompt


def word_problem(random: Random) -> str:
    """Returns a word problem of GSM8K's length with CLIPO's instruction. It needs no data set."""
    boxes, price, sold, paid, friends = (random.randint(12, 98) for _ in range(5))
    return (
        f"A shop gets {boxes} boxes with {price} pencils in each. On Monday it sells {sold} pencils, and on Tuesday "
        f"twice as many as on Monday. A teacher then buys {paid} pencils and shares half of them among {friends} "
        f"pupils. How many pencils does the shop have left at the end of Tuesday? {INSTRUCTION}"
    )


@dataclass(frozen=True, kw_only=True)
class Workload:
    key: str
    title: str
    prompts: int
    group_size: int
    prompt: Callable[[Random], str]
    """Generates the text of one prompt."""
    max_tokens: int
    """Most tokens of a completion."""
    uneven: bool
    """Whether completions end with the end token; else each has ``max_tokens``."""
    microbatch_rows: int
    """Rows of a micro-batch, for a peer that counts rows. Our arm has the same budget in tokens."""
    model: str = SMALL
    """One of ``MODELS``."""
    device: str = "cpu"
    """Device of all arms: cpu or cuda."""

    def suits(self, model: str) -> bool:
        """Returns whether this model runs the workload: the pretrained one word problems, fresh ones all others."""
        return (model == PRETRAINED) == (self.prompt is word_problem)

    @property
    def shape(self) -> TinyArchitecture:
        """Architecture of the policy; ``small`` is a Llama of 4 layers."""
        if self.model in QWEN2:
            return QWEN2[self.model]
        return TinyArchitecture(
            kind="llama",
            hidden_size=192,
            intermediate_size=512,
            layers=4,
            heads=6,
            key_value_heads=6,
            max_length=CONTEXT,
            vocab_size=VOCABULARY,
        )

    def problems(self) -> list[Problem]:
        """Returns the problems, which are the same in every process."""
        random = Random(0)
        prompts = [self.prompt(random) for _ in range(self.prompts)]
        made = [Problem(id=f"{self.key}{index}", prompt=prompt, answer="") for index, prompt in enumerate(prompts)]
        return [_late_ending(problem, self.group_size) for problem in made] if self.uneven else made


def on(workload: Workload, *, model: str, device: str) -> Workload:
    """Returns the same work for another model or device, with its own key and title."""
    if (model, device) == (workload.model, workload.device):
        return workload
    title = f"{workload.title}, {model} on {device}"
    return replace(workload, key=f"{workload.key}-{model}-{device}", title=title, model=model, device=device)


def _late_ending(problem: Problem, group_size: int) -> Problem:
    """Returns the problem with an id for which no completion ends before ``SHORTEST`` tokens.

    A row's random numbers are a function of the seed and its problem's id. The end token is the first token of the
    vocabulary with non-zero probability, so it is sampled if a number is below its probability. That varies little, so
    numbers above twice ``END_SHARE`` are safe.
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
    prompt=partial(number_prompt, count=8),
    max_tokens=128,
    uneven=False,
    microbatch_rows=64,
)
WORKLOADS = (
    SHORT,
    replace(SHORT, key="long", title="LongProc prompts", prompts=4, prompt=longproc_prompt, microbatch_rows=8),
    replace(SHORT, key="uneven", title="uneven lengths", max_tokens=512, uneven=True, microbatch_rows=32),
    replace(SHORT, key="problems", title="word problems", prompt=word_problem, microbatch_rows=8),
)


COMPONENT = {SMALL: 1.0, "qwen2_05b": 8.0, "qwen2_15b": 12.0}
"""Fresh model → component 0 of every ordinary token's embedding. More and wider layers outweigh a small one; with a
large one, bfloat16 rounds the logits too much."""
NEVER = -3.0
"""Component 0 of a token that is never sampled, as a multiple of an ordinary one: its logit is far below the others."""


@torch.no_grad()
def set_end_share(model: TinyModel, specials: Sequence[int], share: float, *, component: float) -> None:
    """Gives the end token, the last special token, the probability ``share``; the other specials are never sampled.

    Component 0 of every ordinary token's embedding is a, so component h₀ of the last hidden state is nearly the same
    everywhere. The head is tied, so the end token's own component 0 sets its logit relative to all others:

        P(end) = e^{h₀ c} / (e^{h₀ c} + Σ_v e^{h₀ a + …})   ⇒   c = a + log(n p / (1 − p)) / h₀    for n ordinary tokens

    ``specials`` are token ids, ``component`` is a, and with share 0 the end token is never sampled.
    """
    embedding: Any = model.get_input_embeddings().weight
    embedding[:, 0] = component
    embedding[list(specials)] = 0.0
    embedding[list(specials), 0] = NEVER * component
    if share > 0:
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(len(specials), len(embedding), (8, 64), generator=generator)
        constant = float(model.base_model(input_ids=ids).last_hidden_state[..., 0].mean())
        embedding[specials[-1], 0] = component + log((len(embedding) - len(specials)) * share / (1 - share)) / constant


FOLDER = Path(".bench").resolve()
"""Folder of the peers' environment and the files of every workload; git ignores it."""
NEVER_WRITTEN = "<reponame>"
"""A token of the pretrained model's vocabulary that occurs in no text."""
LEARNING_RATE = 1e-12
"""So small that a full update changes no weight of ordinary size: all repeats see the same policy."""


class WorkFiles:
    """Writes the files of one workload."""

    def __init__(self, workload: Workload, folder: Path = FOLDER) -> None:
        self.workload = workload
        self.folder = folder / workload.key
        self.problems = workload.problems()
        self.bos = self._save_pretrained() if workload.model == PRETRAINED else self._save_fresh()
        tokenizer: Any = AutoTokenizer.from_pretrained(self.folder / "policy")
        encoded = [tokenizer(self.bos + problem.prompt, add_special_tokens=False) for problem in self.problems]
        self.prompt_tokens = max(len(one["input_ids"]) for one in encoded)
        """Tokens of the longest prompt, including the token that begins every text."""

    def _save_pretrained(self) -> str:
        """Saves a copy of the fetched model with an end token that it never samples, so no completion ends early."""
        source = model_folder(PRETRAINED, OUTPUTS)
        tokenizer: Any = AutoTokenizer.from_pretrained(source)
        model: Any = AutoModelForCausalLM.from_pretrained(source)
        tokenizer.eos_token = tokenizer.pad_token = NEVER_WRITTEN  # the model samples its original pad token
        model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
        model.save_pretrained(self.folder / "policy")
        tokenizer.save_pretrained(self.folder / "policy")
        return ""

    def _save_fresh(self) -> str:
        """Saves a policy with random weights and its tokenizer. Returns the token that begins every text."""
        shape, workload = self.workload.shape, self.workload
        # every workload has these texts, so that all have the same tokenizer
        corpus = [CountdownProblem((21, 16, 17, 26), 46).prompt, write_prompt((21, 16, 17, 26), 46)]
        tokenizer: Any = train_tokenizer(corpus, vocab_size=VOCABULARY, kind=shape.kind)
        model = tiny_model(shape, tokenizer, seed=0)
        specials = [tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id]
        component = COMPONENT[workload.model]
        set_end_share(model, specials, END_SHARE if workload.uneven else 0.0, component=component)
        if shape.vocab_size > VOCABULARY:  # adds tokens that are never sampled: only the work grows
            known = model.get_input_embeddings().num_embeddings
            model.resize_token_embeddings(shape.vocab_size, mean_resizing=False)
            embedding: Any = model.get_input_embeddings().weight
            embedding.data[known:] = 0.0
            embedding.data[known:, 0] = NEVER * component
        model.save_pretrained(self.folder / "policy")
        tokenizer.save_pretrained(self.folder / "policy")
        return str(tokenizer.bos_token)

    def for_us(self) -> Path:
        """Writes the file of our arm: problems, and the peers' budgets in rows converted to tokens."""
        longest = self.prompt_tokens + self.workload.max_tokens
        return self._write(
            "ours.json",
            problems=[asdict(problem) for problem in self.problems],
            microbatch_tokens=self.workload.microbatch_rows * longest,
            batch_tokens=len(self.problems) * self.workload.group_size * longest,
        )

    def for_peers(self, lengths: Sequence[int]) -> Path:
        """Writes the file of the peers: prompts as text, with our first token, and lengths if they are uneven."""
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
            "compute_dtype": native_dtype(self.workload.device),
        }
        write_json(path, {**common, **content})
        return path
