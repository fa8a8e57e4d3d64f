from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from experiments.config.composition import parse
from experiments.config.folders import CONF, VARIABLE
from experiments.config.override_checks import nothing_to_sweep, override_error, override_errors

CRITIC = "experiment=llama_critic_level"
JOBLIB, SUBMITIT = (f"hydra_plugins.{name}" for name in ("hydra_joblib_launcher", "hydra_submitit_launcher"))


def test_value_that_a_preset_has_twice_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sweep").mkdir()
    text = "# @package _global_\nhydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      seed: 4,4\n"
    (tmp_path / "sweep" / "twice.yaml").write_text(text)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert (override_error(["experiment=clipo_laptop", "sweep=twice"]) or "").startswith("seed=4,4: ")


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("policy.pretrained=log/epoch=999-step=87999", "quote its value.*Hydra: mismatched input '='"),
        ("output_dir=out#1", "quote its value.*Hydra: token recognition error at: '#'"),
        ("name=größe", "quote its value.*Hydra: token recognition error"),
        ("policy.pretrained=FOLDER,b", "several values.*make sweep.*quote it"),
        ("experiment=grpo_laptop,clipo_laptop", "several values.*make sweep.*quote it"),
        ("logger=wandb,csv", r"write logger=\[wandb,csv\]"),
    ],
)
def test_value_that_hydra_would_read_otherwise_is_shown_quoted(override: str, named: str) -> None:
    error = override_error([CRITIC, override], multirun=False) or ""
    assert re.match(rf"'?{override}'?.*: {named}", error)
    quoted = shlex.split(error.partition("quote")[2].partition(": ")[2].partition(" (Hydra")[0])
    key, _, value = override.partition("=")
    assert quoted == ([f'{key}="{value}"'] if "quote" in named else [])
    assert all(len(parse([line])) == 1 for line in quoted), "what is proposed parses"


HEADER = b"# @package _global_\n"
FILES = {
    "header.yaml": (b"# Mine.\nname: a\n", "{path}: .*'# @package _global_'"),
    "tab.yaml": (HEADER + b"name: a\nbudget:\n\tgrpo: 1\n", '.*"{path}", line 4, column 1'),
    "twice.yaml": (HEADER + b"name: a\nname: b\n", '.*duplicate key name in "{path}", line 3, column 1'),
    "latin.yaml": (HEADER + "name: café\n".encode("latin-1"), "{path}: .*utf-8.* byte 0xe9"),
    "unread.yaml": (
        HEADER + b"defaults: [llama_baseline, _self_]\nbudget: {grpo: {stepz: 5}}\n",
        r"budget\.grpo\.stepz: .*'budget\.grpo\.steps'",
    ),
    "part.yaml": (HEADER + b"name: a\nrewards: {weight: 1}\n", "In 'experiment/part': rewards: .*'reward'"),
    "type.yaml": (HEADER + b"name: a\nseed: abc\n", "In 'experiment/type': seed must be a whole number, .*'abc'"),
    "reference.yaml": (HEADER + b"name: a\nseed: ${nothing.here}\n", "seed: .*'nothing.here' not found"),
    "group.yaml": (HEADER + b"defaults:\n  - override /familie: qwen\n", "In 'experiment/group': .*'familie'"),
    "ending.yml": (HEADER + b"name: a\n", "experiment=ending: {path} must be called ending.yaml"),
}


def test_error_in_user_file_names_file_or_key_and_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "experiment").mkdir()
    for name, (text, _) in FILES.items():
        (tmp_path / "experiment" / name).write_bytes(text)
    found = override_errors([f"experiment={name.partition('.')[0]}"] for name in FILES)
    for (name, (_, named)), message in zip(FILES.items(), found, strict=True):
        assert re.match(named.format(path=tmp_path / "experiment" / name), message or ""), message
        assert "\n" not in (message or "")


