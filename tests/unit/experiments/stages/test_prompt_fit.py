from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from contrastive_reasoning.policies.tiny import train_tokenizer
from experiments.assemble import AssemblyError
from experiments.stages.policy_checks import check_prompts_fit
from tests.tiny_models import tiny_llama
from tests.tiny_tasks import SETTINGS

WITHOUT_NETWORK = """
import time
from experiments.system.terminal import be_quiet
be_quiet()
from huggingface_hub import constants
from experiments.assemble import AssemblyError
from experiments.stages.policy_checks import check_prompts_fit
from tests.config_kit import composed
time.sleep = lambda seconds: None  # before a repeated request
for constants.HF_HUB_OFFLINE in (False, True):
    try:
        check_prompts_fit(composed("experiment=llama_baseline", "debug=fast", "policy.pretrained=someone/model"))
    except AssemblyError as error:
        print(error)
"""
ROOT = Path(__file__).resolve().parents[4]


def config(folder: Path, context: int) -> DictConfig:
    """Saves a tokenizer and a model configuration without weights. Nothing else may be read."""
    tokenizer = train_tokenizer(["9 3 2 = 10\n"], vocab_size=300)
    model = tiny_llama(tokenizer)
    model.config.max_position_embeddings = context
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    task = {
        "_target_": "contrastive_reasoning.tasks.countdown.CountdownTask",
        **SETTINGS,
        "counts": [3],
        "number_range": [10, 30],
        "train_problems": 4,
        "validation_problems": 4,
        "test_problems": 4,
    }
    policy = {"pretrained": str(folder), "trust_remote_code": False, "chat_template": False}
    suite = {"settings": {"main": {"task": "${task}"}}}
    return OmegaConf.create({"stages": ["grpo", "evaluate"], "policy": policy, "task": task, "suite": suite})


def test_prompt_that_fills_context_is_rejected_without_reading_weights(tmp_path: Path) -> None:
    with pytest.raises(
        AssemblyError, match=r"the prompt of problem countdown:\S+ has 1\d tokens, .* context is 8 tokens; .*scale="
    ):
        check_prompts_fit(config(tmp_path, context=8))


def test_prompt_lengths_are_not_checked_for_fresh_policy(tmp_path: Path) -> None:
    fresh = config(tmp_path, context=8)
    fresh.policy.pretrained = None
    assert check_prompts_fit(fresh) is None


def test_prompts_of_suite_tasks_are_checked(tmp_path: Path) -> None:
    long = config(tmp_path, context=64)
    long.suite.settings.main.task = {**long.task, "style": "annotated"}
    with pytest.raises(AssemblyError, match="leaves none for a completion"):
        check_prompts_fit(long)
    long.stages = ["grpo"]
    assert check_prompts_fit(long) is None


def test_missing_policy_folder_raises_assembly_error(tmp_path: Path) -> None:
    missing = config(tmp_path, context=64)
    missing.policy.pretrained = str(tmp_path / "nowhere")
    with pytest.raises(AssemblyError, match=r"policy\.pretrained=\S+nowhere: "):
        check_prompts_fit(missing)


def test_unreachable_hub_is_one_sentence_with_command(tmp_path: Path) -> None:
    unreachable = {"HF_ENDPOINT": "http://127.0.0.1:9", "no_proxy": "127.0.0.1", "HF_HOME": str(tmp_path)}
    command = [sys.executable, "-c", WITHOUT_NETWORK]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | unreachable, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    without, offline = done.stdout.splitlines()
    assert "Connection refused" in without
    for line in (without, offline):
        assert line.startswith("policy.pretrained=someone/model: the hub cannot be reached (")
        assert "make model name=someone/model puts the model into outputs/models/someone--model: " in line


def test_system_message_counts_and_requires_chat_template(tmp_path: Path) -> None:
    system = config(tmp_path, context=64)
    (tmp_path / "chat_template.jinja").write_text("{% for one in messages %}{{ one.content }}{% endfor %}")
    system.policy.chat_template, system.policy.system = True, "Be short."
    assert check_prompts_fit(system) is None
    system.policy.system = "Be short. " * 40
    with pytest.raises(AssemblyError, match="leaves none for a completion"):
        check_prompts_fit(system)
    system.policy.chat_template = False
    with pytest.raises(AssemblyError, match=r"^policy\.system: a system message needs a chat template"):
        check_prompts_fit(system)


def test_limit_below_every_training_prompt_is_rejected(tmp_path: Path) -> None:
    """Problems with longer prompts are left out, so none would be left."""
    limited = config(tmp_path, context=64)
    OmegaConf.update(limited, "prompts.max_prompt_tokens", 8)
    with pytest.raises(
        AssemblyError, match=r"prompts\.max_prompt_tokens=8: each of the 4 training prompts .* has 1\d tokens"
    ):
        check_prompts_fit(limited)
    limited.stages = ["evaluate"]
    assert check_prompts_fit(limited) is None
    OmegaConf.update(limited, "prompts.max_prompt_tokens", 63)
    limited.stages = ["grpo"]
    assert check_prompts_fit(limited) is None
