"""The columns of a comparison, the metric without a request, and which published row an arm repeats."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from contrastive_reasoning.published import PublishedArm, published_table
from experiments.analysis.evaluation_sets import columns_of, default_metric, published_arm, published_beside
from experiments.analysis.runs import Refused, arms_by
from experiments.mlflow_sync.describe import flatten
from experiments.schema import register
from tests.unit.experiments.comparison_kit import GREEDY, SAMPLED, finished

register()
QUANTITY = GREEDY.removeprefix("test/")
TRACK = {"suite.quantity": QUANTITY, "suite.published": "clipo_table1"}


def test_main_comes_first_other_sets_by_name_and_the_end_of_a_longer_name_is_none() -> None:
    no_sets = (f"{GREEDY}_low", f"start/x/{QUANTITY}", "test/longproc/accuracy", f"test/larger/deep/{QUANTITY}")
    sets = (f"test/larger/{QUANTITY}", GREEDY, f"test/apart/{QUANTITY}")
    run = finished("a", seed=0, metrics=dict.fromkeys((*no_sets, *sets), 0.5))
    assert [(column.name, column.metric) for column in columns_of([run], GREEDY, None, None)] == [
        ("main", GREEDY),
        ("apart", f"test/apart/{QUANTITY}"),
        ("larger", f"test/larger/{QUANTITY}"),
    ]
    assert [column.name for column in columns_of([run], GREEDY, ["larger", "main"], None)] == ["larger", "main"]
    with pytest.raises(Refused, match=f"^No finished run has {GREEDY} of a set 'large'; did you mean larger"):
        columns_of([run], GREEDY, ["large"], None)


def test_sets_stand_as_the_paper_has_them_and_averages_last() -> None:
    metrics = {f"test/{name}/{QUANTITY}": 0.5 for name in ("own", "gsm_p1", "gsm8k")} | {"test/average/m_avg": 0.5}
    run = finished("a", seed=0, metrics={**metrics, "test/gsm8k/verifier/accuracy_sampled": 0.5}, params=TRACK)
    published = published_beside([run], GREEDY)
    assert published == published_table("clipo_table1")
    assert [column.heading for column in columns_of([run], GREEDY, None, published)] == ["GSM8K", "P1", "own", "M-Avg."]
    sampled = columns_of([run], SAMPLED, None, None)
    assert [column.name for column in sampled] == ["gsm8k"], "the average is of another quantity"


@pytest.mark.parametrize(
    ("tables", "metric", "published"),
    [
        ([TRACK], GREEDY, "clipo_table1"),
        ([TRACK], SAMPLED, None),
        ([TRACK], "test/completion/tokens", None),
        ([TRACK, {**TRACK, "suite.published": "clipo_table2"}], GREEDY, None),
        ([{"suite.published": "critics"}], GREEDY, "critics"),
        ([{"suite.published": "of_tomorrow"}], GREEDY, None),
        ([{"suite.published": "null"}], GREEDY, None),
    ],
)
def test_a_published_table_stands_beside_runs_of_its_suite_and_quantity(
    tables: list[dict[str, str]], metric: str, published: str | None
) -> None:
    runs = [finished("a", seed=seed, metrics={}, params=params) for seed, params in enumerate(tables)]
    assert published_beside(runs, metric) == (None if published is None else published_table(published))


def test_a_suites_table_decides_what_is_compared() -> None:
    both = {GREEDY: 0.5, SAMPLED: 0.4}
    tables = ({"suite.published": "critics"}, {"suite.published": "null"}, {"suite.published": "of_tomorrow"})
    named, none, unknown = (finished("a", seed=0, metrics=both, params=params) for params in tables)
    of_samples = {"suite.published": "clipo_table2", "suite.quantity": SAMPLED.removeprefix("test/")}
    assert default_metric([named]) == GREEDY
    assert default_metric([finished("a", seed=0, metrics=both, params=of_samples)]) == SAMPLED
    assert {default_metric(runs) for runs in ([none], [unknown], [named, none])} == {SAMPLED}
    assert default_metric([finished("a", seed=0, metrics={SAMPLED: 0.4}, params=tables[0])]) == SAMPLED
    assert default_metric([finished("a", seed=0, metrics={GREEDY: 0.4})]) == GREEDY


@pytest.mark.parametrize(
    ("tags", "settings", "method"),
    [
        ({"reward": "clipo"}, {"reward.temperature": "0.05", "rollout.group_size": "16"}, "GRPO+CLIPO"),
        ({"reward": "clipo"}, {"reward.temperature": "0.020", "reward.weight": "0.2"}, "GRPO+CLIPO, τ 0.02"),
        ({"reward": "clipo"}, {"reward.temperature": "0.3"}, None),
        ({"reward": "clipo"}, {"rollout.group_size": "8"}, None),
        ({"reward": "clipo_softnn"}, {"reward.weight": "1.0"}, "GRPO+CLIPO, SoftNN"),
        ({"reward": "clipo_softnn"}, {"reward.weight": "0.2"}, None),
        ({"reward": "clipo_fixed_head"}, {"reward.temperature": "${tau}"}, None),
        ({"reward": "clipo_l2"}, {}, None),
        ({}, {}, "GRPO"),
        ({}, {"rollout.group_size": "8"}, None),
        ({"advantage": "leave_one_out"}, {}, None),
        ({"task": "math"}, {}, None),
        ({}, {"policy.pretrained": "Qwen/Qwen2.5-0.5B"}, None),
        ({}, {"policy.pretrained": "/models/Qwen2.5-3B-Instruct/"}, "GRPO"),
    ],
)
def test_an_arm_stands_beside_the_row_of_its_own_settings(
    tags: dict[str, str], settings: dict[str, str], method: str | None
) -> None:
    params = {**TRACK, "policy.pretrained": "Qwen/Qwen2.5-3B-Instruct", **settings}
    (arm,) = arms_by([finished("arm", seed=s, params=params, **tags) for s in (0, 1)], ["experiment"])
    row = published_arm(arm, published_table("clipo_table1"))
    assert (row and row.method) == method


def published_of(experiment: str, *overrides: str) -> PublishedArm | None:
    """What stands beside a run of an experiment at the papers' scale."""
    with initialize_config_module("conf", version_base="1.3"):
        words = [f"experiment={experiment}", "scale=paper", *overrides]
        config = compose("config", words, return_hydra_config=True)
    tags = {group: str(option) for group, option in config.hydra.runtime.choices.items() if option and "/" not in group}
    policy = flatten({"policy": OmegaConf.to_container(config.policy, resolve=True)})
    params = policy | {"suite.published": str(config.suite.published)}
    run = finished(experiment, seed=0, metrics={}, params=params)
    (arm,) = arms_by([replace(run, tags={**tags, "experiment": experiment, "seed": "0"})], ["experiment"])
    return published_arm(arm, published_table(params["suite.published"]))


@pytest.mark.parametrize(
    ("experiment", "expected"),
    [
        ("qwen_baseline", ("GRPO", 80)),
        ("qwen_critic_published", ("GRPO+critic", 70)),
        ("qwen_oracle", ("GRPO+oracle", 90)),
        ("qwen_oracle reward=perfect_move", ("GRPO+oracle, perfect moves", 90)),
        ("llama_baseline", ("GRPO", 75)),
        ("llama_critic_published", ("GRPO+critic", 63)),
        ("llama_oracle", None),
        ("qwen_critic_calibrated", None),
    ],
)
def test_the_experiments_of_the_paper_on_critics_are_its_rows(
    experiment: str, expected: tuple[str, float] | None
) -> None:
    row = published_of(*experiment.split())
    assert (row and (row.method, row.figures["main"])) == expected
