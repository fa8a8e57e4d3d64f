"""The words that are known before anything is imported are those of the code, and of the comments in ``conf/``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import pytest
from hydra.utils import get_object
from lightning.fabric.plugins.precision.precision import _PRECISION_INPUT
from lightning.pytorch.accelerators import AcceleratorRegistry

from contrastive_reasoning.critics import encoder
from contrastive_reasoning.losses.completions import LEVELS
from contrastive_reasoning.policies import load
from contrastive_reasoning.rewards.clipo import POSITIVES
from contrastive_reasoning.tasks import answer_task, read_set, stand_in
from contrastive_reasoning.tasks.arithmetic.task import TestSet as ArithmeticTest
from contrastive_reasoning.tasks.countdown import longproc, task, trace
from experiments.cli.catalogue import CONF
from experiments.cli.typo import explain
from experiments.schema import register
from experiments.validation.enumerated import CHOICES
from lightning_modules.optim import Schedule

register()
OF_THE_CODE = {
    "TextCritic.style": trace.WORDINGS,
    "load_encoder.dtype": encoder.DTYPES,
    "problem_sets.on_bad": get_args(read_set.OnBad),
    "load_policy.weights_dtype": load.DTYPES,
    "load_policy.compute_dtype": load.DTYPES,
    "load_policy.kernels": load.KERNELS,
    "CLIPOReward.level": LEVELS,
    "CLIPOReward.positives": POSITIVES,
    "AnswerTask.judge": get_args(answer_task.Judge),
    "AnswerTask.on_bad": get_args(read_set.OnBad),
    "ArithmeticTask.test": get_args(ArithmeticTest),
    "CountdownTask.style": get_args(trace.Style),
    "CountdownTask.train": get_args(task.TrainSource),
    "CountdownTask.test": get_args(task.Source),
    "CountdownTask.on_bad": get_args(longproc.OnBad),
    "FunctionTask.on_bad": get_args(read_set.OnBad),
    "StandInTask.source": get_args(stand_in.Source),
    "Trainer.accelerator": {"auto", "gpu", *AcceleratorRegistry.available_accelerators()},
    "Trainer.precision": {str(word) for kind in get_args(_PRECISION_INPUT) for word in get_args(kind)},
    "AdamW.schedule": get_args(Schedule),
}


def test_the_words_are_those_of_the_code() -> None:
    ours = {
        f"{part.rpartition('.')[2]}.{key}": set(words) for part, keys in CHOICES.items() for key, words in keys.items()
    }
    assert ours == {key: set(words) for key, words in OF_THE_CODE.items()}
    assert all(callable(get_object(part)) for part in CHOICES), "each is there by this name"


def listed(path: Path) -> Iterator[tuple[str, str, set[str]]]:
    """(part, key, words) of each line whose comment lists words with ``|``."""
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        key, hash_, comment = line.partition("#")
        if not hash_ or " | " not in comment or ":" not in key:
            continue
        indent = len(key) - len(key.lstrip())
        above = [one for one in lines[:number] if one.startswith(f"{' ' * indent}_target_: ")]
        plain = re.sub(r"\(.*?\)|^.*: (?=\w+ \|)|[:;].*$|, uniform over the other correct ones", "", comment)
        words = {word.split()[0] for word in plain.split("|")}
        yield above[-1].split()[-1], key.strip().split(":")[0], words


LINES = [found for path in sorted(CONF.rglob("*.yaml")) for found in listed(path)]


@pytest.mark.parametrize(("part", "key", "words"), LINES, ids=[f"{part}.{key}" for part, key, _ in LINES])
def test_what_a_comment_lists_is_checked(part: str, key: str, words: Sequence[str]) -> None:
    assert set(CHOICES[part][key]) == words


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (
            "trainer.accelerator=gpuu",
            "no such accelerator; did you mean 'gpu' of auto, cpu, cuda, gpu, mps, tpu?",
        ),
        (
            "trainer.precision=bf17",
            "no such precision; did you mean 'bf16' of 16, 16-mixed, 16-true, 32, 32-true, 64, 64-true, bf16, "
            "bf16-mixed, bf16-true, transformer-engine, transformer-engine-float16?",
        ),
        (
            "policy.compute_dtype=float23",
            "no such compute_dtype; did you mean 'float32' of bfloat16, float16, float32?",
        ),
        (
            "task=countdown task.style=longprok",
            "no such style; did you mean 'longproc' of annotated, direct, longproc?",
        ),
        ("optimizer.schedule=flat", "no such schedule; there are constant, cosine, linear"),
        ("reward.level=bach", "no such level; did you mean 'batch' of batch, cross, group?"),
        (
            "task=math task.real.judge=chioce",
            "no such judge; did you mean 'choice' of answer, choice?",
        ),
    ],
)
def test_another_word_is_refused_before_anything_is_loaded(typed: str, sentence: str) -> None:
    assert explain(["experiment=clipo_laptop", *typed.split()]) == f"{typed.split()[-1]}: {sentence}"


@pytest.mark.parametrize("typed", ["trainer.precision=16-mixed", "trainer=gpu trainer.precision=bf16-mixed"])
def test_a_word_of_them_is_taken(typed: str) -> None:
    assert explain(["experiment=clipo_laptop", *typed.split()]) is None
