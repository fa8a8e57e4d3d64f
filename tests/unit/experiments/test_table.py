from __future__ import annotations

import math

import pytest

from experiments.table import Table, as_csv, with_sign

ROWS = [["my_arm [red]", "+0.1 ± 0.2"], ["a|<b>", ""]]
TABLE = Table(head=["arm", "Δ"], rows=ROWS, title="a title", caption="5%", under=(1,))


def test_as_markdown() -> None:
    assert (
        TABLE.as_markdown() == "| arm | Δ |\n| --- | ---: |\n| my_arm [red] | +0.1 ± 0.2 |\n| a\\|&lt;b> |  |\n\n5%\n"
    )


def test_as_latex() -> None:
    head, *rows = TABLE.as_latex().splitlines()[3:8]
    assert (TABLE.as_latex().splitlines()[0], head) == ("% a title 5%", r"arm & $\Delta$ \\")
    assert rows[1:3] == [r"my\_arm [red] & +0.1 $\pm$ 0.2 \\", r"\quad a|<b> &  \\"]


def test_show_prints_table_on_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    TABLE.show()
    shown = capsys.readouterr().out
    assert "│ my_arm [red] │ +0.1 ± 0.2 │" in shown
    assert "│   a|<b>      │            │" in shown


def test_as_csv_keeps_all_digits() -> None:
    records = [{"name": "a,b", "value": 0.1 + 0.2}, {"name": "c", "value": None}]
    assert as_csv(records) == 'name,value\n"a,b",0.30000000000000004\nc,\n'


@pytest.mark.parametrize(
    ("value", "form", "expected"),
    [
        (0.031, ".3f", "+0.031"),
        (-0.04, ".1f", "+0.0"),
        (-0.0, ".1f", "+0.0"),
        (-0.05001, ".1f", "-0.1"),
        (-math.inf, ".1f", "-inf"),
        (math.nan, ".1f", "nan"),
        (math.nan, "", "nan"),
    ],
)
def test_with_sign_shows_plus_for_zero_and_no_sign_for_nan(value: float, form: str, expected: str) -> None:
    assert with_sign(value, form) == expected
