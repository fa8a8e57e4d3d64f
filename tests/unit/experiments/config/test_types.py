"""Keys that no part reads, and values of a wrong type or out of bounds, are named with path, key and valid names."""

from __future__ import annotations

import inspect
import re
from copy import deepcopy
from dataclasses import is_dataclass
from itertools import chain
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from conf import VARIANTS
from experiments.assemble import AssemblyError
from experiments.config.folders import VARIABLE
from experiments.config.override_checks import override_error
from experiments.config.types import argument_flaws, flaws
from experiments.stages.building import check_arguments, check_parts
from experiments.stages.train import device_of
from tests.config_kit import CONF, composed, nodes


def first_flaw(body: str) -> str | None:
    """Returns the first flaw of an experiment that sets ``body`` in addition to the values of its parts."""
    config = deepcopy(composed("experiment=llama_baseline"))
    OmegaConf.set_struct(config, False)
    merged: Any = OmegaConf.merge(config, OmegaConf.create(body))
    return next(chain(flaws(merged), argument_flaws(merged)), None)


def test_every_target_in_conf_shows_its_arguments() -> None:
    """A target whose signature or annotations could not be read would be accepted with any key."""
    targets = {name for path in CONF.rglob("*.yaml") for name in re.findall(r"_target_: (\S+)", path.read_text())}
    rows = [variant.node() for variants in VARIANTS.values() for variant in variants.values()]
    targets |= {node["_target_"] for _, node in nodes(rows)}
    assert len(targets) > 100
    for target in targets - {"lightning.pytorch.loggers.WandbLogger"}:  # it imports names for type checkers alone
        built = get_object(target)
        assert inspect.signature(built)
        constructed = isinstance(built, type) and not is_dataclass(built)
        get_type_hints(built.__init__ if constructed else built)  # raises a NameError for a name it cannot resolve


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        (["experiment=llama_critic_level", "reward.weight=abc"], "reward.weight"),
        (["experiment=clipo_laptop", "optimizer.schedule=flat"], "optimizer.schedule"),
        (["experiment=clipo_laptop", "task=countdown", "task.style=longprok"], "task.style"),
        (["experiment=clipo_laptop", "task=math", "task.real.judge=chioce"], "task.real.judge"),
        (["experiment=clipo_laptop", "policy.trust_remote_code=perhaps"], "policy.trust_remote_code"),
        (["experiment=clipo_laptop", "policy.compute_dtype=int8"], "policy.compute_dtype"),
        (["experiment=clipo_laptop", "reward.level=grop"], "reward"),
        (["experiment=llama_critic_released", "critic=text", "critic.style=longprok"], "critic.style"),
        (["experiment=llama_critic_released", "reward.goals=every"], "reward.goals"),
        (["experiment=llama_baseline", "trainer.accelerator=gpuu"], "trainer"),
        (["experiment=llama_baseline", "reward=clipo", "reward.head._target_=no.such"], "reward.head._target_"),
    ],
)
def test_wrong_value_of_a_part_is_named_before_the_first_stage(overrides: list[str], path: str) -> None:
    assert override_error(overrides) is None, "nothing is imported for it"
    with pytest.raises(AssemblyError, match=rf"^{re.escape(path)}\b"):
        checked_as_by_a_run(composed(*overrides))


def checked_as_by_a_run(config: DictConfig) -> None:
    check_arguments(config)
    device_of(config)
    check_parts(config)


USER_MODULE = """
import dataclasses as dc
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from somewhere import Unknown

@dc.dataclass(kw_only=True)
class Base:
    first: int
    hidden: int = dc.field(init=False, default=0)

@dc.dataclass(kw_only=True)
class Derived(Base):
    second: float = 0.5

class Maker:
    @staticmethod
    def make(size: int, *, scale: float = 1.0, **more: int) -> None: ...

def unresolved(value: "Unknown") -> None: ...
"""