VALID = [
    "scale=paper family=qwen",
    "reward.weight=0.1,0.2 rollout.group_size=8,16 seed=0,1,2",
    "policy.pretrained=null debug=fast hydra.sweep.dir=elsewhere",
    *(f"trainer.devices={devices}" for devices in ("auto", "2", "'2'")),
    "trainer=gpu trainer.devices=[1] trainer.precision=32",
    "trainer.precision=32-true trainer.strategy=ddp",
    "reward=oracle_calibrated reward@reward.source=oracle_flipped reward.source.flip=0.2",
    "hydra.sweep.dir=x hydra.mode=RUN",
    "hydra.mode=MULTIRUN hydra.verbose=true seed=0,1",
    "hydra.sweeper.max_batch_size=3",
    "+hydra.job.env_set.X=1",
    "hydra/launcher=basic seed=0,1",
    *(["hydra/launcher=joblib hydra.launcher.n_jobs=-1 seed=0,1"] if find_spec(JOBLIB) else []),
    *(["hydra/launcher=submitit_slurm hydra.launcher.partition=gpu"] if find_spec(SUBMITIT) else []),
    "sweep=tau",
    "experiment=clipo_laptop sweep=fixed_head",
    "experiment=clipo_laptop sweep=fixed_head reward=clipo",  # the command line wins
    "adapter=lora policy.lora.rank=4",
    "name=no arm=no baseline=no",  # texts for Hydra's command line
    f"seed=0,20261128123456,{2**63 - 1}",
    *(f"module=grpo {other}" for other in ("objective.kl_weight=0", "stages=[warm_start]")),
    "experiment=grpo_laptop objective=grpo_full_kl module=grpo_reference",
    "experiment=llama_critic_outcomes",
]


def test_valid_overrides_have_no_error() -> None:
    lines = [line.split() if line.startswith("experiment=") else [CRITIC, *line.split()] for line in VALID]
    assert dict(zip(VALID, override_errors(lines), strict=True)) == dict.fromkeys(VALID)


def test_typo_is_rejected_within_three_seconds_without_heavy_imports() -> None:
    script = (
        "import sys; from experiments.run import main\n"
        "sys.argv = ['run', 'experiment=llama_critic_level', 'reward.wieght=0.1']\n"
        "try: main()\n"
        "finally: print([m for m in ('torch', 'lightning', 'mlflow', 'transformers') if m in sys.modules])"
    )
    before = os.times()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    after = os.times()  # CPU time, so that a busy machine does not matter
    assert after.children_user + after.children_system - before.children_user - before.children_system < 3
    assert done.returncode == 2
    assert done.stdout == "[]\n"
    assert re.fullmatch(r"reward\.wieght: .*'reward\.weight'.*\n", done.stderr)


def test_unknown_key_without_near_match_lists_only_groups() -> None:
    keys = ("xqzwk", "qqqq.zz")
    for key, sentence in zip(keys, override_errors([CRITIC, f"{key}=1"] for key in keys), strict=True):
        assert sentence is not None
        start, _, names = sentence.partition("there are ")
        assert start == f"{key.partition('.')[0]}: no such key; "
        assert {"reward", "objective", "seed", "budget"} <= set(names.split(", "))
        assert "." not in names


@pytest.mark.parametrize(
    ("overrides", "sweeps"),
    [
        ([], False),
        (["seed=3", "objective=gspo"], False),
        (["seed=0,1"], True),
        (["sweep=tau"], True),
        (["hydra/launcher=submitit_slurm"], True),
        (["hydra.sweeper.params.seed=0"], True),
    ],
)
def test_multirun_without_several_values_is_rejected_unless_hydra_keys_are_given(
    overrides: list[str], sweeps: bool
) -> None:
    sentence = nothing_to_sweep(["experiment=clipo_laptop", *overrides])
    assert (sentence is None) is sweeps
    presets = "|".join(sorted(path.stem for path in (CONF / "sweep").glob("*.yaml")))
    assert sweeps or (sentence or "").endswith(f", sweep={presets}")
