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
from omegaconf import OmegaConf

from conf import VARIANTS
from experiments.config.types import argument_flaws, flaws
from tests.config_kit import CONF, composed, nodes


def assert_named(pattern: str | None, message: str | None) -> None:
    assert (message is None) == (pattern is None), message
    assert re.match(pattern or "", message or ""), message
    assert "\n" not in (message or "")


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


OURS = "contrastive_reasoning.rewards"


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ("{_target_: own_module.Derived, first: 1}", None),
        ("{_target_: own_module.Derived, first: 1, hidden: 2}", r"reward\.hidden: "),
        ("{_target_: own_module.Derived, second: 1}", r"reward\.first is missing"),
        ("{_target_: own_module.Derived, _partial_: true}", None),
        ("{_target_: own_module.Derived, first: one}", r"reward\.first must .*'one'"),
        ("{_target_: own_module.Maker.make, size: 1, other: 2}", None),
        ("{_target_: own_module.unresolved, value: 1}", None),
        ("{_target_: datetime.timedelta, hours: 1}", None),
        ("{_target_: own_module.Drived, first: 1}", r"reward\._target_=own_module\.Drived: .*'Derived'"),
        ("{_target_: no_such_module.f}", r"reward\._target_=no_such_module\.f: .*write no_such_module\.py"),
        ("{_target_: brevity}", r"reward\._target_=brevity: "),
        (f"{{_target_: {OURS}.VerifierRewrd}}", rf"reward\._target_={OURS}\.VerifierRewrd: .*'VerifierReward'"),
        ("{_target_: contrastive_reasoning.rewrds.Any}", r"reward\._target_=.*: No module .*\.rewrds'"),
        ("{_target_: broken_module.f}", r"reward\._target_=broken_module\.f: "),
    ],
)
def test_arguments_of_a_users_part_are_those_of_its_signature(
    part: str, named: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_module.py").write_text(USER_MODULE)
    (tmp_path / "broken_module.py").write_text("import not_installed\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    config: Any = OmegaConf.create(f"reward: {part}")
    assert_named(named, next(argument_flaws(config), None))


@pytest.mark.parametrize(
    ("body", "named"),
    [
        # Keys that nothing reads, and missing ones.
        ("budget: {grpo: {stepz: 5}}", r"budget\.grpo\.stepz: .*'budget\.grpo\.steps'"),
        ("checkpoints: {best: {gprO: null}}", r"checkpoints\.best\.gprO: .*'checkpoints\.best\.grpo'"),
        ("rollout: {sampling: {temprature: 1.0}}", r"rollout\.sampling\.temprature: .*'rollout\.sampling\.temp"),
        ("callbacks: {grpo: {alarms: {treshold: 1}}}", r"callbacks\.grpo\.alarms\.treshold: "),
        ("objective: {_target_: contrastive_reasoning.objectives.DAPO}", r"objective\.kl_weight: no such key"),
        (f"reward: {{_target_: {OURS}.RandomPotentialReward}}", r"reward\.outcome is missing"),
        ("trainer: {enable_progress_bar: false}", r"trainer\.enable_progress_bar=False: "),
        ("trainer: {fast_dev_run: true}", r"trainer\.fast_dev_run: "),
        ("trainer: {gradient_clip_val: 1.0}", r"trainer\.gradient_clip_val=1\.0: .*module\.gradient_clip"),
        # Values of a wrong type or out of bounds.
        ("rollout: {sampling: {temperature: '0.6'}}", r"rollout\.sampling\.temperature must be a number, .*'0\.6'"),
        ("objective: {clip_low: true}", r"objective\.clip_low must be a number, got True"),
        ("rollout: {sampling: {top_k: 0.5}}", r"rollout\.sampling\.top_k must be a whole number or null, got 0\.5"),
        ("logger: {mirror: 'yes'}", r"logger\.mirror must be true or false, .*'yes'"),
        ("warm_start: {train: maybe}", r"warm_start\.train must be true or false or 'auto', .*'maybe'"),
        ("logger: {patience: -1}", r"logger\.patience must be a number of at least 0, got -1"),
        ("logger: {patience: .nan}", r"logger\.patience must .* at least 0, got nan"),
        ("budget: {grpo: {steps: 5.0}}", r"budget\.grpo\.steps must be a whole number of at least 0, got 5\.0"),
        ("budget: {grpo: {learning_rate: 0}}", r"budget\.grpo\.learning_rate must .* above 0, got 0"),
        ("budget: {grpo: {learning_rate: .nan}}", r"budget\.grpo\.learning_rate must .* above 0, got nan"),
        ("budget: {grpo: {max_prompt_tokens: 0}}", r"budget\.grpo\.max_prompt_tokens must .* 1 or null, got 0"),
        ("budget: {warm_start: {checkpoint_every: 0}}", r"budget\.warm_start\.checkpoint_every must .* 1, got 0"),
        ("checkpoints: {keep: 0}", r"checkpoints\.keep must .* at least 1, got 0"),
        ("budget: {critic: 5}", r"budget\.critic must be a mapping of steps, "),
        ("checkpoints: {best: {grpo: best}}", r"checkpoints\.best\.grpo must "),
        (
            "checkpoints: {best: {grpo: {val/verifier/accuracy: most}}}",
            r"checkpoints\.best\.grpo\.val/.* 'max', .*'most'",
        ),
        ("checkpoints: {best: {grpo: {val/more: max}}}", r"checkpoints\.best\.grpo must name one metric"),
        # Valid ones.
        ("rollout: {sampling: {temperature: 1, top_k: 5}}", None),
        ("budget: {grpo: {max_prompt_tokens: 64, learning_rate: 1}}", None),
        ("checkpoints: {best: {grpo: null, warm_start: {val/warm_start/loss: max}}}", None),
        ("trainer: {limit_val_batches: 2, max_epochs: null}", None),
        ("callbacks: {every: {mine: {_target_: lightning.Callback}}}", None),
        ("logger: {patience: 1}", None),
    ],
)
def test_key_or_value_that_no_part_takes_is_named(body: str, named: str | None) -> None:
    """``body`` is what an experiment sets in addition to the values of its parts."""
    config = deepcopy(composed("experiment=llama_baseline"))
    OmegaConf.set_struct(config, False)
    merged: Any = OmegaConf.merge(config, OmegaConf.create(body))
    assert_named(named, next(chain(flaws(merged), argument_flaws(merged)), None))
