"""The walks of docs/bring_your_own.md: each command of the page in small, on the files that the page shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contrastive_reasoning.policies.tiny import train_tokenizer
from experiments.run_folder.reader import read_json, read_metrics
from tests.forking import SHORT, Forks
from tests.integration.test_docs import BLOCK, asked, commands
from tests.tiny_models import tiny_llama

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "bring_your_own.md"
EXAMPLES = ROOT / "docs" / "examples"
NAMED = re.compile(r"^`(docs/examples/\S+)`\n\n```\w+\n(.*?)^```$", re.M | re.S)
"""A file's name, and the block below it."""


TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}>"
SYSTEM_FIRST = "{% if messages[0].role != 'system' %}{{ raise_exception('the first message is lost') }}{% endif %}"


def small_model(folder: Path, template: str = TEMPLATE) -> None:
    """Write the model that ``policy=mine`` names, with a chat template."""
    tokenizer = train_tokenizer(["What is 2 + 2? Be short. 0123456789\n"] * 5, vocab_size=300)
    tokenizer.chat_template = template
    tiny_llama(tokenizer).save_pretrained(folder / "models" / "mine")
    tokenizer.save_pretrained(folder / "models" / "mine")


def parquet_of_verl(folder: Path) -> None:
    """Write ``data/gsm8k`` in verl's format with a system message, and a model whose template requires one."""
    small_model(folder, SYSTEM_FIRST + TEMPLATE)
    (folder / "data" / "gsm8k").mkdir(parents=True)
    for split, numbers in (("train", range(40)), ("test", range(40, 60))):
        rows = [
            {
                "data_source": "openai/gsm8k",
                "prompt": [
                    {"role": "system", "content": "Be short."},
                    {"role": "user", "content": f"What is {number} + {number}?"},
                ],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": str(2 * number)},
                "extra_info": {"split": split, "index": number},
            }
            for number in numbers
        ]
        pq.write_table(pa.Table.from_pylist(rows), folder / "data" / "gsm8k" / f"{split}.parquet")


def nothing(folder: Path) -> None:
    """For a walk that needs no further files."""


def countdown_of_verifiers(folder: Path) -> None:
    """Put the environment where Python finds it; without its library the walk is skipped."""
    pytest.importorskip("verifiers", reason="needs the extra: pip install '.[verifiers]'")
    (folder / "verifiers_countdown").symlink_to(
        ROOT / "integrations" / "verifiers_countdown" / "verifiers_countdown", target_is_directory=True
    )


class Walk(NamedTuple):
    stages: str
    """The stages that are run. The other stages of the experiment do not depend on the walk."""
    leaves: tuple[str, ...]
    """Texts in the configuration of the stage that the walk changes."""
    curve: str
    """A metric that it logs."""
    prepare: Callable[[Path], None] = nothing


WALKS = {
    "Files to start from": Walk("[grpo]", ("mine.short_lines.short_lines",), "train/reward/short_lines"),
    "A task of reasoning-gym": Walk(
        "[warm_start,grpo]",
        ("contrastive_reasoning.tasks.reasoning_gym.gym_task", "max_digits"),
        "train/reward/verifier",
    ),
    "Environments of verifiers": Walk(
        "[warm_start,grpo]",
        ("contrastive_reasoning.tasks.verifiers.verifiers_task", "verifiers-countdown"),
        "train/reward/verifier",
        countdown_of_verifiers,
    ),
    "A task: rows and a function": Walk(
        "[grpo,evaluate]", ("docs.examples.backwards.verify", "docs/examples/backwards.jsonl"), "train/reward/verifier"
    ),
    "A reward": Walk("[grpo]", ("docs.examples.brevity.brevity",), "train/reward/brevity"),
    "A reward from TRL": Walk(
        "[grpo]", ("docs.examples.trl_reward.ends_with_newline",), "train/reward/ends_with_newline"
    ),
    "An objective": Walk("[grpo]", ("docs.examples.reinforce.Reinforce",), "train/objective/loss"),
    "A critic": Walk("[critic,grpo]", ("docs.examples.bag.BagCritic",), "train/reward/critic"),
    "A critic on your own game": Walk("[critic]", ("docs.examples.doors.Doors",), "val/critic/categorical_accuracy"),
    "A model folder": Walk("[grpo]", ("models/mine",), "train/reward/verifier", small_model),
    "Data from verl": Walk("[grpo]", ("data/gsm8k", "models/mine"), "train/reward/verifier", parquet_of_verl),
}


