"""Published tables: the paper's own averages and differences confirm the place of each figure."""

from __future__ import annotations

from statistics import mean

import pytest

from contrastive_reasoning.published import published_names, published_table
from experiments.config.folders import summaries

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


@pytest.mark.parametrize("name", AVERAGES)
def test_averages_equal_means_of_their_columns(name: str) -> None:
    table = published_table(name)
    for method, row in [*table.rows.items(), *((arm.method, arm.figures) for arm in table.arms)]:
        for average, sets in AVERAGES[name].items():
            assert row[average] == pytest.approx(mean(row[one] for one in sets), abs=0.011), (method, average)
        every = [one for sets in AVERAGES[name].values() for one in sets]
        assert row["avg"] == pytest.approx(mean(row[one] for one in every), abs=0.011), method


@pytest.mark.parametrize("name", AVERAGES)
def test_deltas_of_each_arm_equal_difference_to_its_plain_arm(name: str) -> None:
    table = published_table(name)
    assert list(table.deltas) == [method for method in table.rows if method.endswith("+CLIPO")]
    arms = {(arm.method, arm.model): arm.deltas for arm in table.arms}
    assert all(arms[method, table.model] == deltas for method, deltas in table.deltas.items())
    for arm in (arm for arm in table.arms if arm.deltas):
        (plain,) = (other for other in table.arms if (other.method, other.model) == (arm.plain, arm.model))
        for column, delta in arm.deltas.items():
            assert delta == pytest.approx(arm.figures[column] - plain.figures[column], abs=0.011), (arm.method, column)


@pytest.mark.parametrize("name", published_names())
def test_arms_have_distinct_settings_and_name_existing_options(name: str) -> None:
    table = published_table(name)
    settings = {(arm.model, *sorted(arm.settings.items())): arm for arm in table.arms if arm.repeats is None}
    again = [arm for arm in table.arms if arm.repeats is not None]
    assert len(settings) + len(again) == len(table.arms)
    assert all(settings[arm.model, *sorted(arm.settings.items())].method == arm.repeats for arm in again)
    for arm in (arm for arm in table.arms if arm.method != table.base):
        assert {"task", "reward", "objective", "advantage"} <= arm.settings.keys()
        for path, option in arm.settings.items():
            assert "." in path or option in summaries(path), (path, option)


def test_clipo_tables_have_arms_of_further_tables() -> None:
    """Tables 11, 13, 15, 16 are of the first track, Tables 12, 14, 17, 18, 19 of the second."""
    first, second = (published_table(name) for name in AVERAGES)
    assert len(first.arms) == 8 + 1 + 2 + 3 + 4
    assert len(second.arms) == 8 + 1 + 2 + 4 + 4 + 4
    figures = {(arm.model, arm.method): arm.figures for table in (first, second) for arm in table.arms}
    assert figures[first.model, "DAPO+CLIPO, SoftNN"]["avg"] == 63.12
    assert figures[first.model, "GRPO+CLIPO, τ 0.05"]["avg"] == 62.87
    assert figures[second.model, "GRPO+CLIPO, τ 0.02, groups of 32"]["c_avg"] == 26.54
    assert figures["meta-llama/Llama-3.1-8B-Instruct", "GRPO+CLIPO"]["math_perturb_simple"] == 42.87


def test_critics_table_has_figures_by_model_and_reward() -> None:
    """The oracle has two definitions: the target stays reachable, or the move is perfect. Llama has neither."""
    table = published_table("critics")
    assert table.base is None
    (column,) = table.columns
    assert column == "training_problems"
    figures = {(arm.model.partition("/")[0], arm.settings["reward"]): arm.figures[column] for arm in table.arms}
    assert figures == {
        ("Qwen", "verifier"): 80,
        ("Qwen", "critic"): 70,
        ("Qwen", "oracle"): 90,
        ("Qwen", "perfect_move"): 90,
        ("meta-llama", "verifier"): 75,
        ("meta-llama", "critic"): 63,
    }


def test_countdown_base_table_has_longproc_figures_by_model() -> None:
    table = published_table("countdown_base")
    models = {"Qwen/Qwen2.5-7B-Instruct": 32, "models/Llama-3.1-8B-Instruct": 8, "Qwen/Qwen2.5-7B": 32, None: 32}
    assert {model: table.of(model).rows for model in models} == {
        model: {"Base Model": {"longproc_500": figure}} for model, figure in models.items()
    }
    assert table.base == "Base Model"


def test_unknown_table_raises_with_available_names() -> None:
    with pytest.raises(ValueError, match=r"'clipo'.*clipo_table1, clipo_table2"):
        published_table("clipo")
