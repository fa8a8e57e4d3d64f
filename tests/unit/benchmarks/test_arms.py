"""The protocol with an arm, tested with real processes: small scripts that implement the side of a peer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import torch

from benchmarks.arms import REQUIREMENTS, Arm, ArmFailed, NoEnvironment, Skipped, peer_python, race
from benchmarks.peers.conversation import processors

STEPPING = """
from benchmarks.peers.conversation import Conversation

conversation, steps = Conversation(), 0
print("what a library prints")
conversation.ready(fake="1.2")
while True:
    conversation.until_step({"scoring": lambda: {"scoring": 0.5}, "shared_prefix": lambda: "not yet"})
    steps += 1
    conversation.answer({"generation": steps, "whole_step": 2 * steps}, {"completion": 7})
"""
ENDS_AT_ONCE = "raise SystemExit('no such library')"


def ends_in_step(number: int) -> str:
    return STEPPING.replace("    steps += 1", f"    steps += 1\n    if steps == {number}: raise SystemExit(1)")


def arm(folder: Path, name: str = "fake", script: str = STEPPING) -> Arm:
    path = folder / f"{name}.py"
    path.write_text(script)
    return Arm(name, [sys.executable, "-c", f"exec(open({str(path)!r}).read())"], log=folder / f"{name}.log")


@pytest.fixture
def arms(tmp_path: Path) -> Iterator[Callable[..., list[Arm]]]:
    """Returns a function that starts an arm for each name, with its script."""
    with ExitStack() as running:
        yield lambda **scripts: [
            running.enter_context(closing(arm(tmp_path, name, script))) for name, script in scripts.items()
        ]


def test_arm_returns_versions_figures_tokens_and_skipped_measures(tmp_path: Path) -> None:
    with closing(arm(tmp_path)) as fake:
        assert fake.versions == {"fake": "1.2"}
        for measure, reason in (("shared_prefix", "not yet"), ("memory", "memory")):
            with pytest.raises(Skipped, match=reason):
                fake.request(measure)
        assert fake.request("scoring").figures == {"scoring": 0.5}
        steps = [fake.request("step") for _ in range(2)]
        assert [step.figures["whole_step"] for step in steps] == [2, 4]
        assert steps[0].tokens == {"completion": 7}
    assert fake.process.returncode == 0
    assert (tmp_path / "fake.log").read_text() == "what a library prints\n"


def test_arm_that_ends_raises_with_last_output(tmp_path: Path) -> None:
    with pytest.raises(ArmFailed, match=r"^fake ended: no such library$"):
        arm(tmp_path, script=ENDS_AT_ONCE)


def test_race_alternates_arms_and_counts_first_answer_only_if_warm(arms: Callable[..., list[Arm]]) -> None:
    lines: list[str] = []
    all_three = arms(ours=STEPPING, a=STEPPING, b=STEPPING)
    seconds = race(all_three, ["step", "scoring"], warm=[], repeats=2, show=lines.append)
    warm = race(all_three[:2], ["step"], warm=["step"], repeats=1, show=lambda what: None)
    each = {"generation": [2, 3], "whole_step": [4, 6], "scoring": [0.5, 0.5]}
    assert seconds == {"ours": each, "a": each, "b": each}
    assert [line.split(" · ")[-1] for line in lines] == ["ours", "a", "b"] * 6
    assert {name: of_arm["generation"] for name, of_arm in warm.items()} == {"ours": [4], "a": [4]}


def test_race_omits_peer_that_ends_and_raises_if_ours_ends(arms: Callable[..., list[Arm]]) -> None:
    ours, weak, other = arms(ours=ends_in_step(5), weak=ends_in_step(3), b=STEPPING)
    seconds = race([ours, weak, other], ["step"], warm=[], repeats=3, show=lambda what: None)
    assert {name: of_arm["generation"] for name, of_arm in seconds.items()} == {"ours": [2, 3, 4], "b": [2, 3, 4]}
    with pytest.raises(ArmFailed, match=r"^ours ended"):
        race([ours, other], ["step"], warm=["step"], repeats=1, show=lambda what: None)


def test_peer_python_installs_requirements_into_environment_or_raises(tmp_path: Path) -> None:
    python = tmp_path / "whole" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@" >> "$0.log"\necho "ERROR: no network" >&2\ntest ! -e "$0.broken"\n')
    python.chmod(0o755)
    assert peer_python(tmp_path / "whole") == python
    assert Path(f"{python}.log").read_text() == f"-m pip install --quiet {' '.join(REQUIREMENTS)}\n"
    Path(f"{python}.broken").touch()
    with pytest.raises(NoEnvironment, match=r"trl.*: no network$"):
        peer_python(tmp_path / "whole")
    (tmp_path / "bin").write_text("a file where a folder has to be")
    with pytest.raises(NoEnvironment):
        peer_python(tmp_path)


def test_requirements_are_pinned_and_match_our_versions() -> None:
    assert all("==" in requirement for requirement in REQUIREMENTS)
    constraints = (Path(__file__).resolve().parents[3] / "constraints.txt").read_text().splitlines()
    ours = [line.split(";")[0].split("+")[0].strip() for line in constraints]
    for library in ("torch", "transformers", "tokenizers", "accelerate", "numpy"):
        assert next(r for r in REQUIREMENTS if r.startswith(f"{library}==")) in ours


def test_processors_allow_end_token_only_at_given_length() -> None:
    lengths, prompt, end, longest = [1, 3, 4, 2], 5, 2, 4
    (given,) = processors({"lengths": lengths, "max_tokens": longest}, prompt_tokens=prompt, end=end)
    for place in range(1, longest + 1):
        scores = given(torch.zeros(len(lengths), prompt + place - 1, dtype=torch.long), torch.randn(len(lengths), 6))
        for allowed, length in zip(scores.isfinite().tolist(), lengths, strict=True):
            ends = place == length < longest
            assert allowed == [(token == end) == ends for token in range(6)]
    assert processors({"lengths": None}, prompt_tokens=prompt, end=end) == []
