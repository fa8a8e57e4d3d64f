"""The GPU check as a command, on the CPU with a small policy. Its page reports what works and what fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from contrastive_reasoning.policies.tiny import train_tokenizer
from tests.tiny_models import tiny_llama

EXPERIMENT = "clipo_laptop debug=fast stages=[warm_start,grpo] policy.compute_dtype=float32 budget.clipo.warmup_steps=1"
EXPERIMENT += " budget.grpo.validation_problems=2"
AT_LEISURE = "minutes=300"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer(["Tom has 3 apples and buys 4 more. How many apples does Tom have?"], vocab_size=300)
    tiny_llama(tokenizer, hidden_size=32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def run_check(model: Path, outputs: Path, *settings: str) -> tuple[int, str, str]:
    """Exit code, output, and the page."""
    given = ["device=cpu", f"output_dir={outputs}", *settings]
    command = [sys.executable, "-m", "benchmarks.gpu_check", str(model), *given]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, (outputs / "gpu_check" / "gpu.md").read_text()


def figures(page: str, part: str) -> dict[str, str]:
    found = [line.strip("| ").split(" | ") for line in page.partition("## Figures")[2].splitlines() if line[:2] == "| "]
    return {what: number for name, what, number in found if name == f"`{part}`"}


@pytest.mark.whole
def test_page_has_figures_of_runs_with_engine_and_server_rollouts(model: Path, tmp_path: Path) -> None:
    server = f"vllm={sys.executable} -m tests.contract.served"
    code, output, page = run_check(
        model, tmp_path, "parts=experiment,vllm", f"experiment={EXPERIMENT}", server, AT_LEISURE
    )
    assert code == 0, output
    assert "| `bench` | not run | 0 s | it was not chosen |" in page
    assert "\n## What failed\n\nNothing.\n" in page
    for part, steps in (("experiment", 3), ("vllm", 4)):  # one of them is the warm-up before the policy's first
        of_part = figures(page, part)
        assert of_part["steps"] == str(steps)
        assert all(float(of_part[name]) > 0 for name in ("seconds a step", "peak memory of the trainer, MB"))
        assert float(of_part["largest gap between log-probs of rollout and trainer"]) < 1e-4


@pytest.mark.slow  # bfloat16 on a processor that does not multiply it natively
def test_page_has_both_rooflines_and_reason_for_skipped_tests(model: Path, tmp_path: Path) -> None:
    code, output, page = run_check(model, tmp_path, "parts=tests,roofline", AT_LEISURE)
    assert code == 0, output
    shares = figures(page, "roofline")
    assert [name.split(":")[0] for name in shares] == ["update_roofline", "decode_roofline"]
    assert all(float(share.split()[0]) > 0 for share in shares.values())
    (tests,) = [line for line in page.splitlines() if line.startswith("| `tests` | not run |")] or [""]
    assert ("tests were skipped: needs a CUDA device |" in tests) == (not torch.cuda.is_available())


@pytest.mark.whole
def test_failed_part_is_reported_with_reason_and_next_part_runs(model: Path, tmp_path: Path) -> None:
    wrong = f"{EXPERIMENT} budget.grpo.group_size=0"
    code, _, page = run_check(model, tmp_path, "parts=experiment,vllm", f"experiment={wrong}", "vllm=false")
    assert code == 1
    failed = page.partition("## What failed")[2].partition("## Figures")[0]
    assert "| `experiment` | experiment | exit code " in failed
    assert "group_size" in failed
    assert "| `vllm` | server | exit code 1: no output |" in failed
