"""The command line on several ranks: every stage, a policy that transformers loads, sweeps, and torchrun."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from contrastive_reasoning.policies.load import LoRA
from experiments.run_folder.reader import read_metrics
from experiments.stages.experiment import run_experiment
from tests.config_kit import composed
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "experiment=llama_critic",
    "debug=fast",
    "policy.pretrained=null",
    "policy.corpus.plays=50",
    "logger.mirror=false",
]
EXACT = ["policy.compute_dtype=float32"]
ONLY_EVALUATED = ["experiment=llama_baseline", "debug=fast", "stages=[evaluate]", "logger.mirror=false"]


def run(*overrides: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "experiments.run", *overrides]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def stages(output: Path) -> dict[str, Path]:
    (record,) = output.glob("runs/*/*/stages.json")
    return {name: Path(entry["folder"]) for name, entry in json.loads(record.read_text()).items()}


def numbers(folder: Path) -> dict[tuple[str, int], float]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    clock = ("system/", "throughput", "spent/seconds", "gradient_norm")
    return {(m["name"], m["step"]): m["value"] for m in lines if not any(word in m["name"] for word in clock)}


UNCALIBRATED = ("train/critic/", "train/reward/critic", "train/steps/")
LEVELS = ("train/critic/logits_positive", "train/critic/logits_negative", "train/critic/logsumexp")


def above_positive(values: dict[tuple[str, int], float]) -> dict[tuple[str, int], float]:
    """Mean logits of negatives and logsumexp minus the mean logit of positives, which no constant changes."""
    first, *others = LEVELS
    return {
        (name, step): values[name, step] - value
        for (positive, step), value in values.items()
        if positive == first
        for name in others
    }


def assert_same_numbers(found: dict[tuple[str, int], float], expected: dict[tuple[str, int], float]) -> None:
    """Up to rounding, with another tolerance for a critic's values before calibration.

    InfoNCE leaves a constant of these values free, and rounding changes it, since Adam divides the gradient of the
    constant, which is rounding alone, by its size. The first fit of the calibration curves removes the constant. Logits
    and the calibration error of the critic's own stage contain it.
    """
    free = {
        (name, step): value
        for (name, step), value in expected.items()
        if (step == 1 and name.startswith(UNCALIBRATED)) or name in (*LEVELS, "val/oracle/ece")
    }
    assert_close({key: found[key] for key in free}, free, rtol=0, atol=1e-2)
    fixed = {key: value for key, value in expected.items() if key not in free} | above_positive(expected)
    values = found | above_positive(found)
    assert_close({key: values[key] for key in fixed}, fixed, rtol=1e-3, atol=1e-4)


def run_alone(output: Path, *overrides: str) -> dict[str, Path]:
    """The stage folders of a run by this process."""
    run_experiment(deepcopy(composed(*overrides, f"output_dir={output}")))
    return stages(output)


@pytest.mark.whole
def test_every_stage_in_shards_matches_one_process(tmp_path: Path) -> None:
    """test_acceptance_in_shards.py has ZeRO stage 3; its warm start is that of the adapters below."""
    one = run_alone(tmp_path / "one", *SMALL, *EXACT)
    done = run(*SMALL, *EXACT, "trainer=zero2", f"output_dir={tmp_path / 'two'}")
    assert done.stdout.count("grpo: running in") == 1, "rank 0 alone speaks"
    two = stages(tmp_path / "two")
    assert list(one) == list(two) == ["warm_start", "critic", "grpo", "evaluate"]
    for stage in one:
        expected, found = numbers(one[stage]), numbers(two[stage])
        assert expected.keys() <= found.keys()
        assert_same_numbers(found, expected)
    policies = [load_file(folder["grpo"] / "policy" / "model.safetensors") for folder in (one, two)]
    differences = torch.cat([(policies[1][name] - policies[0][name]).abs().flatten() for name in policies[0]])
    assert differences.mean() < 1e-7
    assert differences.max() < 1e-4, "Adam divides by a gradient's size: rounding moves a weight that has almost none"
    loaded = AutoModelForCausalLM.from_pretrained(two["grpo"] / "policy")
    assert torch.equal(loaded.model.norm.weight, policies[1]["model.norm.weight"])


@pytest.mark.whole
def test_adapters_trained_in_shards_merge_to_policy_of_one_process(tmp_path: Path) -> None:
    adapters = f"policy.lora={{_target_:{LoRA.__module__}.LoRA,rank:4,alpha:8.0,dropout:0.0,target_modules:all-linear}}"
    small = [*SMALL, *EXACT, adapters, "stages=[warm_start]"]
    one = run_alone(tmp_path / "one", *small)["warm_start"]
    run(*small, f"output_dir={tmp_path / 'two'}", "trainer=zero3", "trainer.strategy.whole_elements=0")
    two = stages(tmp_path / "two")["warm_start"]
    expected, found = (load_file(folder / "policy" / "model.safetensors") for folder in (one, two))
    assert_close(found, expected, rtol=0, atol=1e-5)
    losses = [value for (name, _), value in sorted(numbers(one).items()) if name == "val/warm_start/loss"]
    assert losses[-1] < losses[0]
    AutoModelForCausalLM.from_pretrained(two / "policy")


@pytest.mark.slow
@pytest.mark.parametrize(("argument", "launcher"), [("sweep=seeds", "basic"), ("-m", "submitit_local")])
def test_each_job_of_a_sweep_starts_its_own_ranks(argument: str, launcher: str, tmp_path: Path) -> None:
    """Jobs run one after the other, or as on a cluster: submitit's local executor takes what its SLURM executor does.

    A preset makes every command that names it a sweep. The ranks of its jobs must not start another one.
    """
    where = [f"output_dir={tmp_path}", f"hydra/launcher={launcher}"]
    run(argument, *ONLY_EVALUATED, "seed=0,1", "trainer=ddp", *where)
    (sweep,) = tmp_path.glob("sweeps/*")
    records = sorted(tmp_path.glob("runs/*/*/summary.json"))
    assert len(records) == 2, "no job started the sweep again"
    swept = [json.loads((record.parent / "sweep.json").read_text()) for record in records]
    assert [one["sweep"] for one in swept] == [sweep.name] * 2
    assert swept[0] == swept[1]
    assert "seed=0,1" in swept[0]["overrides"]


CLIPO = ["experiment=clipo_laptop", "debug=fast", *EXACT, "stages=[grpo,evaluate]", "logger.mirror=false"]
CLIPO += ["budget.grpo.problems=8", "budget.grpo.steps=3", "budget.grpo.max_completion_tokens=64"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The stage folders of GRPO with CLIPO by one process."""
    return run_alone(tmp_path_factory.mktemp("alone"), *CLIPO)


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["ddp", "zero2"])
def test_torchrun_on_two_nodes_of_two_devices_matches_one_process(
    trainer: str, alone: dict[str, Path], tmp_path: Path
) -> None:
    """Two agents on this machine, like one on each node of a cluster. Four ranks give the result of one process."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
    meeting = [f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-backend=c10d", "--rdzv-id=test"]
    arguments = [*CLIPO, f"trainer={trainer}", "trainer.devices=2", "trainer.num_nodes=2", f"output_dir={tmp_path}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    nodes = [
        subprocess.Popen([*command, *meeting, "-m", "experiments.run", *arguments], env=environment) for _ in range(2)
    ]
    assert [node.wait(timeout=300) for node in nodes] == [0, 0]
    four = stages(tmp_path)
    policies = [load_file(folder["grpo"] / "policy" / "model.safetensors") for folder in (alone, four)]
    assert_close(policies[1], policies[0], rtol=0, atol=1e-5)
    for stage in alone:
        expected, found = numbers(alone[stage]), numbers(four[stage])
        assert_close({key: found[key] for key in expected}, expected, rtol=1e-3, atol=1e-4)
    norms = [m.value for m in read_metrics(alone["grpo"]) if m.name == "train/optimizer/gradient_norm"]
    assert len(norms) == 3
    assert min(norms) > 0, "each step taught something"
    paid = [m.value for m in read_metrics(alone["grpo"]) if m.name == "train/reward/clipo"]
    assert min(map(abs, paid[-3:])) > 0, "some groups had correct completions to compare"


def test_batch_script_requests_resources_of_its_command() -> None:
    """The script is valid shell, and its command composes to one rank for each device of the job."""
    script = (ROOT / "docs" / "train.sbatch").read_text()
    subprocess.run(["bash", "-n", ROOT / "docs" / "train.sbatch"], check=True)
    requested = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\d+)$", script, flags=re.MULTILINE))
    overrides = re.findall(r"^ +((?:experiment|scale|trainer[\w.]*)=\S+?)(?: [\\&])?$", script, flags=re.MULTILINE)
    assert requested["ntasks-per-node"] == "1", "torchrun starts the ranks of a node"
    config = composed(*(value.replace('"$SLURM_NNODES"', requested["nodes"]) for value in overrides))
    assert config.trainer.num_nodes == int(requested["nodes"])
    assert config.trainer.devices == int(requested["gpus-per-node"])
    assert config.budget.grpo.problems % (config.trainer.devices * config.trainer.num_nodes) == 0
    assert re.search(r"^#SBATCH --signal=B:USR1@\d+$", script, flags=re.MULTILINE), "which the script listens for"
    assert f"--nproc-per-node={requested['gpus-per-node']}" in script
