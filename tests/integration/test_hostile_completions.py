"""Every verifier and parser reads any text in bounded time, executes none of it, and gives a correct verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.hostile.drawn import PAYLOADS
from tests.hostile.kit import FAMILIES
from tests.hostile.watch import CANARY, RECORD, SITE

ROOT = Path(__file__).resolve().parents[2]
IMPORTABLE = f"open({CANARY!r}, 'w')\n"
"""A module with the canary's name, which creates the canary file when it is imported."""


class Watched(NamedTuple):
    """Output of a watched process, and the forbidden actions that it took."""

    output: str
    error: str
    record: list[str]
    canary: bool


def run_watched(folder: Path, *arguments: str) -> Watched:
    """Run ``python`` in a folder that has everything the payloads need."""
    site, work, record = folder / "site", folder / "work", folder / "record.txt"
    for path in (site, work):
        path.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    (site / f"{CANARY}.py").write_text(IMPORTABLE)
    environment = {
        **os.environ,
        RECORD: str(record),
        "PYTHONPATH": f"{site}{os.pathsep}{ROOT}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, *arguments], cwd=work, env=environment, capture_output=True, text=True, check=False
    )
    assert record.exists(), done.stderr
    return Watched(done.stdout, done.stderr, record.read_text().splitlines(), any(work.iterdir()))


EVALUATE = """
import os, subprocess, sys
from contextlib import suppress
from tests.hostile.drawn import PAYLOADS
from tests.hostile.watch import CANARY, watch
watch("test")
for place, payload in enumerate(PAYLOADS):
    sys.modules.pop(CANARY, None)
    os.mkdir(f"{place:02d}")
    os.chdir(f"{place:02d}")
    with suppress(OSError):
        eval(payload)
    os.chdir("..")
"""


def test_watch_detects_every_payload_that_is_evaluated(tmp_path: Path) -> None:
    """A parser that evaluates its text would look like this."""
    seen = run_watched(tmp_path, "-c", EVALUATE)
    folders = sorted((tmp_path / "work").iterdir())
    left = [any(folder.iterdir()) for folder in folders]
    assert left == ["socket" not in payload for payload in PAYLOADS]
    assert sum(line.startswith("socket.connect") for line in seen.record) == 1
    evaluated = [line for line in seen.record if line.startswith("compile ") and "<string>" in line]
    assert len(evaluated) >= len(PAYLOADS)


def judge_completions(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """The report of ``tests.hostile.judge``, after the checks that every report must pass."""
    seen = run_watched(folder, "-m", "tests.hostile.judge", str(count), str(seed))
    assert seen.output, f"the judge ended in an exception: {seen.error[-2000:]}"
    report = json.loads(seen.output)
    assert report["faults"] == []
    assert {"watching the judge", "watching the worker"} == set(seen.record)
    assert not seen.canary
    assert report["families"] == dict.fromkeys(FAMILIES, count // len(FAMILIES))
    return report


@pytest.mark.parametrize(("each", "seed"), [(10, 0), pytest.param(130, 1, marks=pytest.mark.slow)])
def test_hostile_completions_are_harmless(
    tmp_path: Path, each: int, seed: int, record_property: Callable[[str, object], None]
) -> None:
    """200 or 2,600 completions: none is executed, none exceeds its limit, no wrong one counts as right."""
    report = judge_completions(tmp_path, each * len(FAMILIES), seed)
    record_property("slowest", report["slowest"])
    found = report["statuses"]
    for judge in ("countdown longproc", "countdown annotated", "story", "choice", "answer"):
        assert found[f"{judge}: ok"], f"{judge} found none of the right ones"
        assert found[f"{judge}: unparsed"] > each
    assert found["answer: left to the pool"] >= each / 2
    answers = sum(count for name, count in found.items() if name.startswith("answer: ") and "left" not in name)
    assert answers == each * len(FAMILIES)
    assert found.get("answer: error", 0) <= 0.05 * answers, "of what would end a run that is a quarter"