STUDY = "A study: arms, seeds, and what decides"
"""The only section with several runs; ``tests/unit/experiments/jobs/test_own_study.py`` tests its commands."""
IN_TRL = "Rewards of this project in TRL"
"""The only section in which another library trains; ``tests/unit/rewards/test_in_trl.py`` runs its example."""


def section(title: str) -> str:
    return PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_section_has_a_walk() -> None:
    titles = re.findall(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), re.M)
    assert [title for title in titles if title not in (STUDY, IN_TRL)] == list(WALKS)
    assert {STUDY, IN_TRL} <= {*titles}


def test_page_shows_exactly_the_example_files() -> None:
    shown = dict(NAMED.findall(PAGE.read_text(encoding="utf-8")))
    assert shown == {name: (ROOT / name).read_text(encoding="utf-8") for name in shown}
    files = {str(path.relative_to(ROOT)) for kind in ("*.py", "*.yaml") for path in EXAMPLES.rglob(kind)}
    tests = {name for name in files if Path(name).name.startswith("test_")}
    assert files - tests == set(shown)
    assert tests <= {*re.findall(r"`(docs/examples/\S+\.py)`", PAGE.read_text(encoding="utf-8"))}
    blocks = [found["language"] for found in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]
    assert len(blocks) - blocks.count("sh") == len(shown), "no block of code stands without the name of its file"


def test_tests_of_the_example_files_pass() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "-q", "-p", "no:cacheprovider", str(EXAMPLES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert len(re.findall(r"^def test_", "".join(path.read_text() for path in EXAMPLES.glob("test_*.py")), re.M)) == 5


@pytest.mark.whole
@pytest.mark.parametrize("title", WALKS)
def test_walk_uses_files_of_the_page_and_logs_its_metric(title: str, command_line: Forks, tmp_path: Path) -> None:
    walk = WALKS[title]
    walk.prepare(tmp_path)
    folder = run_walk(title, command_line, tmp_path)
    stage = "critic" if "critic" in walk.stages else "grpo"
    config = (stage_folder(folder, stage) / "config.yaml").read_text(encoding="utf-8")
    assert [name for name in walk.leaves if name not in config] == []
    last = walk.stages.strip("[]").replace(",evaluate", "").rpartition(",")[2]
    curves = {measured.name: measured.value for measured in read_metrics(stage_folder(folder, last))}
    assert walk.curve in curves, sorted(curves)


def run_walk(title: str, run: Forks, folder: Path) -> Path:
    """Run the section's command in a folder that has only the page's files; the run folder."""
    *before, block = [found for found in BLOCK.finditer(section(title)) if found["language"] == "sh"]
    for new in before:  # writes files that the command uses
        (words,) = commands(new["text"])
        (program,) = asked(words[1:])
        assert program[1:3] == ["-m", "experiments.new"]
        subprocess.run(
            [sys.executable, *program[1:]], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True
        )
    (words,) = commands(block["text"])
    (program,) = asked(words[1:])
    assert program[1:3] == ["-m", "experiments.run"]
    (folder / "docs").symlink_to(ROOT / "docs")
    small = ["debug=fast", "logger.mirror=false", *SHORT, f"stages={WALKS[title].stages}"]
    assert run(*program[3:], *small, folder=str(folder)) == 0, f"{shlex.join(program)}: {run.log.read_text()}"
    (left,) = (folder / "outputs" / "runs").glob("*/*")
    return left


def stage_folder(run: Path, stage: str) -> Path:
    entries: Any = read_json(run / "stages.json")
    return run.parents[3] / entries[stage]["folder"]
