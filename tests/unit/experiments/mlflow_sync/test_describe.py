"""``describe``: a run folder as MLflow runs, with their names, tags, parameters and the data that a stage read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from experiments.mlflow_sync.describe import (
    LONGEST_NAME,
    describe,
    mlflow_name,
    parameters,
)
from experiments.system.files import write_json


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "llama_critic · seed 3"),
        (["experiment=llama_critic", "seed=3", "logger.mirror=false", "callbacks.grpo.x=1"], "llama_critic · seed 3"),
        (["experiment=llama_critic", "reward.weight=0.25"], "llama_critic · reward.weight=0.25 · seed 3"),
        (["sweep=tau", "objective=gspo", "hydra/launcher=ray"], "llama_critic · objective=gspo · seed 3"),
        (["policy.pretrained=" + "/x" * LONGEST_NAME], None),
    ],
)
def test_describe_names_run_by_its_overrides(outputs: Any, overrides: Sequence[str], name: str | None) -> None:
    folder = outputs.run("llama_critic", seed=3, final=0.5)
    write_json(folder / "choices.json", {"experiment": "llama_critic"})
    write_json(folder / "origin.json", {"overrides": overrides})
    experiment, *stages = describe(folder)
    if name is None:
        assert experiment.name.endswith("… · seed 3")
        assert len(experiment.name) == LONGEST_NAME + len(" · seed 3")
    else:
        assert experiment.name == name
    assert [stage.name for stage in stages] == [f"{experiment.name} · grpo", f"{experiment.name} · evaluate"]
    (stages[0].folder / "config.yaml").unlink()
    assert describe(folder)[1].params == {}, "of a stage that has no configuration yet"


def test_describe_keys_differ_for_runs_started_in_same_second(outputs: Any) -> None:
    folder = outputs.run("llama_critic", seed=3, final=0.5)
    write_json(folder / "origin.json", {"overrides": []})
    early, *_ = describe(folder)
    assert early.key == f"llama_critic/{folder.name}", "so MLflow has the runs that were recorded without an id"
    keys = set()
    for run_id in ("1f", "2e"):
        write_json(folder / "origin.json", {"overrides": [], "id": run_id})
        keys.add(tuple(run.key for run in describe(folder)))
    assert len({key for run in keys for key in run}) == 2 * 3


def test_describe_names_study_run_by_arm_and_method_by_experiment(outputs: Any) -> None:
    folder = outputs.run("countdown_credit", seed=3, final=0.5)
    (folder / "config.yaml").write_text((folder / "config.yaml").read_text() + "arm: oracle\n")
    write_json(folder / "choices.json", {"experiment": "llama_oracle", "reward@reward.source": "oracle_flipped"})
    write_json(folder / "origin.json", {"overrides": ["experiment=llama_oracle", "budget.grpo.steps=240"]})
    experiment, *_ = describe(folder)
    assert experiment.name == "oracle · seed 3"
    assert {"method": "llama_oracle", "study": "countdown_credit", "arm": "oracle"}.items() <= experiment.tags.items()
    assert experiment.tags["reward.source"] == "oracle_flipped"


@pytest.mark.parametrize(
    ("config", "flat"),
    [
        ({"a": {"b": 1, "c": None}, "d": True}, {"a.b": "1", "a.c": "null", "d": "true"}),
        ({"stages": ["critic", "grpo"]}, {"stages": "['critic', 'grpo']"}),
        ({"parts": [{"w": 1}, {"w": 2}]}, {"parts.0.w": "1", "parts.1.w": "2"}),
        ({"a@b=c|d(e)": 1}, {"a_b_c_d_e_": "1"}),
        ({"empty": {}, "none": []}, {"empty": "{}", "none": "[]"}),
    ],
)
def test_parameters_are_flat_and_short(config: dict[str, Any], flat: dict[str, str]) -> None:
    assert parameters(config) == flat


def test_long_parameters_with_the_same_beginning_stay_different() -> None:
    first, second = (parameters({"system": "x" * 999 + end})["system"] for end in "ab")
    assert len(first) == len(second) == 250
    assert first[:200] == second[:200] == "x" * 200
    assert first != second
    assert parameters({"system": "x" * 250})["system"] == "x" * 250


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        *((name, name) for name in ("test/verifier/pass_at_8", "reward._target_", "val/точность", "val/正解率: é")),
        ("a@b=c", "a_b_c"),
        ("val/a😀", "val/a_1f600_"),
        ("val/e\u0301", "val/e_301_"),
        ("/val//x/../y/.", "_/val/_/x/.._/y/._"),
    ],
)
def test_mlflow_name_is_valid_for_any_script(name: str, accepted: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    _validate_metric_name(accepted)
    assert mlflow_name(name) == accepted
