from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from experiments.cli.arguments import KeyValueParser
from experiments.compare import main as compare
from experiments.report import main as report
from experiments.study import main as study

HELP = "contrastive-reasoning study --help shows all options"
Main = Callable[[Sequence[str]], int]
UNKNOWN = "no such key; did you mean 'metric' of baseline, by, curve, metric, sets?"


@pytest.mark.parametrize(
    ("command", "given", "message"),
    [
        (compare, ["llama_critic", "metirc=x"], f"metirc=x: {UNKNOWN}"),
        (compare, ["llama_critic", "--metirc", "x"], f"metirc: {UNKNOWN}"),
        (compare, ["a", "reward.q=1"], "reward.q=1: no such key; there are baseline, by, curve, metric, sets"),
        (compare, ["a", "-m", "x"], "-m: no such key; there are baseline, by, curve, metric, sets"),
        (compare, ["a", "met=x"], f"met=x: {UNKNOWN}"),
        (
            report,
            ["llama_critic", "ouput=a.html"],
            "ouput=a.html: no such key; did you mean 'output' of baseline, by, curve, metric, output, sets?",
        ),
        (study, ["s", "parallel=two"], f"argument --parallel: invalid int value: 'two'; {HELP}"),
        (study, ["s", "--seeds"], f"argument --seeds: expected one argument; {HELP}"),
        (study, ["s", "t"], f"unrecognized arguments: t; {HELP}"),
        (study, [], f"the following arguments are required: name; {HELP}"),
    ],
)
def test_invalid_argument_prints_one_sentence(
    command: Main, given: Sequence[str], message: str, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit) as stop:
        command(given)
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"{message}\n"


@pytest.mark.parametrize(
    "given",
    [
        ["S=1", "by=[a=1,--b]", "seeds=-1"],
        ["--by", "[a=1,--b]", "S=1", "--seeds=-1"],
    ],
)
def test_parser_reads_options_as_flags_or_overrides(given: Sequence[str]) -> None:
    """A value may contain characters that a key may not."""
    parser = KeyValueParser("m", "First line.\nNot shown.")
    parser.add_argument("name")
    parser.add_argument("--by")
    parser.add_argument("--seeds", type=int)
    assert vars(parser.read(given)) == {"name": "S=1", "by": "[a=1,--b]", "seeds": -1}
