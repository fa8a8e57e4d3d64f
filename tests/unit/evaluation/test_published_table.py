"""Published tables: every figure in its place, as the paper's own averages and differences confirm."""

from __future__ import annotations

from statistics import mean

import pytest

from contrastive_reasoning.evaluation import PublishedTable, published_table

AVERAGES = {
    "clipo_table1": {
        "m_avg": ["gsm8k", "gsm_symbolic", "gsm_p1", "gsm_p2"],
        "g_avg": ["commonsense_qa", "truthfulqa", "theoremqa", "mmlu"],
    },
    "clipo_table2": {
        "m_avg": ["math500", "math_perturb_simple", "math_perturb_hard"],
        "c_avg": ["amc23", "aime24", "aime25"],
    },
}


@pytest.fixture(params=AVERAGES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def table(name: str) -> PublishedTable:
    return published_table(name)


def test_averages_are_those_of_their_columns(name: str, table: PublishedTable) -> None:
    for method, row in table.rows.items():
        for average, sets in AVERAGES[name].items():
            assert row[average] == pytest.approx(mean(row[one] for one in sets), abs=0.011), (method, average)
        every = [one for sets in AVERAGES[name].values() for one in sets]
        assert row["avg"] == pytest.approx(mean(row[one] for one in every), abs=0.011), method


def test_differences_are_those_to_the_plain_method(table: PublishedTable) -> None:
    assert list(table.deltas) == [method for method in table.rows if method.endswith("+CLIPO")]
    for method, deltas in table.deltas.items():
        plain = table.rows[method.removesuffix("+CLIPO")]
        for column, delta in deltas.items():
            assert delta == pytest.approx(table.rows[method][column] - plain[column], abs=0.011), (method, column)


def test_rows_and_headings() -> None:
    first, second = (published_table(name) for name in AVERAGES)
    methods = ["GRPO", "GSPO", "DAPO", "GMPO"]
    for table in (first, second):
        assert list(table.rows) == ["Base Model", *methods, *(f"{method}+CLIPO" for method in methods)]
    assert (first.columns["theoremqa"], first.rows["GRPO+CLIPO"]["gsm_p2"]) == ("thrmQA", 54.16)
    assert (second.columns["math_perturb_hard"], second.rows["DAPO+CLIPO"]["aime25"]) == ("Math_H", 13.33)


def test_an_unknown_table_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="no published table 'clipo'; there are clipo_table1, clipo_table2"):
        published_table("clipo")
