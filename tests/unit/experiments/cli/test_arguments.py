from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from experiments.cli.arguments import KeyValueParser
from experiments.compare import main as compare
from experiments.report import main as report
from experiments.study import main as study

Main = Callable[[Sequence[str]], int]


@pytest.mark.parametrize(
    ("command", "given", "named"),
    [
        (compare, ["llama_critic", "metirc=x"], ["metirc=x", "'metric'"]),
        (compare, ["llama_critic", "--metirc", "x"], ["metirc", "'metric'"]),
        (compare, ["a", "reward.q=1"], ["reward.q=1", "baseline, by, curve, metric, sets"]),
        (compare, ["a", "-m", "x"], ["-m", "baseline, by, curve, metric, sets"]),
        (compare, ["a", "met=x"], ["met=x", "'metric'"]),
        (report, ["llama_critic", "ouput=a.html"], ["ouput=a.html", "'output'"]),
        (study, ["s", "parallel=two"], ["--parallel", "'two'"]),
        (study, ["s", "--seeds"], ["--seeds"]),
        (study, ["s", "t"], ["t;", "study --help"]),
        (study, [], ["name", "study --help"]),
    ],
)
def test_invalid_argument_prints_one_sentence(
    command: Main, given: Sequence[str], named: Sequence[str], capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit) as stop:
        command(given)
    assert stop.value.code == 2
    sentence = capsys.readouterr().err
    assert sentence.count("\n") == 1
    assert all(name in sentence for name in named), sentence


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
