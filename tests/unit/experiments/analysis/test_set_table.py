"""Columns and lines of a table of arms × sets, and which published row an arm reproduces.

Number formats and file forms are tested in tests/golden/test_comparisons.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hydra import compose
from omegaconf import OmegaConf

from contrastive_reasoning.published import published_names, published_table
from experiments.analysis.evaluation_sets import columns_of, default_metric, published_arm, published_beside
from experiments.analysis.runs import Refused, arms_by
from experiments.analysis.set_table import SetTable, set_table
from experiments.mlflow_sync import TrackedRun
from experiments.mlflow_sync.describe import parameters
from experiments.schema import composing
from experiments.table import escaped_latex
from tests.unit.experiments.comparison_kit import GREEDY, SAMPLED, finished

QUANTITY = GREEDY.removeprefix("test/")
MODEL = "Qwen/Qwen2.5-3B-Instruct"
TRACK = {"suite.quantity": QUANTITY, "suite.published": "clipo_table1"}


def test_columns_of_puts_main_first_and_matches_whole_metric_names() -> None:
    no_sets = (f"{GREEDY}_low", f"start/x/{QUANTITY}", "test/longproc/accuracy", f"test/larger/deep/{QUANTITY}")
    sets = (f"test/larger/{QUANTITY}", GREEDY, f"test/apart/{QUANTITY}")
    run = finished("a", seed=0, metrics=dict.fromkeys((*no_sets, *sets), 0.5))
    assert [column.name for column in columns_of([run], GREEDY, None, None)] == ["main", "apart", "larger"]
    assert [column.name for column in columns_of([run], GREEDY, ["larger", "main"], None)] == ["larger", "main"]
    with pytest.raises(Refused, match=r"'large'.*'larger'"):
        columns_of([run], GREEDY, ["large"], None)


def test_columns_of_follows_order_of_paper_with_averages_last() -> None:
    metrics = {f"test/{name}/{QUANTITY}": 0.5 for name in ("own", "gsm_p1", "gsm8k")} | {"test/average/m_avg": 0.5}
    run = finished("a", seed=0, metrics={**metrics, "test/gsm8k/verifier/accuracy_sampled": 0.5}, params=TRACK)
    published = published_beside([run], GREEDY)
    assert [column.heading for column in columns_of([run], GREEDY, None, published)] == ["GSM8K", "P1", "own", "M-Avg."]
    sampled = columns_of([run], SAMPLED, None, None)
    assert [column.name for column in sampled] == ["gsm8k"], "the average is of another quantity"


@pytest.mark.parametrize(
    ("tables", "default", "published"),
    [
        ([TRACK], GREEDY, "clipo_table1"),
        ([{**TRACK, "suite.quantity": SAMPLED.removeprefix("test/")}], SAMPLED, None),
        ([TRACK, {**TRACK, "suite.published": "clipo_table2"}], SAMPLED, None),
        ([{"suite.published": "critics"}], GREEDY, "critics"),
        ([{"suite.published": "of_tomorrow"}], SAMPLED, None),
        ([{"suite.published": "null"}], SAMPLED, None),
    ],
)
def test_published_table_of_suite_selects_default_metric_and_figures(
    tables: list[dict[str, str]], default: str, published: str | None
) -> None:
    both = {GREEDY: 0.5, SAMPLED: 0.4}
    runs = [finished("a", seed=seed, metrics=both, params=params) for seed, params in enumerate(tables)]
    assert default_metric(runs) == default
    assert published_beside(runs, GREEDY) == (None if published is None else published_table(published))
    assert default_metric([replace(run, metrics={GREEDY: 0.4}) for run in runs]) == GREEDY
    assert default_metric([replace(run, metrics={SAMPLED: 0.4}) for run in runs]) == SAMPLED


@pytest.mark.parametrize(
    ("tags", "settings", "method"),
    [
        ({"reward": "clipo"}, {"reward.temperature": "0.05", "rollout.group_size": "16"}, "GRPO+CLIPO"),
        ({"reward": "clipo"}, {"reward.temperature": "0.020", "reward.weight": "0.2"}, "GRPO+CLIPO, τ 0.02"),
        ({"reward": "clipo"}, {"reward.temperature": "0.3"}, None),
        ({"reward": "clipo"}, {"rollout.group_size": "8"}, None),
        ({"reward": "clipo_softnn"}, {"reward.weight": "1.0"}, "GRPO+CLIPO, SoftNN"),
        ({"reward": "clipo"}, {"reward.trainable": "false"}, "GRPO+CLIPO, fixed head"),
        ({"reward": "clipo"}, {"reward.temperature": "${tau}"}, None),
        ({"advantage": "leave_one_out"}, {}, None),
        ({"task": "math"}, {}, None),
        ({}, {"policy.pretrained": "Qwen/Qwen2.5-0.5B"}, None),
        ({}, {"policy.pretrained": "/models/Qwen2.5-3B-Instruct/"}, "GRPO"),
    ],
)
def test_published_arm_matches_settings_of_the_arm(
    tags: dict[str, str], settings: dict[str, str], method: str | None
) -> None:
    params = {**TRACK, "policy.pretrained": MODEL, **settings}
    (arm,) = arms_by([finished("arm", seed=s, params=params, **tags) for s in (0, 1)], ["experiment"])
    row = published_arm(arm, published_table("clipo_table1"))
    assert (row and row.method) == method


@pytest.mark.parametrize(
    ("experiment", "expected"),
    [
        ("qwen_baseline", ("GRPO", 80)),
        ("qwen_critic_published", ("GRPO+critic", 70)),
        ("qwen_oracle_level reward=perfect_move", ("GRPO+oracle, perfect moves", 90)),
        ("llama_critic_published", ("GRPO+critic", 63)),
        ("llama_oracle_level", None),
        ("llama_oracle", None),
        ("llama_critic", None),
        ("qwen_critic_calibrated", None),
    ],
)
def test_experiments_of_critics_paper_match_its_published_rows(
    experiment: str, expected: tuple[str, float] | None
) -> None:
    with composing():
        config = compose("config", [*f"experiment={experiment}".split(), "scale=paper"], return_hydra_config=True)
    tags = {group: str(option) for group, option in config.hydra.runtime.choices.items() if option and "/" not in group}
    policy = parameters({"policy": OmegaConf.to_container(config.policy, resolve=True)})
    run = replace(finished("x", seed=0, metrics={}, params=policy), tags={**tags, "experiment": "x", "seed": "0"})
    row = published_arm(arms_by([run], ["experiment"])[0], published_table(str(config.suite.published)))
    assert (row and (row.method, row.figures["training_problems"])) == expected


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
    """Label → the other cells of its row."""
    return {label: cells for label, *cells in table.all_sets().rows}


def two_arms(model: str = MODEL) -> list[TrackedRun]:
    plain = [track_run("plain", s, gsm8k=0.80 + 0.02 * s, p1=0.6, reward="verifier", model=model) for s in (0, 1)]
    return plain + [track_run("clipo", s, gsm8k=0.84 + 0.02 * s, p1=0.7, reward="clipo", model=model) for s in (0, 1)]


def test_published_deltas_require_the_baseline_of_the_paper() -> None:
    rewards = {"clipo": "clipo", "fixed": "clipo", "plain": "verifier"}
    runs = [track_run(name, 0, gsm8k=0.8, p1=0.7, reward=reward) for name, reward in rewards.items()]
    runs[1] = replace(runs[1], params={**runs[1].params, "reward.trainable": "false"})
    table = table_of(runs)
    assert "published: Δ to GRPO+CLIPO" in rows_of(table)
    assert [dict(table.published_deltas(label)).get("gsm8k") for label in ("clipo", "fixed")] == [0.23, None]
    assert table_of(runs, baseline="clipo").published_deltas("fixed")["gsm8k"] == 0.61
    other = table_of(two_arms(model="Qwen/Qwen2.5-0.5B")).all_sets()
    assert "published" not in f"{other.rows} {other.caption}".lower()


def test_arms_with_equal_start_share_one_line_before_training() -> None:
    """Each seed's evaluation draws its own samples. So means over different seeds differ for the same policy."""
    start = GREEDY.replace("test", "start")
    alike = [finished("plain", seed=s, metrics={GREEDY: 0.5, start: 0.1 * s}) for s in (1, 2, 3)]
    for value, expected in (
        (0.1, ["before training", "plain", "other", "Δ to plain"]),
        (0.7, ["plain", "before training", "other", "before training", "Δ to plain"]),
    ):
        table = table_of([*alike, finished("other", seed=1, metrics={GREEDY: 0.5, start: value})])
        assert [row[0] for row in table.all_sets().rows] == expected


