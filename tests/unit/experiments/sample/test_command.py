"""Whole samples, by the policies that come with the package."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from contrastive_reasoning.critics import NumericV2
from contrastive_reasoning.critics.checkpoint import save_critic
from contrastive_reasoning.losses import dot
from contrastive_reasoning.tasks.countdown import reachable
from experiments.config.folders import VARIABLE
from experiments.sample.command import main

SIZES = {"dimension": 4, "digit_dimension": 4, "hidden_dimension": 8, "hidden_layers": 1}
SIMILARITY = {"_target_": "contrastive_reasoning.losses.dot", "_partial_": True}
PROMPT = "prompt=numbers=3,5,8 target=23"


@pytest.fixture
def critic(tmp_path: Path) -> Path:
    made_of = {"_target_": "contrastive_reasoning.critics.NumericV2", **SIZES, "seed": 0, "similarity": SIMILARITY}
    save_critic(NumericV2(**SIZES, seed=0, similarity=partial(dot)), tmp_path, made_of)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_completions_stand_with_steps_oracle_critic_and_verdict(
    capsys: pytest.CaptureFixture[str], critic: Path
) -> None:
    page = said(capsys, PROMPT, "n=4", f"critic={critic}")
    assert page.startswith("Problem countdown:3,5,8=23 · the target is within reach · critic 0.")
    assert re.findall(r"Completion (\d) of 4", page) == ["1", "2", "3", "4"]
    assert len(re.findall("^Verdict: ", page, re.M)) == 4
    legal = re.findall(r"^ +\d+ +\S+ +(\d[\d, ]*\d?)  +legal +(within|out of) reach +0\.\d\d", page, re.M)
    assert len(legal) >= 4
    for state, within in legal:
        assert reachable(tuple(map(int, state.split(","))), 23) == (within == "within")


def test_the_same_words_write_the_same_and_another_temperature_something_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    warm = said(capsys, PROMPT, "n=3")
    assert said(capsys, PROMPT, "n=3") == warm
    greedy = said(capsys, PROMPT, "n=3", "temperature=0.0")
    completions = re.findall(r"Completion . of 3 .*\n(.*)", greedy)
    assert len(set(completions)) == 1
    assert greedy != warm


def test_another_model_and_length_are_used(capsys: pytest.CaptureFixture[str]) -> None:
    ours = said(capsys, PROMPT, "temperature=0.0")
    assert said(capsys, PROMPT, "temperature=0.0", "model=embedded:qwen_countdown", "seed=0") != ours
    assert "Completion 1 of 1 3 tokens, cut off at its longest" in said(capsys, PROMPT, "max_tokens=3")


def test_a_folder_of_ones_own_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)  # and what the command sets is taken back afterwards
    mine = tmp_path / "rollout" / "brief.yaml"
    mine.parent.mkdir()
    mine.write_text("# Mine.\ndefaults:\n  - engine\n  - _self_\nsampling:\n  max_tokens: 3\n")
    page = said(capsys, "--config-dir", str(tmp_path), "rollout=brief", PROMPT, "temperature=0.0")
    assert "Completion 1 of 1 3 tokens, cut off at its longest" in page


def test_a_text_is_judged_where_its_answer_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    text = "prompt=Ben has 6 toys. Mia gives Ben 2. How many has Ben?"
    assert "Verdict: none, the answer is not known" in said(capsys, text, "task=arithmetic")
    judged = said(capsys, text, "answer=8", "task=arithmetic", "temperature=0.0")
    assert re.search(r"^Verdict: (ok|wrong|unparsed)", judged, re.M)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["sed=1"], "sed: no such key; did you mean 'seed'?"),
        (["task=aritmetic"], "task=aritmetic: no such task; did you mean 'arithmetic' of arithmetic, countdown, "),
        (["temperature=warm"], "rollout.sampling.temperature=warm: it takes a number, got a word"),
        (["temperature=nan"], "rollout.sampling: temperature must be at least 0 and finite, got nan"),
        (["seed=1,2"], "seed=1,2: completions are of one configuration, give one value"),
        (
            ["model=embedded:llama_countdwn"],
            "policy.pretrained=embedded:llama_countdwn: no such policy comes with the package; "
            "did you mean 'embedded:llama_countdown'?",
        ),
        (["model=./nowhere"], "policy: policy.pretrained=./nowhere: no model there (config.json is missing)"),
        (["--config-dir=no/where"], "--config-dir no/where: no such folder"),
        (["critic=nowhere"], "critic=nowhere: no critic there (critic.json is missing)"),
        ([f"prompt={'1 ' * 999}"], "problem given: its prompt of "),
        ([PROMPT, "task=arithmetic"], "prompt=numbers=3,5,8 target=23: such problems are Countdown's, and the task is"),
    ],
    ids=lambda value: value[0][:20] if isinstance(value, list) else "",
)
def test_a_mistake_gets_its_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith(sentence)  # behind the bar of loading weights, where one is shown


def test_a_critic_that_cannot_read_the_task_says_so(capsys: pytest.CaptureFixture[str], critic: Path) -> None:
    assert main(["task=arithmetic", "max_tokens=30", "temperature=0.0", f"critic={critic}"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("numeric critics read Countdown problems; ")


def test_mistakes_are_answered_before_anything_heavy_is_imported() -> None:
    script = (
        "import sys; from experiments.sample.command import main\n"
        "codes = [main([word]) for word in ('sed=1', 'prompt=numbers=x target=1', 'model=embedded:x', 'seed=1,2')]\n"
        "print(codes, [m for m in ('torch', 'transformers', 'rich', 'lightning') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[2, 2, 2, 2] []\n"
    assert done.stderr.count("\n") == 4
