"""The check of a GPU as a command, on the CPU and with a small policy: what works is on the page, and what fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from contrastive_reasoning.policies.tiny import tiny_llama, train_tokenizer

EXPERIMENT = "clipo_laptop debug=fast stages=[warm_start,grpo] policy.compute_dtype=float32 budget.clipo.warmup_steps=1"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer(["Tom has 3 apples and buys 4 more. How many apples does Tom have?"], vocab_size=300)
    tiny_llama(tokenizer, hidden_size=32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def checked(model: Path, outputs: Path, *settings: str) -> tuple[int, str, str]:
    """Exit code, what was printed, and the page."""
    given = ["device=cpu", f"output_dir={outputs}", *settings]
    command = [sys.executable, "-m", "benchmarks.gpu_check", str(model), *given]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, (outputs / "gpu_check" / "gpu.md").read_text()


def figures(page: str, part: str) -> dict[str, str]:
    found = [line.strip("| ").split(" | ") for line in page.partition("## Figures")[2].splitlines() if line[:1] == "|"]
    return {what: number for name, what, number in found if name == f"`{part}`"}


@pytest.mark.whole
def test_a_page_has_the_figures_of_parts_that_work_and_the_reason_of_one_that_fails(
    model: Path, tmp_path: Path
) -> None:
    server = f"{sys.executable} -m tests.contract.served"
    parts = "parts=tests,experiment,roofline,vllm"
    code, said, page = checked(model, tmp_path, parts, f"experiment={EXPERIMENT}", f"vllm={server}", "minutes=120")
    assert code == 0, said
    assert "| `bench` | not run | 0 s | it was not chosen |" in page
    assert "\n## What failed\n\nNothing.\n" in page
    for part, steps in (("experiment", 3), ("vllm", 4)):  # one of them before the policy's first
        of_part = figures(page, part)
        assert of_part["steps"] == str(steps)
        assert all(float(of_part[name]) > 0 for name in ("seconds a step", "peak memory of the trainer, MB"))
    assert float(figures(page, "vllm")["largest gap between log-probs of rollout and trainer"]) < 1e-4
    (share,) = figures(page, "roofline").values()
    assert float(share.split()[0]) > 0

    wrong = f"{EXPERIMENT} budget.grpo.group_size=0"
    code, said, page = checked(model, tmp_path, "parts=experiment,vllm", f"experiment={wrong}", "vllm=false")
    assert code == 1
    failed = page.partition("## What failed")[2].partition("## Figures")[0]
    assert "| `experiment` | experiment | exit code " in failed
    assert "group_size" in failed
    assert "| `vllm` | server | exit code 1: no output |" in failed


def test_parts_over_their_limit_are_stopped_and_named(model: Path, tmp_path: Path) -> None:
    code, _, page = checked(model, tmp_path, "parts=experiment,roofline", "minutes=0.03")
    assert code == 1
    assert "| `model` | works |" in page
    assert "| `experiment` | experiment | stopped at its time limit of 0 s; " in page
    assert "| `roofline` | benchmark | stopped at its time limit of 0 s; " in page