@pytest.mark.parametrize("name", published_names())
def test_latex_escapes_every_symbol_of_published_methods(name: str) -> None:
    assert [row.method for row in published_table(name).arms if not escaped_latex(row.method).isascii()] == []


def gains(**finals: Sequence[float]) -> SetTable:
    """Arms by their greedy success for seeds 0, 1, …, each compared with ``plain``."""
    return table_of(
        [
            finished(name, seed=seed, metrics={GREEDY: value}, reward=name)
            for name, values in finals.items()
            for seed, value in enumerate(values)
        ]
    )


PLAIN = [0.2, 0.3, 0.25]


@pytest.mark.parametrize(
    ("finals", "sentence"),
    [
        ({"better": [0.3, 0.4, 0.36]}, "over plain: better +10.3 ± 1.4 (significant)."),
        ({"worse": [0.1, 0.2, 0.16]}, "over plain: worse -9.7 ± 1.4 (significant)."),
        ({"alike": [0.3, 0.2, 0.25]}, "over plain: alike +0.0 ± 24.8 (not significant)."),
        ({"once": [0.5]}, "over plain: once +30.0 (one seed)."),
        (
            {name: [0.2, 0.3, 0.26] for name in "abc"} | {"d": [0.3, 0.4, 0.36]},
            "over plain: of 4 arms 1 differs significantly; the largest gain is that of d, +10.3 ± 1.4 (significant).",
        ),
    ],
)
def test_verdict_lists_every_gain_or_only_the_largest(finals: Mapping[str, Sequence[float]], sentence: str) -> None:
    assert gains(plain=PLAIN, **finals).verdict() == f"In percentage points of {GREEDY}, {sentence}"


def test_verdict_without_baseline_compares_nothing() -> None:
    assert gains(one=PLAIN, other=PLAIN).verdict() == "No arm has a baseline here, so nothing is compared."
