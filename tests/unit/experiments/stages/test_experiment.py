"""Errors raised before the first stage runs, and ranks that wait for another run of a stage."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig

from contrastive_reasoning.distributed import this_rank
from experiments.assemble import AssemblyError
from experiments.config.folders import EMBEDDED_FOLDER
from experiments.stages import experiment
from experiments.stages.building import check_parts
from experiments.stages.experiment import run_experiment
from experiments.stages.plan import StagePlan
from experiments.system.files import lock
from tests.config_kit import composed
from tests.two_ranks import on_ranks


def test_policy_without_eos_token_raises_assembly_error(tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    shutil.copytree(EMBEDDED_FOLDER / "llama_countdown", folder)
    for path in folder.glob("*.json"):
        if path.name != "tokenizer.json":
            content = json.loads(path.read_text(encoding="utf-8"))
            named = {key: value for key, value in content.items() if not re.match(r"(eos|pad|bos)_token", key)}
            path.write_text(json.dumps(named), encoding="utf-8")
    with pytest.raises(AssemblyError, match=rf"policy\.pretrained={folder}: .*eos_token"):
        check_parts(composed("experiment=llama_baseline", "debug=fast", f"policy.pretrained={folder}"))


def test_stage_computes_in_the_dtype_that_was_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer takes the CPU, where bfloat16 is slow; the machine's GPU would multiply it natively."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    seen: list[str] = []

    def run_stage(plan: StagePlan, config: DictConfig, planned: object, *, run: str) -> None:
        seen.extend((plan.config["policy"]["compute_dtype"], config.policy.compute_dtype))

    monkeypatch.setattr(experiment, "run_stage", run_stage)
    monkeypatch.setattr(experiment.evaluation_table, "show", lambda _: None)
    overrides = ("stages=[evaluate]", "debug=fast", "logger.mirror=false", f"output_dir={tmp_path}")
    run_experiment(composed("experiment=llama_baseline", "policy.compute_dtype=auto", *overrides))
    assert seen == ["float32", "float32"]


ARRIVED, RELEASED = "arrived", "released"


def inside(folder: Path) -> bool:
    """Whether the other run had ended when this rank got the lock."""
    experiment.LOCK_POLL_SECONDS = 0.05
    (folder / f"{ARRIVED}{this_rank()}").touch()
    with experiment.held_by_first(folder / "stage" / "lock", waiting="waiting"):
        return (folder / RELEASED).exists()


@pytest.mark.whole
def test_every_rank_waits_until_the_first_has_the_lock(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def other_run() -> None:
        while len(list(tmp_path.glob(f"{ARRIVED}*"))) < 2:
            time.sleep(0.05)
        time.sleep(0.5)
        (tmp_path / RELEASED).touch()
        free.set()

    def holding() -> None:
        with lock(path):
            held.set()
            free.wait()

    free, held = threading.Event(), threading.Event()
    path = tmp_path / "stage" / "lock"
    path.parent.mkdir()
    threads = [threading.Thread(target=one, daemon=True) for one in (holding, other_run)]
    threads[0].start()
    held.wait()
    threads[1].start()
    assert on_ranks(inside, tmp_path, tmp_path) == [True, True]
    assert capfd.readouterr().out.count("waiting") == 1
