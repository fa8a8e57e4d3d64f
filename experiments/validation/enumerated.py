"""Keys that take one of a few words, checked from the words alone: what reads them would be imported for seconds.

The code has these words too, where they mean something;
``tests/unit/experiments/validation/test_enumerated.py`` compares them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.cli.suggestions import did_you_mean_one_of

DTYPES = ("float32", "bfloat16", "float16")
ON_BAD = ("refuse", "leave_out")
JUDGES = ("answer", "choice")
SOURCES = ("hub", "generated")

CHOICES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "contrastive_reasoning.critics.TextCritic": {"style": ("longproc", "annotated")},
    "contrastive_reasoning.critics.load_encoder": {"dtype": DTYPES},
    "contrastive_reasoning.evaluation.problem_sets": {"on_bad": ON_BAD},
    "contrastive_reasoning.policies.load.load_policy": {
        "weights_dtype": DTYPES,
        "compute_dtype": DTYPES,
        "kernels": ("torch", "liger"),
    },
    "contrastive_reasoning.rewards.CLIPOReward": {"level": ("group", "cross", "batch"), "positives": ("one", "all")},
    "contrastive_reasoning.tasks.answer_task.AnswerTask": {"judge": JUDGES, "on_bad": ON_BAD},
    "contrastive_reasoning.tasks.arithmetic.task.ArithmeticTask": {
        "test": ("in_distribution", "perturb_simple", "perturb_hard")
    },
    "contrastive_reasoning.tasks.countdown.task.CountdownTask": {
        "style": ("longproc", "annotated", "direct"),
        "train": ("generated", "longproc", "file"),
        "test": ("longproc", "generated"),
        "on_bad": ON_BAD,
    },
    "contrastive_reasoning.tasks.function_task.FunctionTask": {"on_bad": ON_BAD},
    "contrastive_reasoning.tasks.stand_in.StandInTask": {"source": SOURCES},
    "lightning.Trainer": {
        "accelerator": ("auto", "cpu", "cuda", "gpu", "mps", "tpu"),
        "precision": (
            *("32-true", "bf16-mixed", "bf16-true", "16-mixed", "16-true", "64-true"),
            *("bf16", "16", "32", "64", "transformer-engine", "transformer-engine-float16"),
        ),
    },
    "lightning_modules.optim.AdamW": {"schedule": ("constant", "linear", "cosine")},
}
"""Part → its argument → the words that it may be. Other parts, one's own too, are asked by nobody."""


def unknown_word(config: DictConfig) -> str | None:
    """The first value that is none of its key's words."""
    for path, part in parts(config):
        for argument, words in CHOICES.get(str(part.get("_target_")), {}).items():
            with suppress(OmegaConfBaseException):  # what a reference leads to is said elsewhere
                value = part.get(argument)
                if isinstance(value, str | int | float) and str(value) not in words:
                    return f"{path}.{argument}={value}: no such {argument}; {did_you_mean_one_of(str(value), words)}"
    return None


SEVERAL_KINDS: Mapping[str, tuple[str, ...]] = {"lightning.Trainer": ("devices", "precision")}
"""Part → its arguments that take a number as well as a word or a list: ``trainer.devices=auto``."""


def takes_several_kinds(config: DictConfig, key: str) -> bool:
    """Whether values of more than one kind are right at this dotted key; others look at them later."""
    room, _, argument = key.rpartition(".")
    part = OmegaConf.select(config, room) if room else config
    target = str(part.get("_target_")) if isinstance(part, DictConfig) else ""
    return argument in SEVERAL_KINDS.get(target, ())


def parts(config: DictConfig | ListConfig, above: str = "") -> Iterator[tuple[str, DictConfig]]:
    """Every mapping with a ``_target_`` by its dotted path; references are not followed."""
    keys = range(len(config)) if isinstance(config, ListConfig) else config.keys()
    for key in keys:
        path, node = f"{above}{key}", config._get_node(key)  # pyright: ignore[reportArgumentType]
        if isinstance(node, DictConfig | ListConfig) and not node._is_none() and not node._is_interpolation():
            if isinstance(node, DictConfig) and "_target_" in node:
                yield path, node
            yield from parts(node, f"{path}.")
