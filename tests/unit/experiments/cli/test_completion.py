from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.cli.commands import COMMANDS
from experiments.cli.completion import candidates, completions
from experiments.config.folders import experiment_names, study_names

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([""], [*COMMANDS, "completion", "help"]),
        (["exp", "llama_oracle_p"], ["llama_oracle_potential", "llama_oracle_process"]),
        (["study", "countdown_credit_g"], ["countdown_credit_groups"]),
        (["exp", "llama_critic", "reward.wei"], ["reward.weight="]),
        (["exp", "name=llama_critic", "reward.wei"], ["reward.weight="]),
        (["sweep", "clipo_laptop", "sweep=t"], ["sweep=tau"]),
        (["plan", "grpo_gsm8k", "gpus=8", "gpu_m"], ["gpu_memory="]),
        (["eval", "suite=countdown_l"], ["suite=countdown_laptop"]),
        (["sample", "max"], ["max_tokens="]),
        (["compare", "grpo_laptop", "clipo_lap"], ["clipo_laptop"]),
        (["list", ""], []),
        (["completion", "z"], ["zsh"]),
        (["nothing", ""], []),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_could_stand_at_the_end_of_a_line(words: list[str], found: list[str]) -> None:
    assert candidates(words) == found


def test_names_and_keys_are_offered_together_where_both_may_stand() -> None:
    found = candidates(["exp", ""])
    assert set(experiment_names()) < set(found)
    assert {"optimizer=", "reward."} <= set(found)
    assert set(study_names()) <= set(candidates(["study", ""]))


def test_bash_is_given_what_stands_behind_its_break_and_a_space_behind_whole_words() -> None:
    assert completions("bash", ["exp", "llama_critic", "objective", "=", "gs"]) == ["gspo "]
    assert "gspo " in completions("bash", ["exp", "llama_critic", "objective", "="]), "nothing behind the break yet"
    assert completions("zsh", ["exp", "llama_critic", "objective=gs"]) == ["objective=gspo "]
    assert completions("fish", ["exp", "llama_critic", "objective=gs"]) == ["objective=gspo"]
    assert completions("bash", ["exp", "llama_critic", "reward.wei"]) == ["reward.weight="]


@pytest.fixture
def program(tmp_path: Path) -> dict[str, str]:
    """An environment in which the console command is found."""
    path = tmp_path / "contrastive-reasoning"
    path.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m experiments.cli.main "$@"\n')
    path.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}


def in_shell(shell: str, script: str, environment: dict[str, str]) -> list[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    plain = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run([shell, *plain, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("swe", ["sweep "]),
        ("exp llama_vin", ["llama_vineppo "]),
        ("exp llama_critic objective = gs", ["gspo "]),
        ("exp llama_critic reward.wei", ["reward.weight="]),
        ("exp llama_vin| seed = 1", ["llama_vineppo "]),
    ],
)
def test_a_real_bash_completes_where_the_cursor_stands(line: str, found: list[str], program: dict[str, str]) -> None:
    before, _, behind = line.partition("|")
    cursor = len(before.split())
    words = ["contrastive-reasoning", *before.split(), *behind.split()]
    script = (
        'eval "$(contrastive-reasoning completion bash)"\n'
        f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={cursor}\n"
        "complete -p contrastive-reasoning >/dev/null && _contrastive_reasoning\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    assert in_shell("bash", script, program) == found


def test_a_real_fish_completes(program: dict[str, str]) -> None:
    script = (
        "contrastive-reasoning completion fish | source\n"
        "complete -C 'contrastive-reasoning exp llama_vin'; complete -C 'contrastive-reasoning exp a objective=gs'"
    )
    assert in_shell("fish", script, program) == ["llama_vineppo", "objective=gspo"]


def test_a_real_zsh_reads_its_script(program: dict[str, str]) -> None:
    """What it offers is caught where zsh would take it: completion itself needs a terminal."""
    script = (
        "compdef() { print defined $2 }; compadd() { print -rl -- ${@[5,-1]} }\n"
        'eval "$(contrastive-reasoning completion zsh)"\n'
        "words=(contrastive-reasoning exp llama_vin); CURRENT=3; _contrastive_reasoning"
    )
    assert in_shell("zsh", script, program) == ["defined contrastive-reasoning", "llama_vineppo "]
