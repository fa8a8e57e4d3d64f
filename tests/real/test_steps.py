"""One step of each method on the real model, by the command line, at the smallest sizes with a gradient.

GRPO trains all weights, the others adapters, whose checkpoint is a third as large.
"""

from __future__ import annotations

import html
import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from contrastive_reasoning.tasks.countdown import CountdownProblem, parse_steps
from experiments.run_folder.reader import read_metrics
from lightning_modules.optim import SKIPPED
from tests.forking import Forks
from tests.integration.test_kills import stage
from tests.real.conftest import POSED, SHOTS

pytestmark = pytest.mark.real
OPPOSITES = "hot-cold big-small up-down day-night old-young fast-slow wet-dry happy-sad hard-soft rich-poor left-right"
SIZES = [
    *("scale=workstation", "policy=smollm2", "policy.compute_dtype=float32", "logger.mirror=false"),
    *("budget.grpo.steps=1", "budget.grpo.problems=2", "budget.grpo.group_size=6", "budget.grpo.evaluate_every=1"),
    *("budget.grpo.microbatch_tokens=128", "budget.grpo.validation_problems=1", "rollout.validation_samples=1"),
    *("callbacks.grpo.throughput.peak_flops=1e12", "optimizer.warmup_steps=0"),
]
LEARNING_RATE = 1e-5
ADAPTERS = ["adapter=lora", "policy.lora.rank=4", "budget.grpo.learning_rate=1e-3"]
Step = Callable[..., Path]


@pytest.fixture
def step(run: Forks, model: Path, tmp_path: Path) -> Iterator[Step]:
    """Runs one GRPO step and returns the folder of its stage. It takes 2 GB and is removed after the test."""

    def taken(*words: str) -> Path:
        where = [f"policy.pretrained={model}", f"output_dir={tmp_path / 'outputs'}"]
        assert run(*SIZES, f"budget.grpo.learning_rate={LEARNING_RATE}", *where, *words) == 0, run.log.read_text()
        return stage(tmp_path / "outputs", "grpo")

    yield taken
    shutil.rmtree(tmp_path)


def opposites(folder: Path) -> list[str]:
    """A user-defined task: the opposite of a word. At temperature 1 many completions contain it."""
    rows = [
        {"prompt": f"What is the opposite of {word}?", "answer": other}
        for word, other in (pair.split("-") for pair in OPPOSITES.split())
    ]
    file = folder / "opposites.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    judge = "task.verifier.function._target_=contrastive_reasoning.tasks.examples.mentions_answer"
    few = ["task.validation_problems=1", "task.test_problems=1", "budget.grpo.max_completion_tokens=12"]
    return ["experiment=grpo_laptop", "task=rows", f"task.path={file}", judge, "stages=[grpo]", *few]


def test_grpo_step_moves_weights_by_learning_rate(step: Step, model: Path, tmp_path: Path) -> None:
    folder = step(*opposites(tmp_path))
    found = metrics(folder)
    assert 0 < found["train/reward/verifier"] < 1
    assert found["train/optimizer/gradient_norm"] > 0
    assert found["train/objective/ratio_max"] == pytest.approx(1, abs=1e-3), "the policy is the one that drew them"
    assert found["train/rollout/log_prob_gap"] < 1e-3
    largest, share = moved(folder, model)
    assert largest == pytest.approx(LEARNING_RATE, rel=0.2), "AdamW's first step, rounded to a large weight"
    assert share > 0.9


def test_gspo_second_update_clips_ratios(step: Step, model: Path, tmp_path: Path) -> None:
    """Two updates on the same rollouts: at the second one, ratios of completions exceed the narrow bounds."""
    folder = step(*opposites(tmp_path), "objective=gspo", "budget.grpo.updates=2", *ADAPTERS)
    found = metrics(folder)
    assert found["train/objective/clip_fraction"] > 0
    assert found["train/objective/ratio_max"] > 1 + 4e-4
    assert_adapters_moved(folder, model)


