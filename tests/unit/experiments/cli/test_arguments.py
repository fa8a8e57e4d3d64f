from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from experiments.cli.arguments import KeyValueParser
from experiments.compare import main as compare
from experiments.report import main as report
from experiments.study import main as study
from experiments.study import options

Main = Callable[[Sequence[str]], int]
NOT_OF_COMPARE = "no such key; did you mean 'metric' of baseline, by, curve, metric, sets?"


@pytest.mark.parametrize(
    ("command", "typed", "said"),
    [
        (compare, ["llama_critic", "metirc=x"], f"metirc=x: {NOT_OF_COMPARE}"),
        (compare, ["llama_critic", "--metirc=x"], f"metirc=x: {NOT_OF_COMPARE}"),
        (compare, ["llama_critic", "--metirc", "x"], f"metirc=x: {NOT_OF_COMPARE}"),
        (compare, ["metirc=x", "llama_critic"], f"metirc=x: {NOT_OF_COMPARE}"),
        (compare, ["a", "reward.q=1"], "reward.q=1: no such key; there are baseline, by, curve, metric, sets"),
        (compare, ["a", "-m", "x"], "-m: no such key; there are baseline, by, curve, metric, sets"),
        (compare, ["a", "--metric"], "metric: give a value, metric=…"),
        (compare, ["a", "met=x"], f"met=x: {NOT_OF_COMPARE}"),
        (
            report,
            ["llama_critic", "ouput=a.html"],
            "ouput=a.html: no such key; did you mean 'output' of baseline, by, curve, metric, output, sets?",
        ),
        (
            study,
            ["s", "paralel=2"],
            "paralel=2: no such key; did you mean 'parallel' of launcher, only, parallel, progress, seeds?",
        ),
        (study, ["s", "parallel=two"], "parallel=two: it takes a whole number"),
        (study, ["s", "--parallel", "1.5"], "parallel=1.5: it takes a whole number"),
        (study, ["s", "seeds="], "seeds=: it takes a whole number"),
        (study, ["s", "t"], "unrecognized arguments: t; python -m experiments.study --help says more"),
        (study, [], "the following arguments are required: name; python -m experiments.study --help says more"),
    ],
)
def test_a_mistake_is_answered_in_a_sentence(
    command: Main, typed: Sequence[str], said: str, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit) as stop:
        command(typed)
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"{said}\n"


@pytest.mark.parametrize(
    "typed",
    [
        ["s", "parallel=2", "only=a,b"],
        ["--parallel", "2", "s", "--only", "a,b"],
        ["--parallel=2", "--only=a,b", "s"],
    ],
)
def test_a_word_may_be_a_flag_or_an_override(typed: Sequence[str]) -> None:
    chosen = options(typed)
    assert (chosen.name, chosen.parallel, chosen.only, chosen.seeds) == ("s", 2, "a,b", None)


def test_a_value_may_hold_what_a_word_may_not() -> None:
    parser = KeyValueParser("m", "First line.\nNot told.")
    parser.add_argument("--by")
    parser.add_argument("--seeds", type=int)
    assert vars(parser.read(["by=[a=1,--b]", "seeds=-1"])) == {"by": "[a=1,--b]", "seeds": -1}


def test_help_is_still_given(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        study(["--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    assert "--parallel" in said
    assert said.startswith("usage: python -m experiments.study")
