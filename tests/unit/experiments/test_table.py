from __future__ import annotations

import pytest

from experiments.table import Table, as_csv

TABLE = Table(
    head=["arm", "Δ"],
    rows=[["my_arm [red]", "+0.1 ± 0.2"], ["a|<b>", ""]],
    title="a title",
    caption="5%",
    under=(1,),
)


def test_as_markdown() -> None:
    assert TABLE.as_markdown().splitlines() == [
        "| arm | Δ |",
        "| --- | ---: |",
        "| my_arm [red] | +0.1 ± 0.2 |",
        r"| a\|&lt;b> |  |",
        "",
        "5%",
    ]


def test_as_latex() -> None:
    assert TABLE.as_latex().splitlines() == [
        "% a title 5%",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"arm & $\Delta$ \\",
        r"\midrule",
        r"my\_arm [red] & +0.1 $\pm$ 0.2 \\",
        r"\quad a|<b> &  \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    TABLE.show()
    shown = capsys.readouterr().out
    for line in ("│ my_arm [red] │ +0.1 ± 0.2 │", "│   a|<b>      │            │"):
        assert line in shown


def test_records_keep_their_digits() -> None:
    assert as_csv(["name", "value"], [["a,b", 0.1 + 0.2], ["c", None]]).splitlines() == [
        "name,value",
        '"a,b",0.30000000000000004',
        "c,",
    ]
