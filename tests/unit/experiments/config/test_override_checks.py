from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from experiments.config.composition import parse
from experiments.config.folders import CONF, VARIABLE
from experiments.config.hints import install_command
from experiments.config.override_checks import nothing_to_sweep, override_error, override_errors

CRITIC = "experiment=llama_critic_level"
JOBLIB, SUBMITIT = (f"hydra_plugins.{name}" for name in ("hydra_joblib_launcher", "hydra_submitit_launcher"))
ORACLE_MESSAGE = "reward=orcle: no such reward; did you mean 'oracle'?"
REWARD_HINT = "did you mean 'reward.weight' of batch_size, checkpoint, critic, outcome, task, temperature, weight?"


MISTAKES = [
    (["experiment=llama_critc"], "experiment=llama_critc: no such experiment; did you mean 'llama_critic'?"),
    (
        [CRITIC, "objective=grop"],
        "objective=grop: no such objective; "
        "did you mean 'grpo' of cispo, dapo, dr_grpo, gmpo, grpo, grpo_full_kl, gspo?",
    ),
    ([CRITIC, "sed=1"], "sed: no such key; did you mean 'seed'?"),
    ([CRITIC, "objektive=grpo"], "objektive: no such key; did you mean 'objective'?"),
    ([CRITIC, "weight=1"], "weight: no such key; did you mean 'reward.weight'?"),
    ([CRITIC, "reward.wieght=0.1"], f"reward.wieght: no such key; {REWARD_HINT}"),
    (
        [CRITIC, "+reward.extra=1"],
        "+reward.extra=1: a new key cannot be added; every argument already has its key, write key=value",
    ),
    ([CRITIC, "~reward.weight"], "~reward.weight: a key cannot be removed; write key=null"),
    ([CRITIC, "seed=abc"], "seed must be a whole number, got the text 'abc'"),
    ([CRITIC, "rollout.sampling=1"], "rollout.sampling=1: it takes a mapping of keys"),
    ([CRITIC, "reward=critic_calibrated", "reward@reward.source=orcle"], ORACLE_MESSAGE),
    ([CRITIC, "reward=critic_steps"], "reward=critic_steps: no such reward; did you mean 'critic'?"),
    ([CRITIC, "seed"], "'seed' is not a valid override: write key=value (Hydra: missing EQUAL at '<EOF>')"),
    (
        [CRITIC, "hydra.run.dir=${oc.env:MY_TOKEN}"],
        "hydra.run.dir holds the environment's MY_TOKEN: a configuration is written into every run folder; "
        "what needs it reads it from the environment itself",
    ),
    ([CRITIC, "policy.pretrained=${no.key}"], "policy.pretrained: Interpolation key 'no.key' not found"),
    (
        [CRITIC, "policy.pretrained=${oc.env:NO_SUCH_VARIABLE}/llama"],
        "policy.pretrained: KeyError raised while resolving interpolation: "
        "\"Environment variable 'NO_SUCH_VARIABLE' not found\"",
    ),
]


def test_override_errors_gives_one_sentence_per_mistake() -> None:
    found = [*override_errors(overrides for overrides, _ in MISTAKES)]  # shared overrides are composed once
    assert found == [sentence for _, sentence in MISTAKES]
    assert override_error(MISTAKES[0][0]) == MISTAKES[0][1]


SUGGESTED = {
    "scale=papr": "paper",
    "rollout.sampling.temprature=1.0": "rollout.sampling.temperature",
    "stages=[evalute]": "evaluate",
    "policy.pretrained=embedded:lama_countdown": "embedded:llama_countdown",
    "hydra/launcher=jobib": "joblib",
    "sweep=tau hydra.job.nme=x": "hydra.job.name",
    "seed=1,2 objective=grpo,dpao": "dapo",
}


def test_typo_is_rejected_with_suggestion() -> None:
    for (overrides, suggested), sentence in zip(
        SUGGESTED.items(), override_errors([CRITIC, *overrides.split()] for overrides in SUGGESTED), strict=True
    ):
        assert sentence is not None, overrides
        suggestion, of, others = sentence.partition(" of ")
        assert suggestion.removesuffix("?").endswith(f"did you mean {suggested!r}")
        assert sentence.endswith("?")
        assert "\n" not in sentence
        if of:
            names = others.removesuffix("?").split(", ")
            assert suggested in names or suggested.rpartition(".")[2] in names


@pytest.mark.parametrize(
    ("override", "value"),
    [("seed=0,0", "0"), ("seed=0,1,0", "0"), ("seed=choice(3,3)", "3"), ("reward.temperature=0.1,0.10", "0.1")],
)
def test_value_that_a_sweep_has_twice_is_rejected(override: str, value: str) -> None:
    sentence = override_error(["experiment=clipo_laptop", override]) or ""
    assert override.partition("=")[0] in sentence
    assert f" {value} " in sentence
    assert override_error(["experiment=clipo_laptop", "seed=0,1", "reward.temperature=0.1,0.01"]) is None


