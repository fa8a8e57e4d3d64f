"""The command as a person runs it, in processes of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from experiments.plan.__main__ import Options, compose_with_trainer, main, parse_arguments, with_trainer
from experiments.plan.learner import by_name
from experiments.plan.page import PARTS, page
from experiments.plan.stages import experiment_of
from experiments.schema import Root, register

ROOT = Path(__file__).resolve().parents[4]
register()


def plan(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments.plan", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
    )


def lines(*overrides: str, **options: float) -> list[str]:
    """The plan without its table."""
    chosen = Options(**options)  # pyright: ignore[reportArgumentType]
    config, trainer = compose_with_trainer(with_trainer([f"experiment={overrides[0]}", *overrides[1:]], chosen))
    return [line for line in page(config, trainer, dict(config.trainer), chosen) if isinstance(line, str)]


def found(text: str, pattern: str) -> float:
    match = re.search(pattern, text)
    assert match is not None, text
    return float(match[1].replace(",", ""))


def test_the_papers_experiment_on_eight_gpus_and_nothing_heavy_is_imported() -> None:
    before = os.times()
    script = (
        "import sys; from experiments.plan.__main__ import main\n"
        "main(['experiment=grpo_gsm8k', 'scale=paper', 'gpus=8'])\n"
        "print([m for m in ('lightning', 'mlflow', 'transformers', 'peft') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    after = os.times()
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[]\n")
    assert "Qwen/Qwen2.5-3B-Instruct, 3,086 million parameters, all of them trained" in done.stdout
    assert "shape: the table of published shapes" in done.stdout
    assert "16,777,216 tokens generated" in done.stdout  # 512 · 16 · 2048
    assert after.children_user - before.children_user < 8  # a few seconds, of the processor


def test_a_typo_gets_the_answer_that_a_run_would_give() -> None:
    done = plan("experiment=grpo_gsm8k", "scale=paper", "rollout.gruop_size=4")
    assert done.returncode == 2
    meant = "did you mean 'rollout.group_size' of engine, greedy, group_size, sampling, seed, validation_samples?"
    assert done.stderr == f"rollout.gruop_size: no such key; {meant}\n"
    done = plan("experiment=grpo_gsm8k", "gpu=8")
    assert done.returncode == 2
    assert done.stderr == "gpu: no such key; did you mean 'gpus'?\n"


def test_a_plan_is_of_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment=grpo_gsm8k", "seed=0,1"]) == 2
    assert capsys.readouterr().err.startswith("seed=0,1: several values, and this is a single run; ")
    assert main(["experiment=grpo_gsm8k", "policy.pretrained=nobody/nothing"]) == 2
    assert "policy.pretrained=nobody/nothing: its shape is not at hand" in capsys.readouterr().err


def test_no_root_key_or_group_is_taken_for_a_mistyped_argument() -> None:
    names = [f"{field.name}=1" for field in fields(Root)] + ["experiment=x", "sweep=y", "debug=z", "hydra.run.dir=a"]
    assert parse_arguments(names)[1] == names


def test_what_does_not_fit_is_said_with_the_mildest_trainer_that_does() -> None:
    tight = "\n".join(lines("grpo_gsm8k", "scale=paper", gpus=8, gpu_memory=40.0))
    assert re.search(
        r"does not fit: needs [\d.]+ of 40 GiB, in grpo \w+; the mildest that fits of ddp, .*trainer=", tight
    )
    nothing = "\n".join(lines("grpo_gsm8k", "scale=paper", gpus=8, gpu_memory=2.0))
    assert "none of ddp, zero1, zero2, zero3, zero3_offload fits on 8; what to lower: " in nothing
    assert "fits: needs" in "\n".join(lines("grpo_gsm8k", "scale=paper", gpus=8, gpu_memory=1000.0))


def test_more_gpus_take_fewer_hours_and_smaller_micro_batches_less_memory() -> None:
    hours, memory = r"take ([\d.]+) h", r"needs ([\d,.]+) of"
    four = "\n".join(lines("grpo_gsm8k", "scale=paper", gpus=4))
    eight = "\n".join(lines("grpo_gsm8k", "scale=paper", gpus=8))
    assert found(four, hours) == pytest.approx(2 * found(eight, hours), rel=0.01)
    small = "\n".join(lines("grpo_gsm8k", "scale=paper", "budget.grpo.microbatch_tokens=4096", gpus=8))
    assert found(small, memory) < found(eight, memory)
    shorter = "\n".join(lines("grpo_gsm8k", "scale=paper", gpus=8, completion_tokens=512))
    assert found(shorter, hours) < found(eight, hours) / 2
    assert found(shorter, memory) == found(eight, memory)  # which is planned for the longest


def test_a_reference_that_stays_costs_its_weights() -> None:
    memory = r"needs ([\d,.]+) of"
    stays = found("\n".join(lines("grpo_gsm8k", "scale=paper", "module.offload_reference=false", gpus=8)), memory)
    leaves = found("\n".join(lines("grpo_gsm8k", "scale=paper", gpus=8)), memory)
    weights = 3_085_938_688 * 4 / 2**30
    assert stays - leaves == pytest.approx(weights * 1.05, abs=0.2)  # and the slack


def test_what_is_assumed_or_left_out_is_said() -> None:
    said = "\n".join(lines("llama_critic"))
    assert "note: prompts of 208 tokens are an assumption: prompt_tokens=NUMBER says better" in said
    assert "note: the critic is a small network and not counted" in said
    assert "assumption" not in "\n".join(lines("llama_critic", prompt_tokens=30))
    assert "tflops=NUMBER" in said  # on a CPU
    vllm = "\n".join(lines("grpo_gsm8k", "scale=paper", "rollout=vllm", gpus=8))
    assert "note: the vLLM server: the least it can do with" in vllm


@pytest.mark.parametrize("name", ["llama_critic", "clipo_math", "qwen_critic", "clipo_mlp_head", "critic_text"])
@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_every_kind_of_experiment_has_a_plan(name: str, scale: str) -> None:
    assert lines(name, f"scale={scale}", gpus=2)


def test_every_part_has_its_row_in_the_table() -> None:
    for name, overrides in (("clipo_gsm8k", []), ("llama_critic", ["critic=text"]), ("grpo_gsm8k", ["rollout=vllm"])):
        config, _ = compose_with_trainer([f"experiment={name}", "scale=paper", "trainer=gpu", *overrides])
        experiment = experiment_of(config, Options(), on_cpu=False, devices=8)
        for moment in experiment.moments(by_name("zero3", 8)):
            assert set(moment.parts) <= set(PARTS)


def test_the_plans_own_arguments_are_taken_out_and_overrides_are_left() -> None:
    options, left = parse_arguments(
        ["experiment=grpo_gsm8k", "gpus=8", "mfu=0.3", "scale=paper", "budget.grpo.steps=3"]
    )
    assert options == Options(gpus=8, mfu=0.3)
    assert left == ["experiment=grpo_gsm8k", "scale=paper", "budget.grpo.steps=3"]


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("gpus=many", "gpus=many: it takes a whole number"),
        ("gpus=0", "gpus must be at least 1, got 0"),
        ("gpus=1.5", "gpus=1.5: it takes a whole number"),
        ("mfu=40", r"mfu must lie in \(0, 1\], got 40"),
        ("mfu=nan", r"mfu must lie in \(0, 1\], got nan"),
        ("tflops=-1", "tflops must be positive, got -1"),
        ("gpu_memory=nan", "gpu_memory must be positive, got nan"),
        ("gpu_memory=0", "gpu_memory must be positive, got 0"),
        ("completion_tokens=0", "completion_tokens must be at least 1, got 0"),
    ],
)
def test_a_mistake_gets_its_one_sentence(argument: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_arguments([argument])
