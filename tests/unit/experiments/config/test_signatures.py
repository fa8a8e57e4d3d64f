"""``signature_of`` reads the same arguments from source as ``inspect`` finds on the imported object."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.utils import get_object

from experiments.config.signatures import missing_name, signature_of
from tests.config_kit import CONF

TARGETS = sorted({name for path in CONF.rglob("*.yaml") for name in re.findall(r"_target_: (\S+)", path.read_text())})
UNREADABLE = ["datetime.timedelta", "torch.nn.Linear", "no.such.module", "experiments.schema.nothing"]
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
USER_MODULE = """
import dataclasses as dc
from collections.abc import Callable

if True:
    from contrastive_reasoning.tasks.base import Problem as Renamed

@dc.dataclass(kw_only=True)
class Base:
    first: int
    hidden: int = dc.field(init=False, default=0)

@dc.dataclass(kw_only=True)
class Derived(Base):
    second: float = 0.5
    third: list[int] = dc.field(default_factory=list)
    fourth: str = dc.field(compare=False)

class Plain(Derived):
    def method(self) -> None: ...

class Maker:
    def make(self, size: int, *, scale: float = 1.0, **more: int) -> None: ...
"""


def test_signature_of_equals_inspect_for_every_target_in_conf() -> None:
    assert len(TARGETS) > 100
    for target in TARGETS:
        assert_equals_inspect(target)


def test_signature_of_reads_dataclasses_reexports_and_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_signatures.py").write_text(USER_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("Base", "Derived", "Plain", "Renamed", "Maker.make"):
        found = signature_of(f"own_signatures.{name}")
        assert found is not None, name
        if name != "Maker.make":
            assert_equals_inspect(f"own_signatures.{name}")
    assert signature_of("own_signatures.Missing") is None


def test_signature_of_returns_none_without_readable_source() -> None:
    assert [target for target in UNREADABLE if signature_of(target) is not None] == []


def test_signature_of_imports_no_target() -> None:
    code = f"import sys; from experiments.config.signatures import signature_of; {TARGETS!r}.__class__(map("
    code += f"signature_of, {TARGETS!r})); sys.exit('torch' in sys.modules or 'callbacks' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def assert_equals_inspect(target: str) -> None:
    found = signature_of(target)
    assert found is not None, target
    parameters = inspect.signature(get_object(target)).parameters.values()
    required = {one.name: one.default is inspect.Parameter.empty for one in parameters if one.kind not in VARIADIC}
    assert {name: argument.required for name, argument in found.arguments.items()} == required, target
    assert found.any_keyword == any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters), target


def test_missing_name_accepts_every_target_that_can_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_signatures.py").write_text(USER_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = [f"own_signatures.{name}" for name in ("Base", "Renamed", "Maker.make", "Callable")]
    importable = [*TARGETS, *own, "datetime.timedelta", "torch.nn.Linear", "torch.optim.AdamW", "math.sqrt"]
    assert {target: reason for target in importable if (reason := missing_name(target)) is not None} == {}


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("no_such_module.f", "there is no module 'no_such_module': write no_such_module.py here, or add its folder"),
        ("own_signatures.Bse", "own_signatures has no Bse; did you mean 'Base'?"),
        ("contrastive_reasoning.rewards.VerifierRewrd", "did you mean 'VerifierReward'?"),
        ("contrastive_reasoning.rewrds.VerifierReward", "contrastive_reasoning has no rewrds"),
        ("brevity", "it must name a module and what to build from it"),
    ],
)
def test_missing_name_says_what_is_missing(
    target: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_signatures.py").write_text(USER_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert reason in (missing_name(target) or "")
