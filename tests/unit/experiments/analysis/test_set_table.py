"""The lines of a table of arms × sets. Its digits and forms: tests/golden/test_comparisons.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from contrastive_reasoning.published import published_names, published_table
from experiments.analysis.evaluation_sets import columns_of, published_beside
from experiments.analysis.runs import arms_by
from experiments.analysis.set_table import SetTable, set_table
from experiments.mlflow_sync import TrackedRun
from experiments.table import escaped_latex
from tests.unit.experiments.comparison_kit import GREEDY, finished

START = GREEDY.replace("test", "start")
MODEL = "Qwen/Qwen2.5-3B-Instruct"
TRACK = {"suite.quantity": "verifier/accuracy", "suite.published": "clipo_table1"}


def track_run(name: str, seed: int, *, gsm8k: float, p1: float | None, reward: str, model: str = MODEL) -> TrackedRun:
    metrics = {"test/gsm8k/verifier/accuracy": gsm8k, "start/gsm8k/verifier/accuracy": 0.5}
    metrics |= {} if p1 is None else {"test/gsm_p1/verifier/accuracy": p1}
    return finished(name, seed=seed, metrics=metrics, params={**TRACK, "policy.pretrained": model}, reward=reward)


def table_of(runs: Sequence[TrackedRun], *, baseline: str | None = "plain", metric: str = GREEDY) -> SetTable:
    arms, published = arms_by(runs, ["experiment"]), published_beside(runs, metric)
    columns = columns_of(runs, metric, None, published)
    against = {arm.label: other for arm in arms for other in arms if other.label == baseline != arm.label}
    return set_table(arms, columns, metric=metric, against=against, published=published)


def rows_of(table: SetTable) -> Mapping[str, Sequence[str]]:
    """Label → the cells beside it."""
    return {label: cells for label, *cells in table.all_sets().rows}


def two_arms(model: str = MODEL) -> list[TrackedRun]:
    plain = [track_run("plain", s, gsm8k=0.80 + 0.02 * s, p1=0.6, reward="verifier", model=model) for s in (0, 1)]
    return plain + [track_run("clipo", s, gsm8k=0.84 + 0.02 * s, p1=0.7, reward="clipo", model=model) for s in (0, 1)]


def test_a_table_with_published_figures_line_by_line() -> None:
    """The interval of two values x and x + 0.02 is 12.706 · 0.01 to both sides."""
    table = table_of(two_arms()).as_table()
    assert table.rows == [
        ["before training", "2", "50.0 ± 0.0", ""],
        ["plain", "2", "81.0 ± 12.7", "60.0 ± 0.0"],
        ["published: GRPO, Qwen2.5-3B-Instruct", "", "87.79", "73.12"],
        ["clipo", "2", "85.0 ± 12.7", "70.0 ± 0.0"],
        ["Δ to plain", "", "+4.0 ± 0.0", "+10.0 ± 0.0"],
        ["published: GRPO+CLIPO, Qwen2.5-3B-Instruct", "", "88.02", "74.60"],
        ["published: Δ to GRPO", "", "+0.23", "+1.48"],
    ]
    assert set(table.under) == {0, 2, 4, 5, 6}
    other = table_of(two_arms(model="Qwen/Qwen2.5-0.5B"))
    assert "published" not in " ".join(rows_of(other)) + other.caption.lower()


def test_a_published_difference_names_what_it_is_to_and_is_a_gain_over_that_alone() -> None:
    rewards = {"clipo": "clipo", "fixed": "clipo_fixed_head", "plain": "verifier"}
    runs = [track_run(name, 0, gsm8k=0.8, p1=0.7, reward=reward) for name, reward in rewards.items()]
    table = table_of(runs)
    assert "published: Δ to GRPO+CLIPO" in rows_of(table)
    assert [dict(table.published_deltas(label)).get("gsm8k") for label in ("clipo", "fixed")] == [0.23, None]
    assert table_of(runs, baseline="clipo").published_deltas("fixed")["gsm8k"] == 0.61
    assert table.caption.endswith("Published: CLIPO, Table 1, Pass@1 in %; CLIPO, Table 11.")


def test_what_an_arm_was_not_tested_on_is_empty_and_fewer_seeds_are_named() -> None:
    runs = [track_run("plain", s, gsm8k=0.8, p1=0.6 if s else None, reward="x") for s in (0, 1)]
    runs += [track_run("other", 0, gsm8k=0.9, p1=None, reward="x")]
    rows = rows_of(table_of(runs, baseline="other"))
    assert rows["plain"] == ["2", "80.0 ± 0.0", "60.0 [1]"]
    assert rows["other"] == ["1", "90.0", ""]
    assert rows["Δ to other"] == ["", "-10.0 [1]", ""], "nothing to compare with there"


def test_arms_that_began_alike_have_one_line_before_training_and_others_their_own() -> None:
    """Each seed's evaluation draws its own samples: means over other seeds differ, the policy does not."""
    alike = [finished("plain", seed=s, metrics={GREEDY: 0.5, START: 0.1 * s}) for s in (1, 2, 3)]
    alike.append(finished("other", seed=1, metrics={GREEDY: 0.5, START: 0.1}))
    labels = [row[0] for row in table_of(alike).all_sets().rows]
    assert labels == ["before training", "plain", "other", "Δ to plain"]
    assert rows_of(table_of(alike))["before training"][:1] == ["3"]
    unlike = [*alike[:3], finished("other", seed=1, metrics={GREEDY: 0.5, START: 0.7})]
    labels = [row[0] for row in table_of(unlike).all_sets().rows]
    assert labels == ["plain", "before training", "other", "before training", "Δ to plain"]


def test_a_metric_that_is_no_share_keeps_its_unit() -> None:
    metrics = {"test/completion/tokens": 123.456, "test/larger/completion/tokens": 5.0}
    table = table_of([finished("plain", seed=0, metrics=metrics)], metric="test/completion/tokens")
    assert table.as_table().rows == [["plain", "1", "123.5", "5"]]
    assert "In %" not in table.caption


@pytest.mark.parametrize("name", published_names())
def test_latex_has_a_command_for_every_sign_of_published_methods(name: str) -> None:
    assert [row.method for row in published_table(name).arms if not escaped_latex(row.method).isascii()] == []
