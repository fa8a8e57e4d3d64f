from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.system.files import write_json
from experiments.tracking.run_tree import LONGEST_NAME, read_config, runs_of


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ([], "llama_critic · seed 3"),
        (["experiment=llama_critic", "seed=3", "logger=folder", "callbacks.grpo.x=1"], "llama_critic · seed 3"),
        (["experiment=llama_critic", "reward.weight=0.25"], "llama_critic · reward.weight=0.25 · seed 3"),
        (["sweep=tau", "objective=gspo", "hydra/launcher=ray"], "llama_critic · objective=gspo · seed 3"),
        (["policy.pretrained=" + "/x" * LONGEST_NAME], None),
    ],
)
def test_a_run_is_called_by_what_was_typed(outputs: Any, typed: Sequence[str], name: str | None) -> None:
    folder = outputs.run("llama_critic", seed=3, final=0.5)
    write_json(folder / "choices.json", {"experiment": "llama_critic"})
    write_json(folder / "origin.json", {"overrides": typed})
    experiment, *stages = runs_of(folder)
    if name is None:
        assert experiment.name.endswith("… · seed 3")
        assert len(experiment.name) == LONGEST_NAME + len(" · seed 3")
    else:
        assert experiment.name == name
    assert [stage.name for stage in stages] == [f"{experiment.name} · grpo", f"{experiment.name} · evaluate"]


def test_an_arm_of_a_study_has_a_name_of_its_own(outputs: Any) -> None:
    folder = outputs.run("countdown_credit", seed=3, final=0.5)
    (folder / "config.yaml").write_text((folder / "config.yaml").read_text() + "arm: oracle\n")
    write_json(folder / "origin.json", {"overrides": ["experiment=llama_oracle", "budget.grpo.steps=240"]})
    experiment, *_ = runs_of(folder)
    assert experiment.name == "oracle · seed 3"


def test_a_configuration_is_read_again_once_it_has_changed(tmp_path: Path) -> None:
    assert read_config(tmp_path) == {}
    for name in ("first", "second"):
        (tmp_path / "config.yaml").write_text(f"name: {name}\nsame: ${{name}}\n")
        assert read_config(tmp_path) == {"name": name, "same": name}
        assert read_config(tmp_path) is read_config(tmp_path)
