from __future__ import annotations

import pytest

from contrastive_reasoning.published import published_table
from experiments.analysis.comparison import default_metric
from experiments.analysis.evaluation_sets import columns_of, published_beside
from experiments.analysis.wishes import Refused
from tests.unit.experiments.comparison_kit import finished

GREEDY, SAMPLED = "verifier/accuracy", "verifier/accuracy_sampled"


def test_main_comes_first_and_other_sets_by_name() -> None:
    run = finished("a", seed=0, metrics={f"test/{place}{GREEDY}": 0.5 for place in ("larger/", "", "apart/")})
    columns = columns_of([run], f"test/{GREEDY}", None, None)
    assert [(column.name, column.metric) for column in columns] == [
        ("main", f"test/{GREEDY}"),
        ("apart", f"test/apart/{GREEDY}"),
        ("larger", f"test/larger/{GREEDY}"),
    ]


def test_the_end_of_a_longer_name_is_no_set() -> None:
    metrics = {
        f"test/{GREEDY}": 0.5,
        f"test/{GREEDY}_low": 0.4,
        f"start/x/{GREEDY}": 0.1,
        "test/longproc/accuracy": 0.3,
        f"test/larger/deep/{GREEDY}": 0.2,
    }
    run = finished("a", seed=0, metrics=metrics)
    assert [column.name for column in columns_of([run], f"test/{GREEDY}", None, None)] == ["main"]


def test_a_wish_chooses_and_orders() -> None:
    run = finished("a", seed=0, metrics={f"test/{place}{GREEDY}": 0.5 for place in ("larger/", "", "apart/")})
    found = columns_of([run], f"test/{GREEDY}", ["larger", "main"], None)
    assert [column.name for column in found] == ["larger", "main"]
    with pytest.raises(
        Refused, match=r"^No finished run has test/verifier/accuracy of a set 'large'; did you mean lar"
    ):
        columns_of([run], f"test/{GREEDY}", ["large"], None)


def test_sets_stand_as_the_paper_has_them_and_averages_last() -> None:
    metrics = {f"test/{name}/{GREEDY}": 0.5 for name in ("own", "gsm_p1", "gsm8k")} | {"test/average/m_avg": 0.5}
    run = finished("a", seed=0, metrics=metrics, params={"suite.quantity": GREEDY, "suite.published": "clipo_table1"})
    published = published_beside([run], f"test/{GREEDY}")
    assert published == published_table("clipo_table1")
    headings = [column.heading for column in columns_of([run], f"test/{GREEDY}", None, published)]
    assert headings == ["GSM8K", "P1", "own", "M-Avg."]


def test_an_average_of_another_quantity_is_no_column() -> None:
    metrics = {f"test/gsm8k/{name}": 0.5 for name in (GREEDY, SAMPLED)} | {"test/average/m_avg": 0.5}
    run = finished("a", seed=0, metrics=metrics, params={"suite.quantity": GREEDY})
    assert [column.name for column in columns_of([run], f"test/{SAMPLED}", None, None)] == ["gsm8k"]


def test_runs_of_two_suites_have_no_published_table_beside_them() -> None:
    tables = [{"suite.published": f"clipo_table{s + 1}", "suite.quantity": GREEDY} for s in (0, 1)]
    runs = [finished("a", seed=s, metrics={}, params=tables[s]) for s in (0, 1)]
    assert published_beside(runs, f"test/{GREEDY}") is None
    assert published_beside(runs[:1], f"test/{GREEDY}") is not None


@pytest.mark.parametrize("metric", [f"test/{SAMPLED}", "test/completion/tokens"])
def test_a_published_table_stands_beside_its_own_quantity_only(metric: str) -> None:
    params = {"suite.published": "clipo_table1", "suite.quantity": GREEDY}
    assert published_beside([finished("a", seed=0, metrics={}, params=params)], metric) is None


def test_of_a_suite_that_names_no_quantity_it_is_the_greedy_success() -> None:
    run = finished("a", seed=0, metrics={f"test/{GREEDY}": 0.5}, params={"suite.published": "critics"})
    published = published_beside([run], f"test/{GREEDY}")
    assert published == published_table("critics")
    assert [column.heading for column in columns_of([run], f"test/{GREEDY}", None, published)] == ["Countdown"]
    assert published_beside([run], f"test/{SAMPLED}") is None


def test_a_suites_table_says_what_is_compared() -> None:
    both = {f"test/{GREEDY}": 0.5, f"test/{SAMPLED}": 0.4}
    tables = ({"suite.published": "critics"}, {"suite.published": "null"}, {"suite.published": "of_tomorrow"})
    named, none, unknown = (finished("a", seed=0, metrics=both, params=params) for params in tables)
    of_samples = {"suite.published": "clipo_table2", "suite.quantity": SAMPLED}
    assert default_metric([named]) == f"test/{GREEDY}"
    assert default_metric([finished("a", seed=0, metrics=both, params=of_samples)]) == f"test/{SAMPLED}"
    assert {default_metric(runs) for runs in ([none], [unknown], [named, none])} == {f"test/{SAMPLED}"}
    only_sampled = finished("a", seed=0, metrics={f"test/{SAMPLED}": 0.4}, params=tables[0])
    assert default_metric([only_sampled]) == f"test/{SAMPLED}"


def test_a_table_that_this_version_does_not_know_is_left_out() -> None:
    params = {"suite.published": "of_tomorrow", "suite.quantity": GREEDY}
    assert published_beside([finished("a", seed=0, metrics={}, params=params)], f"test/{GREEDY}") is None