def test_clipo_shapes_only_correct_completions_of_mixed_groups(step: Step, model: Path, tmp_path: Path) -> None:
    """Correct completions of mixed groups get r + max(−λL, −0.5), all others get r."""
    folder = step(*opposites(tmp_path), "reward=clipo", "budget.clipo.warmup_steps=0", *ADAPTERS)
    found = metrics(folder)
    rows = json.loads((folder / "tables" / "train" / "completions" / "1.json").read_text())
    assert len(rows) == 12
    shaped = []
    for _, group in groupby(rows, key=lambda row: row["problem"]):
        group = list(group)
        correct = [row for row in group if row["status"] == "ok"]
        mixed = 1 < len(correct) < len(group)
        shaped += [row["reward/clipo"] for row in correct if mixed]
        assert all(row["reward/clipo"] == 0 for row in group if not (mixed and row in correct))
        assert all(row["reward"] == pytest.approx(row["reward/verifier"] + row["reward/clipo"]) for row in group)
    assert shaped
    assert all(-0.5 <= value < 0 for value in shaped)
    assert sum(shaped) / len(shaped) >= -0.2 * found["train/clipo/loss"] - 1e-6, "the floor can only raise it"
    assert found["train/reward/outcome"] < found["train/reward/verifier"]
    assert found["train/optimizer/gradient_norm"] > 0
    assert_adapters_moved(folder, model)


def test_critic_credit_changes_advantage_of_whole_steps_only(step: Step, model: Path, tmp_path: Path) -> None:
    """Outside its steps a completion has the advantage of its outcome. Other advantages are on whole steps."""
    template = tmp_path / "template.txt"
    template.write_text(SHOTS + POSED)
    game = [f"task.prompt_file={template}", "task.number_range=[1,9]", "task.target_range=[10,30]"]
    game += ["policy.chat_template=false", "rollout.sampling.stop=['\n']", "rollout.sampling.temperature=0.7"]
    game += ["budget.grpo.max_prompt_tokens=null", "budget.grpo.max_completion_tokens=18"]
    critic = ["budget.critic.steps=4", "budget.critic.batch_size=16", "budget.critic.trajectories=200"]
    critic += ["budget.critic.warmup_steps=1", "budget.critic.evaluate_every=4", "budget.critic.checkpoint_every=4"]
    critic += [
        "callbacks.critic.embedding_projection.points=40",
        "callbacks.critic.embedding_projection.perplexity=5.0",
    ]
    few = ["task.train_problems=32", "task.validation_problems=16", "task.test_problems=16"]
    folder = step("experiment=llama_critic_process", "stages=[critic,grpo]", *game, *critic, *few, *ADAPTERS)
    page = (folder / "pages" / "train" / "credit" / "1.html").read_text()
    credited = 0
    for tokens in re.findall(r"<pre>(.*?)</pre>", page, flags=re.DOTALL):
        spelled = [
            (html.unescape(text), value) for value, text in re.findall(r'title="(.*?)">(.*?)</span>', tokens, re.S)
        ]
        text = "".join(text for text, _ in spelled).partition("↵")[0]
        problem = CountdownProblem((1, 2, 3), 10, style="direct")  # the positions of steps do not depend on it
        steps = [text[move.start : move.end] for move in parse_steps(problem, text)]
        outcome = spelled[-1][1]
        runs = [list(run) for apart, run in groupby(spelled, key=lambda token: token[1] != outcome) if apart]
        assert all("".join(text for text, _ in run) in steps for run in runs)
        assert all(len({value for _, value in run}) == 1 for run in runs)
        credited += len(runs)
    assert credited >= 2
    assert metrics(folder)["train/optimizer/gradient_norm"] > 0
    assert_adapters_moved(folder, model)


def metrics(folder: Path) -> dict[str, float]:
    """Returns the metrics of the step; asserts that all are finite."""
    found = {metric.name: metric.value for metric in read_metrics(folder)}
    assert all(map(math.isfinite, found.values()))
    assert found[SKIPPED] == 0
    return found


def changes(folder: Path, model: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields how far each weight of the saved policy is from that of the model."""
    start, saved = (load_file(where / "model.safetensors") for where in (model, folder / "policy"))
    assert start.keys() == saved.keys()
    return ((name, (saved[name] - weight.float()).abs()) for name, weight in start.items())


def moved(folder: Path, model: Path) -> tuple[float, float]:
    """Returns the largest change of a weight and the share of changed weights, both without embeddings."""
    parts = [change for name, change in changes(folder, model) if "embed" not in name]
    total = sum(part.numel() for part in parts)
    return max(part.max().item() for part in parts), sum(int((part > 0).sum()) for part in parts) / total


def assert_adapters_moved(folder: Path, model: Path) -> None:
    """They are merged into every matrix of the layers; all other weights are unchanged."""
    names = {name for name, change in changes(folder, model) if change.any()}
    assert len(names) == 30 * 7
    assert all(name.endswith("_proj.weight") for name in names)
