"""The protocol with an arm, tested with real processes: small scripts that implement the side of a peer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from benchmarks.arms import (
    REQUIREMENTS,
    STAMP,
    Arm,
    ArmFailed,
    NoEnvironment,
    Skipped,
    arms_that_close,
    peer_python,
    race,
)
from benchmarks.peers.conversation import processors
from experiments.system.files import write_json

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


def test_arm_returns_versions_figures_tokens_and_skipped_measures(tmp_path: Path) -> None:
    with arms_that_close() as arms:
        arms.append(arm(tmp_path))
        assert arms[0].versions == {"fake": "1.2"}
        for measure, message in (("shared_prefix", "not yet"), ("memory", "this arm does not measure memory")):
            with pytest.raises(Skipped, match=message):
                arms[0].ask(measure)
        assert arms[0].ask("scoring").figures == {"scoring": 0.5}
        steps = [arms[0].ask("step") for _ in range(2)]
        assert [step.figures["whole_step"] for step in steps] == [2, 4]
        assert steps[0].tokens == {"completion": 7}
    assert arms[0].process.returncode == 0
    assert (tmp_path / "fake.log").read_text() == "what a library prints\n"


def test_arm_that_ends_raises_with_last_output(tmp_path: Path) -> None:
    with pytest.raises(ArmFailed, match=r"^fake ended: no such library$"):
        arm(tmp_path, script=ENDS_AT_ONCE)


def test_race_alternates_arms_and_counts_first_answer_only_if_warm(tmp_path: Path) -> None:
    lines: list[str] = []
    with arms_that_close() as arms:
        arms += [arm(tmp_path, name) for name in ("ours", "a", "b")]
        seconds = race(arms, {"step": ["a", "b"], "scoring": ["b"]}, warm=[], repeats=2, tell=lines.append)
        warm = race(arms[:2], {"step": ["a"]}, warm=["step"], repeats=1, tell=lambda what: None)
    assert seconds == {
        "ours": {"generation": [2, 3], "whole_step": [4, 6], "scoring": [0.5, 0.5]},
        "a": {"generation": [2, 3], "whole_step": [4, 6]},
        "b": {"generation": [2, 3], "whole_step": [4, 6], "scoring": [0.5, 0.5]},
    }
    assert [line.split(" · ")[-1] for line in lines] == ["ours", "a", "b", "ours", "b"] * 3
    assert {name: of_arm["generation"] for name, of_arm in warm.items()} == {"ours": [4], "a": [4]}


def test_race_omits_peer_that_ends_and_raises_if_ours_ends(tmp_path: Path) -> None:
    with arms_that_close() as arms:
        scripts = {"ours": ends_in_step(5), "weak": ends_in_step(3), "b": STEPPING}
        arms += [arm(tmp_path, name, script) for name, script in scripts.items()]
        ours, _, other = arms
        seconds = race(arms, {"step": ["weak", "b"]}, warm=[], repeats=3, tell=lambda what: None)
        assert {name: of_arm["generation"] for name, of_arm in seconds.items()} == {"ours": [2, 3, 4], "b": [2, 3, 4]}
        with pytest.raises(ArmFailed, match=r"^ours ended"):
            race([ours, other], {"step": ["b"]}, warm=["step"], repeats=1, tell=lambda what: None)


def test_peer_python_reuses_environment_and_removes_stamp_on_failure(tmp_path: Path) -> None:
    write_json(tmp_path / STAMP, list(REQUIREMENTS))
    assert peer_python(tmp_path) == tmp_path / "bin" / "python"
    assert [path.name for path in tmp_path.iterdir()] == [STAMP], "nothing was made"
    write_json(tmp_path / STAMP, ["older==1.0"])
    (tmp_path / "bin").write_text("a file where a folder has to be")
    with pytest.raises(NoEnvironment, match=r"^could not make an environment: exit status \d+$"):
        peer_python(tmp_path)
    assert not (tmp_path / STAMP).exists()


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