@pytest.mark.parametrize(
    ("part", "start"),
    [
        ("{_target_: own_module.Derived, first: 1}", None),
        ("{_target_: own_module.Derived, first: 1, hidden: 2}", "reward.hidden: no such key; "),
        ("{_target_: own_module.Derived, second: 1}", "reward.first is missing"),
        ("{_target_: own_module.Derived, _partial_: true}", None),
        ("{_target_: own_module.Derived, first: one}", "reward.first must be a whole number, got the text 'one'"),
        ("{_target_: own_module.Maker.make, size: 1, other: 2}", None),
        ("{_target_: own_module.unresolved, value: 1}", None),
        ("{_target_: datetime.timedelta, hours: 1}", None),
        ("{_target_: own_module.Drived, first: 1}", "reward._target_=own_module.Drived: own_module has no Drived; did"),
        (
            "{_target_: no_such_module.f}",
            "reward._target_=no_such_module.f: there is no module 'no_such_module': write ",
        ),
        ("{_target_: brevity}", "reward._target_=brevity: it must name a module and what to build from it"),
        (
            "{_target_: contrastive_reasoning.rewards.VerifierRewrd}",
            "reward._target_=contrastive_reasoning.rewards.VerifierRewrd: contrastive_reasoning.rewards has no "
            "VerifierRewrd; did you mean 'VerifierReward'?",
        ),
        ("{_target_: contrastive_reasoning.rewrds.Any}", "reward._target_=contrastive_reasoning.rewrds.Any: No module"),
        ("{_target_: broken_module.f}", "reward._target_=broken_module.f: "),
    ],
)
def test_arguments_of_a_users_part_are_those_of_its_signature(
    part: str, start: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_module.py").write_text(USER_MODULE)
    (tmp_path / "broken_module.py").write_text("import not_installed\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    config: Any = OmegaConf.create(f"reward: {part}")
    message = next(argument_flaws(config), None)
    assert (message is None) == (start is None), message
    assert (message or "").startswith(start or "")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("budget: {grpo: {stepz: 5}}", "budget.grpo.stepz: no such key; did you mean 'budget.grpo.steps' of "),
        (
            "checkpoints: {best: {gprO: null}}",
            "checkpoints.best.gprO: no such key; did you mean 'checkpoints.best.grpo'",
        ),
        ("warm_start: {train: maybe}", "warm_start.train must be true or false or 'auto', got the text 'maybe'"),
        (
            "rollout: {sampling: {temprature: 1.0}}",
            "rollout.sampling.temprature: no such key; did you mean 'rollout.samp",
        ),
        ("callbacks: {grpo: {alarms: {treshold: 1}}}", "callbacks.grpo.alarms.treshold: no such key; did you mean "),
        ("objective: {_target_: contrastive_reasoning.objectives.DAPO}", "objective.kl_weight: no such key; "),
        (
            "reward: {_target_: contrastive_reasoning.rewards.RandomPotentialReward}",
            "reward.outcome is missing; there ",
        ),
    ],
)
def test_flaws_names_unread_and_missing_keys(body: str, sentence: str) -> None:
    message = first_flaw(body)
    assert message is not None
    assert message.startswith(sentence)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            "rollout: {sampling: {temperature: '0.6'}}",
            "rollout.sampling.temperature must be a number, got the text '0.6'",
        ),
        ("objective: {clip_low: true}", "objective.clip_low must be a number, got True"),
        ("rollout: {sampling: {top_k: 0.5}}", "rollout.sampling.top_k must be a whole number or null, got 0.5"),
        ("logger: {mirror: 'yes'}", "logger.mirror must be true or false, got the text 'yes'"),
        ("logger: {patience: -1}", "logger.patience must be a number of at least 0, got -1"),
        ("budget: {grpo: {steps: 5.0}}", "budget.grpo.steps must be a whole number of at least 0, got 5.0"),
        ("logger: {patience: .nan}", "logger.patience must be a number of at least 0, got nan"),
        ("budget: {grpo: {learning_rate: .nan}}", "budget.grpo.learning_rate must be a number above 0, got nan"),
        ("budget: {grpo: {learning_rate: 0}}", "budget.grpo.learning_rate must be a number above 0, got 0"),
        (
            "budget: {grpo: {max_prompt_tokens: 0}}",
            "budget.grpo.max_prompt_tokens must be a whole number of at least 1 or null, got 0",
        ),
        ("budget: {critic: 5}", "budget.critic must be a mapping of steps, "),
        ("checkpoints: {keep: 0}", "checkpoints.keep must be a whole number of at least 1, got 0"),
        (
            "budget: {warm_start: {checkpoint_every: 0}}",
            "budget.warm_start.checkpoint_every must be a whole number of at least 1, got 0",
        ),
        ("checkpoints: {best: {grpo: best}}", "checkpoints.best.grpo must be "),
        (
            "checkpoints: {best: {grpo: {val/verifier/accuracy: maximum}}}",
            "checkpoints.best.grpo.val/verifier/accuracy must be 'min' or 'max', got the text 'maximum'",
        ),
        (
            "checkpoints: {best: {grpo: {val/more: max}}}",
            "checkpoints.best.grpo must name one metric with min or max, got {'val/verifier/accuracy': 'max', ",
        ),
        ("trainer: {enable_progress_bar: false}", "trainer.enable_progress_bar=False: "),
        ("trainer: {fast_dev_run: true}", "trainer.fast_dev_run: "),
        (
            "trainer: {gradient_clip_val: 1.0}",
            "trainer.gradient_clip_val=1.0: the stages set it; instead of it set ",
        ),
    ],
)
def test_flaws_names_values_of_wrong_type_or_out_of_bounds(body: str, sentence: str) -> None:
    message = first_flaw(body)
    assert message is not None
    assert message.startswith(sentence)


@pytest.mark.parametrize(
    "body",
    [
        "rollout: {sampling: {temperature: 1, top_k: 5}}",
        "budget: {grpo: {max_prompt_tokens: 64, learning_rate: 1}}",
        "checkpoints: {best: {grpo: null, warm_start: {val/warm_start/loss: max}}}",
        "trainer: {limit_val_batches: 2, max_epochs: null}",
        "callbacks: {every: {mine: {_target_: lightning.Callback}}}",
        "logger: {patience: 1}",
    ],
)
def test_flaws_accepts_valid_values(body: str) -> None:
    assert first_flaw(body) is None


EXPERIMENT = """
# @package _global_
# Mine.
defaults:
  - llama_baseline
  - _self_
name: mine
budget:
  grpo:
    stepz: 5
"""


def test_user_file_with_unread_key_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(EXPERIMENT.lstrip())
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    message = override_error(["experiment=mine"])
    assert message is not None
    assert message.startswith("budget.grpo.stepz: no such key; did you mean 'budget.grpo.steps' of ")