def test_several_presets_at_once_are_rejected() -> None:
    """Hydra runs a job for each preset, and none of the values that they sweep."""
    overrides = ["experiment=clipo_laptop", "sweep=tau,group_size"]
    assert (override_error(overrides) or "").startswith("sweep=tau,group_size: ")
    assert override_error([*overrides[:1], "sweep=tau"]) is None


def test_value_that_a_preset_has_twice_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sweep").mkdir()
    text = "# @package _global_\nhydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      seed: 4,4\n"
    (tmp_path / "sweep" / "twice.yaml").write_text(text)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert (override_error(["experiment=clipo_laptop", "sweep=twice"]) or "").startswith("seed=4,4: ")


@pytest.mark.parametrize("key", ["hydra.sweep.dir", "hydra.run.dir"])
def test_home_folder_in_hydras_own_folders_is_rejected(key: str) -> None:
    assert (override_error(["experiment=clipo_laptop", f'{key}="~/x"']) or "").startswith(key)


def test_sweep_preset_values_are_checked_before_first_job() -> None:
    sentence = override_error(["experiment=grpo_laptop", "sweep=tau"])
    assert sentence is not None
    assert sentence.startswith("reward.temperature: no such key; ")
    assert override_error(["experiment=clipo_laptop", "sweep=fixed_head"]) is None
    # the command line wins
    assert override_error(["experiment=clipo_laptop", "sweep=fixed_head", "reward=clipo"]) is None


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        (
            "policy.pretrained=log/epoch=999-step=87999",
            "quote its value, in a shell twice: 'policy.pretrained=\"log/epoch=999-step=87999\"' "
            "(Hydra: mismatched input '=' expecting <EOF>)",
        ),
        (
            "output_dir=out#1",
            "quote its value, in a shell twice: 'output_dir=\"out#1\"' (Hydra: token recognition error at: '#')",
        ),
        (
            "name=größe",
            "quote its value, in a shell twice: 'name=\"größe\"' (Hydra: token recognition error at",
        ),
        (
            "policy.pretrained=FOLDER,b",
            "several values, and this is a single run; to run each of them use make sweep, for one value that holds a "
            "comma quote it: 'policy.pretrained=\"FOLDER,b\"'",
        ),
        ("experiment=grpo_laptop,clipo_laptop", "several values, and this is a single run; to run each of them use"),
    ],
)
def test_value_rejected_by_hydra_grammar_is_shown_quoted(override: str, sentence: str) -> None:
    error = override_error([CRITIC, override], multirun=False)
    assert error is not None
    assert error.startswith((f"{override}: {sentence}", f"{override!r} is not a valid override: {sentence}"))
    quoted = shlex.split(error.partition("quote")[2].partition(": ")[2].partition(" (Hydra")[0]) if "'" in error else []
    assert all(len(parse([line])) == 1 for line in quoted), "what is proposed parses"


def test_escape_sequence_in_override_is_rejected() -> None:
    error = override_error([CRITIC, r'rollout.sampling.stop=["\n"]'])
    assert error is not None
    assert error.startswith(r"rollout.sampling.stop: an override reads \n as two characters")
    assert override_error([CRITIC, 'rollout.sampling.stop=["\n"]']) is None


HEADER = "# @package _global_\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# Mine.\nname: a\n", "{path}: its first line must be '# @package _global_', as in every file of experiment/"),
        (
            f"{HEADER}name: a\nbudget:\n\tgrpo: 1\n",
            "while scanning for the next token found character '\\t' that cannot start any token in "
            '"{path}", line 4, column 1',
        ),
        (
            f"{HEADER}name: a\nname: b\n",
            'while constructing a mapping in "{path}", line 2, column 1 found duplicate key name in "{path}", line 3, '
            "column 1",
        ),
        (
            f"{HEADER}name: a\nrewards: {{weight: 1}}\n",
            "In 'experiment/mine': rewards: no such key; did you mean 'reward'?",
        ),
        (
            f"{HEADER}name: a\nseed: abc\n",
            "In 'experiment/mine': seed must be a whole number, got the text 'abc'",
        ),
        (f"{HEADER}name: a\nseed: ${{nothing.here}}\n", "seed: Interpolation key 'nothing.here' not found"),
        (
            f"{HEADER}defaults:\n  - override /familie: qwen\n",
            "In 'experiment/mine': Could not override 'familie'. No match in the defaults list.",
        ),
    ],
)
def test_error_in_user_file_names_file_or_key_and_reason(text: str, sentence: str, own_folder: Path) -> None:
    (own_folder / "mine.yaml").write_text(text)
    assert override_error(["experiment=mine"]) == sentence.format(path=own_folder / "mine.yaml")


