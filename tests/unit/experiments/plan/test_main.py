"""``python -m experiments.plan``: whole pages, and errors for invalid arguments."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module

from experiments.plan.__main__ import Options, main, parse_arguments
from experiments.plan.learner import by_name
from experiments.plan.page import PARTS
from experiments.plan.stages import experiment_of
from experiments.schema import Root, register

ROOT = Path(__file__).resolve().parents[4]
Plan = Callable[..., str]
PAPER = ("experiment=grpo_gsm8k", "scale=paper")
ONE_GPU = ("experiment=llama_critic", "scale=gpu")
register()


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Returns a function that returns the page for its arguments."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> str:
        assert main(arguments) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


def number_in(text: str, pattern: str) -> float:
    match = re.search(pattern, text)
    assert match is not None, text
    return float(match[1].replace(",", ""))


def test_page_equals_documentation_without_heavy_imports() -> None:
    script = (
        "import sys; from experiments.plan.__main__ import main\n"
        "main(['experiment=grpo_gsm8k', 'scale=paper', 'gpus=8'])\n"
        "print([m for m in ('lightning', 'mlflow', 'transformers', 'peft') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n[]\n")
    documented = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8").split("```\n")[2]
    lines = [line.rstrip() for line in done.stdout.removesuffix("[]\n").splitlines()]
    assert [line for line in lines if not line.startswith("note: ")] == documented.splitlines()


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ("rollout.gruop_size=4", "'rollout.group_size'"),
        ("gpu=8", "'gpus'"),
        ("seed=0,1", "seed=0,1"),
        ("policy.pretrained=nobody/nothing", "policy.pretrained=nobody/nothing"),
        ("gpus=many", "gpus=many"),
        ("gpus=0", "gpus"),
        ("mfu=40", "mfu"),
        ("mfu=nan", "mfu"),
        ("tflops=-1", "tflops"),
        ("gpu_memory=nan", "gpu_memory"),
        ("completion_tokens=0", "completion_tokens"),
    ],
)
def test_invalid_argument_prints_one_sentence_with_its_name(
    argument: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment=grpo_gsm8k", argument]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert named in err
    assert err.count("\n") == 1


def test_parse_arguments_takes_own_options_and_keeps_overrides() -> None:
    options, left = parse_arguments([*PAPER, "gpus=8", "mfu=0.3", "trainer=zero2", "budget.grpo.steps=3"])
    assert options == Options(gpus=8, mfu=0.3)
    assert left == [*PAPER, "trainer=zero2", "budget.grpo.steps=3"]
    names = [f"{field.name}=1" for field in fields(Root)] + ["experiment=x", "sweep=y", "debug=z", "hydra.run.dir=a"]
    assert parse_arguments(names)[1] == names


def test_plan_that_does_not_fit_names_mildest_fitting_trainer(plan: Plan) -> None:
    tight = plan(*PAPER, "gpus=8", "gpu_memory=40")
    assert re.search(
        r"does not fit: needs [\d.]+ of 40 GiB, in grpo \w+; "
        r"the mildest of .* with a tenth free: trainer=zero\d trainer\.devices=8, ",
        tight,
    )
    nothing = plan(*PAPER, "gpus=8", "gpu_memory=2")
    assert "none of ddp, zero1, zero2, zero3, zero3_offload fits on 8 with a tenth free; " in nothing
    assert "fits closely: needs 73.3 of 80 GiB" in plan(*PAPER, "gpus=8"), "less than a tenth would be free"
    assert "; a smaller policy or adapter=lora also needs less" in plan(*ONE_GPU, "gpu_memory=24")
    adapted = plan(*ONE_GPU, "adapter=lora", "gpu_memory=10")
    assert "does not fit: " in adapted
    assert "adapter=lora" not in adapted


def test_gpus_lengths_and_microbatches_change_hours_and_memory(plan: Plan) -> None:
    hours, memory = r"take at least ([\d.]+) h", r"needs ([\d,.]+) of"
    eight = plan(*PAPER, "gpus=8")
    assert number_in(plan(*PAPER, "gpus=4"), hours) == pytest.approx(2 * number_in(eight, hours), rel=0.01)
    assert number_in(plan(*PAPER, "gpus=8", "budget.grpo.microbatch_tokens=4096"), memory) < number_in(eight, memory)
    shorter = plan(*PAPER, "gpus=8", "completion_tokens=512")
    assert number_in(shorter, hours) < number_in(eight, hours) / 2
    assert number_in(shorter, memory) == number_in(eight, memory)  # memory is planned for the longest completion
    without_offload = number_in(plan(*PAPER, "gpus=8", "module.offload_reference=false"), memory)
    weights = 3_085_938_688 * 4 / 2**30
    assert without_offload - number_in(eight, memory) == pytest.approx(weights * 1.05, abs=0.2)  # 1.05: the slack


def test_page_notes_assumptions_and_omissions(plan: Plan) -> None:
    page = plan("experiment=llama_critic")
    assert "note: prompts of 208 tokens are an assumption: set prompt_tokens=NUMBER" in page
    assert "note: the critic is a small network and not counted" in page
    assert "tflops=NUMBER" in page  # on a CPU
    assert "assumption" not in plan("experiment=llama_critic", "prompt_tokens=30")
    assert "note: the vLLM server: the least it can do with" in plan(*PAPER, "rollout=vllm", "gpus=8")


@pytest.mark.parametrize(
    ("name", "scale"),
    [("llama_critic", "laptop"), ("qwen_critic", "paper"), ("clipo_mlp_head", "paper"), ("critic_text", "laptop")],
)
def test_every_kind_of_experiment_has_a_plan(name: str, scale: str, plan: Plan) -> None:
    assert "GiB on one device" in plan(f"experiment={name}", f"scale={scale}", "gpus=2")


@pytest.mark.parametrize("name", ["critic_joint", "critic_numeric_v1", "critic_numeric_v2"])
def test_plan_of_small_critic_fits_and_names_no_policy(name: str, plan: Plan) -> None:
    for scale in ("gpu", "laptop"):
        page = plan(f"experiment={name}", f"scale={scale}")
        assert page.startswith(f"{name}: no policy, and a critic that is a small network; trainer=")
        assert "\nfits: " in page
        assert "shape: " not in page


@pytest.mark.parametrize("name", ["critic_text", "critic_preference"])
def test_plan_of_text_critic_names_its_language_model(name: str, plan: Plan) -> None:
    page = plan(f"experiment={name}", "scale=gpu")
    assert page.startswith(f"{name}: no policy; HuggingFaceTB/SmolLM2-135M, 135 million parameters, ")
    assert "more in adapters, which are trained; " in page.splitlines()[0]
    assert "fits: needs " in page


def test_text_critic_memory_depends_on_data_batch_size(plan: Plan) -> None:
    memory = r"needs ([\d,.]+) of"
    small, large = (
        number_in(plan("experiment=critic_text", "scale=paper", "gpus=1", f"datamodule.batch_size={size}"), memory)
        for size in (16, 32)
    )
    assert number_in(plan("experiment=critic_text", "scale=paper", "gpus=1"), memory) == small < large
    assert "what to lower: datamodule.batch_size" in plan(
        "experiment=critic_text", "scale=paper", "gpus=1", "gpu_memory=20"
    )


def test_table_has_row_for_every_part() -> None:
    for name, overrides in (("clipo_gsm8k", []), ("llama_critic", ["critic=text"]), ("grpo_gsm8k", ["rollout=vllm"])):
        with initialize_config_module("conf", version_base="1.3"):
            config = compose("config", [f"experiment={name}", "scale=paper", "trainer=gpu", *overrides])
        experiment = experiment_of(config, on_cpu=False, devices=8)
        for moment in experiment.moments(by_name("zero3", 8)):
            assert set(moment.parts) <= set(PARTS)
