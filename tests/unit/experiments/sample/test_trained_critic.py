from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch.testing import assert_close

from contrastive_reasoning.critics import NumericV2
from contrastive_reasoning.critics.checkpoint import DESCRIPTION, WEIGHTS, save_critic
from contrastive_reasoning.losses import dot
from experiments.sample.command import composed
from experiments.sample.options import SampleError
from experiments.sample.trained_critic import foreign_parts, trained_critic
from experiments.schema import register

SIMILARITY = {"_target_": "contrastive_reasoning.losses.dot", "_partial_": True}
SIZES = {"dimension": 4, "digit_dimension": 4, "hidden_dimension": 8, "hidden_layers": 1}
MADE_OF = {"_target_": "contrastive_reasoning.critics.NumericV2", **SIZES, "seed": 0, "similarity": SIMILARITY}
register()
CONFIG = composed(["name=sample", "stages=[evaluate]", "loss.temperature=0.5"])


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A finished critic stage."""
    folder = tmp_path / "stages" / "critic" / "abc"
    save_critic(NumericV2(**SIZES, seed=3, similarity=partial(dot)), folder / "critic", MADE_OF)
    return folder


def weights(critic: Any) -> torch.Tensor:
    return torch.cat([value.flatten() for value in critic.state_dict().values()])


def test_the_folder_of_a_critic_a_stage_or_a_run_leads_to_its_weights(stage: Path, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "critic" / "now-0"
    run.mkdir(parents=True)
    entries = {name: {"folder": f"stages/{name}/abc", "reused": False} for name in ("warm_start", "critic")}
    (run / "stages.json").write_text(json.dumps(entries))
    wanted = weights(NumericV2(**SIZES, seed=3, similarity=partial(dot)))
    for folder in (stage / "critic", stage, run):
        assert_close(weights(trained_critic(folder, CONFIG).critic), wanted, rtol=0, atol=0)


def test_the_temperature_is_that_of_the_training_where_a_stage_tells_it(stage: Path) -> None:
    assert trained_critic(stage, CONFIG).temperature == 0.5
    (stage / "config.yaml").write_text("loss:\n  temperature: 0.1\n")
    assert trained_critic(stage, CONFIG).temperature == 0.1


def test_a_folder_without_a_critic_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=r"no critic there \(critic\.json is missing\)$"):
        trained_critic(tmp_path, CONFIG)


@pytest.mark.parametrize(
    "part",
    [
        {"_target_": "subprocess.run", "args": "true"},
        {"_target_": "contrastive_reasoning.critics.checkpoint.json.loads"},
        {"_target_": "contrastive_reasoning.policies.load.load_policy"},
        {"_target_": "contrastive_reasoning.critics.import_module", "name": "this"},
        {"_target_": "contrastive_reasoning.critics.no_such_critic"},
        {"_target_": "contrastive_reasoning.critics.save_critic"},
        {"_target_": "${oc.env:HOME}"},
        {"trust_remote_code": True},
    ],
)
def test_a_file_that_names_other_parts_calls_none_of_them(
    stage: Path, part: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage / "critic" / DESCRIPTION).write_text(
        json.dumps({"class": "x", "frozen": [], "config": {**MADE_OF, "similarity": [part]}})
    )
    monkeypatch.setattr("experiments.sample.trained_critic.build", lambda *_: pytest.fail("something was built"))
    with pytest.raises(SampleError, match=r"which is no part of a critic$"):
        trained_critic(stage, CONFIG)


def test_parts_of_critics_are_none_of_the_foreign(stage: Path) -> None:
    assert [*foreign_parts(MADE_OF)] == []


def test_every_critic_of_the_configuration_is_made_of_parts_that_pass() -> None:
    root = Path(__file__).resolve().parents[4] / "conf"
    for path in [*(root / "critic").glob("*.yaml"), *(root / "backbone").glob("*.yaml")]:
        config = OmegaConf.load(path)
        assert isinstance(config, DictConfig)
        assert [*foreign_parts(OmegaConf.to_container(config, resolve=False))] == [], path.name


@pytest.mark.parametrize("damage", ["weights", "description"])
def test_damaged_files_get_one_sentence(stage: Path, damage: str) -> None:
    (stage / "critic" / (WEIGHTS if damage == "weights" else DESCRIPTION)).write_text("no such thing")
    with pytest.raises(SampleError, match=r"^the critic in .* cannot be read: [^\n]*$"):
        trained_critic(stage, CONFIG)
