"""``python -m experiments.plan``: whole pages, and errors for invalid arguments."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import fields
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from experiments.plan.__main__ import main, parse_arguments
from experiments.schema import Root

ROOT = Path(__file__).resolve().parents[4]
Plan = Callable[..., str]
PAPER = ("experiment=grpo_gsm8k", "scale=paper")
HOURS, MEMORY = r"take at least ([\d.]+) h", r"needs ([\d,.]+) of"


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Returns a function that returns the page for its arguments."""
    monkeypatch.setenv("COLUMNS", "200")
    return page_of


@cache
def page_of(*arguments: str) -> str:
    with redirect_stdout(StringIO()) as out:
        assert main(arguments) == 0
    return out.getvalue()


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
        ("gpus=many", "many"),
        ("gpus=0", "gpus"),
        ("mfu=40", "mfu"),
        ("tflops=-1", "tflops"),
        ("gpu_memory=nan", "gpu_memory"),
        ("completion_tokens=0", "completion_tokens"),
    ],
)
def test_invalid_argument_prints_one_sentence_with_its_name(
    argument: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["experiment=grpo_gsm8k", argument])
    except SystemExit as stop:  # of argparse
        code = stop.code
    assert code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert named in err
    assert err.count("\n") == 1


def test_parse_arguments_takes_own_options_and_keeps_overrides() -> None:
    options, left = parse_arguments([*PAPER, "gpus=8", "mfu=0.3", "trainer=zero2", "budget.grpo.steps=3"])
    assert (options.gpus, options.mfu, options.gpu_memory, options.tflops) == (8, 0.3, 80.0, None)
    assert left == [*PAPER, "trainer=zero2", "budget.grpo.steps=3"]
    names = [f"{field.name}=1" for field in fields(Root)] + ["experiment=x", "sweep=y", "debug=z", "hydra.run.dir=a"]
    assert parse_arguments(names)[1] == names


def test_plan_that_does_not_fit_names_trainer_and_setting(plan: Plan) -> None:
    tight = plan(*PAPER, "gpus=8", "gpu_memory=40")
    assert re.search(r"does not fit: needs [\d.]+ of 40 GiB, in grpo update; trainer=zero\d trainer\.devices=8 ", tight)
    assert ", or choose a smaller policy or adapter=lora\n" in tight
    assert "fits closely: " in plan(*PAPER, "gpus=8"), "less than a tenth would be free"
    alone = plan("experiment=clipo_gsm8k", "scale=gpu", "policy.gradient_checkpointing=false", "gpu_memory=2")
    assert "does not fit: " in alone
    assert "; lower budget.grpo.microbatch_tokens\n" in alone


def test_gpus_lengths_and_microbatches_change_hours_and_memory(plan: Plan) -> None:
    eight = plan(*PAPER, "gpus=8")
    assert number_in(plan(*PAPER, "gpus=4"), HOURS) == pytest.approx(2 * number_in(eight, HOURS), rel=0.01)
    assert number_in(plan(*PAPER, "gpus=8", "budget.grpo.microbatch_tokens=4096"), MEMORY) < number_in(eight, MEMORY)
    shorter = plan(*PAPER, "gpus=8", "completion_tokens=512")
    assert number_in(shorter, HOURS) < number_in(eight, HOURS) / 2
    assert number_in(shorter, MEMORY) == number_in(eight, MEMORY)  # memory is planned for the longest completion
    assert number_in(plan(*PAPER, "gpus=8", "tflops=494.5", "mfu=0.2"), HOURS) == pytest.approx(
        4 * number_in(eight, HOURS), rel=0.01
    )


def test_reference_is_counted_unless_offloaded_or_sharded(plan: Plan) -> None:
    weights = 3_085_938_688 * 4 / 2**30 * 1.05  # 1.05: the slack
    held, offloaded, sharded = (
        number_in(plan(*PAPER, "gpus=8", f"module.offload_reference={off}", f"module.shard_reference={shard}"), MEMORY)
        for off, shard in (("false", "false"), ("true", "false"), ("false", "true"))
    )
    assert held - offloaded == pytest.approx(weights, abs=0.2)
    assert offloaded < sharded < offloaded + weights / 2


def test_page_notes_assumptions_and_omissions(plan: Plan) -> None:
    page = plan("experiment=llama_critic")
    assert "note: prompts of 208 tokens are an assumption: set prompt_tokens=NUMBER" in page
    assert "note: the critic is a small network and not counted" in page
    assert "tflops=NUMBER" in page  # on a CPU
    assert " GiB of this machine, " in page
    assert "assumption" not in plan("experiment=llama_critic", "prompt_tokens=30")
    served = plan(*PAPER, "rollout=vllm", "gpus=8")
    assert "note: the vLLM server: the least it can do with" in served
    assert re.search(r"│ server +│ +[\d.]+ │", served)


@pytest.mark.parametrize(
    ("name", "scale"),
    [("llama_critic", "laptop"), ("qwen_critic", "paper"), ("clipo_mlp_head", "paper"), ("critic_text", "laptop")],
)
def test_every_kind_of_experiment_has_a_plan(name: str, scale: str, plan: Plan) -> None:
    assert "GiB on one device" in plan(f"experiment={name}", f"scale={scale}", "gpus=2")


@pytest.mark.parametrize(("name", "scale"), [("critic_joint", "gpu"), ("critic_numeric_v1", "laptop")])
def test_plan_of_small_critic_fits_and_names_no_policy(name: str, scale: str, plan: Plan) -> None:
    page = plan(f"experiment={name}", f"scale={scale}")
    assert page.startswith(f"{name}: no policy, and a critic that is a small network; trainer=")
    assert "\nfits: " in page
    assert "shape: " not in page


def test_plan_of_text_critic_names_its_language_model(plan: Plan) -> None:
    page = plan("experiment=critic_text", "scale=gpu")
    assert page.startswith("critic_text: no policy; HuggingFaceTB/SmolLM2-135M, 134.5 million parameters, ")
    assert " trained in adapters; " in page.splitlines()[0]
    assert "fits: needs " in page


def test_text_critic_memory_depends_on_data_batch_size(plan: Plan) -> None:
    critic = ("experiment=critic_text", "scale=paper", "gpus=1")
    small, large = (number_in(plan(*critic, f"datamodule.batch_size={size}"), MEMORY) for size in (16, 32))
    assert number_in(plan(*critic), MEMORY) == small < large
    assert "; lower datamodule.batch_size\n" in plan(*critic, "gpu_memory=20")


def test_text_critic_beside_policy_is_counted(plan: Plan) -> None:
    with_critic = plan("experiment=llama_critic", "critic=text", "scale=paper", "trainer=gpu")
    assert re.search(r"│ critic [ │]+[\d.]+ │", with_critic)
