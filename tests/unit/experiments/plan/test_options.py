from __future__ import annotations

import pytest

from experiments.plan.options import Options, PlanError, parsed


def test_the_plans_own_arguments_are_taken_out_and_overrides_are_left() -> None:
    options, left = parsed(["experiment=grpo_gsm8k", "gpus=8", "mfu=0.3", "scale=paper", "budget.grpo.steps=3"])
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
    with pytest.raises(PlanError, match=sentence):
        parsed([argument])