def test_user_file_with_wrong_extension_or_encoding_is_rejected(own_folder: Path) -> None:
    (own_folder / "other.yml").write_text(f"{HEADER}name: a\n")
    (own_folder / "latin.yaml").write_bytes(f"{HEADER}name: café\n".encode("latin-1"))
    ending, encoding = override_error(["experiment=other"]), override_error(["experiment=latin"])
    assert ending is not None
    assert ending.startswith(f"experiment=other: {own_folder / 'other.yml'} must be called other.yaml")
    assert encoding is not None
    assert encoding.startswith(f"{own_folder / 'latin.yaml'}: 'utf-8' codec can't decode byte 0xe9")


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the experiment folder of a user's configuration folder."""
    (tmp_path / "experiment").mkdir()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path / "experiment"


GOOD = [
    "scale=paper family=qwen",
    "reward.weight=0.1,0.2 rollout.group_size=8,16 seed=0,1,2",
    "policy.pretrained=null debug=fast hydra.sweep.dir=elsewhere",
    "trainer.devices=auto",
    "trainer=gpu trainer.devices=[1] trainer.precision=32",
    "trainer.precision=32-true",
    "reward=oracle_calibrated reward@reward.source=oracle_flipped reward.source.flip=0.2",
    "hydra.sweep.dir=x hydra.mode=RUN",
    "hydra.mode=MULTIRUN hydra.verbose=true seed=0,1",
    "hydra.sweeper.max_batch_size=3",
    "+hydra.job.env_set.X=1",
    "hydra/launcher=basic seed=0,1",
    *(["hydra/launcher=joblib hydra.launcher.n_jobs=2 seed=0,1"] if find_spec(JOBLIB) else []),
    *(["hydra/launcher=submitit_slurm hydra.launcher.partition=gpu"] if find_spec(SUBMITIT) else []),
]


def test_valid_overrides_have_no_error() -> None:
    found = override_errors([CRITIC, *overrides.split()] for overrides in GOOD)
    assert dict(zip(GOOD, found, strict=True)) == dict.fromkeys(GOOD)


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
    assert done.stderr == f"reward.wieght: no such key; {REWARD_HINT}\n"


def test_unknown_key_without_near_match_lists_only_groups() -> None:
    keys = ("xqzwk", "qqqq.zz")
    for key, sentence in zip(keys, override_errors([CRITIC, f"{key}=1"] for key in keys), strict=True):
        assert sentence is not None
        start, _, names = sentence.partition("there are ")
        assert start == f"{key.partition('.')[0]}: no such key; "
        assert {"reward", "objective", "seed", "budget"} <= set(names.split(", "))
        assert "." not in names


INVALID_VALUES = [
    (
        "hydra.launcher.n_jobs=2",
        "hydra.launcher.n_jobs: no such key of the chosen launcher; choose another with hydra/l",
    ),
    (
        "hydra.sweeper.n_trials=2",
        "hydra.sweeper.n_trials: no such key of the chosen sweeper; choose another with hydra/s",
    ),
    ("seed=1.5", "seed must be a whole number, got 1.5"),
    ("seed=null", "seed cannot be null"),
    ("hydra.mode=MULTIRN", "hydra.mode: Invalid value 'MULTIRN', expected one of [RUN, MULTIRUN]"),
    ("hydra/job_logging=nonee", "these choices together need hydra/job_logging=nonee, which does not exist; did"),
]


def test_invalid_choices_and_hydra_values_are_rejected() -> None:
    found = override_errors(["experiment=clipo_laptop", *overrides.split()] for overrides, _ in INVALID_VALUES)
    for (_, sentence), message in zip(INVALID_VALUES, found, strict=True):
        assert (message or "").startswith(sentence)


@pytest.mark.skipif(find_spec(JOBLIB) is None, reason="the extra joblib is not installed")
def test_launcher_without_jobs_is_rejected() -> None:
    overrides = ["experiment=clipo_laptop", "seed=0,1", "hydra/launcher=joblib"]
    assert (override_error([*overrides, "hydra.launcher.n_jobs=0"]) or "").startswith("hydra.launcher.n_jobs=0: ")
    assert override_error([*overrides, "hydra.launcher.n_jobs=-1"]) is None


def test_launchers_that_can_be_installed_are_named_with_those_that_are() -> None:
    sentence = override_error(["experiment=clipo_laptop", "hydra.launcher.n_jobs=2"]) or ""
    names = sentence.rpartition("hydra/launcher=")[2].split("|")
    assert {"basic", "joblib", "submitit_slurm"} <= set(names)


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


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("hydra/sweeper=optuna", f"hydra/sweeper=optuna is not installed: {install_command('optuna')}"),
        (
            "reward.temperature=interval(0.01,0.2)",
            "reward.temperature=interval(0.01,0.2): a sweep without steps needs hydra/sweeper=optuna",
        ),
    ],
)
def test_missing_plugin_is_rejected_with_install_command(override: str, sentence: str) -> None:
    if find_spec("optuna"):
        pytest.skip("it is installed here")
    assert override_error(["experiment=clipo_laptop", override]) == sentence
