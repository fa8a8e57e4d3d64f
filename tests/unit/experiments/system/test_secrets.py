from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.system.files import write_json, write_text, write_yaml
from experiments.system.secrets import hide_secrets, is_secret, secret_finder, without_login

SENTINEL = "sentinel-0123456789"
SECRETS = [
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "MLFLOW_TRACKING_TOKEN",
    "MLFLOW_TRACKING_PASSWORD",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "OPENAI_API_KEY",
    "ANTHROPIC_APIKEY",
    "WANDB_API_KEY",
    "GITHUB_PAT",
    "PGPASSWORD",
    "azure_client_secret",
    "DB_PASS",
    "PGPASS",
    "MY_PWD",
    "BASIC_AUTH",
    "GOOGLE_CREDENTIALS",
    "SLACK_WEBHOOK",
    "SENTRY_DSN",
]
OPEN = [
    "HOME",
    "PATH",
    "USER",
    "TOKENIZERS_PARALLELISM",
    "MLFLOW_TRACKING_URI",
    "OMP_NUM_THREADS",
    "KEYBOARD",
    "PATIENCE",
    "PWD",
    "OLDPWD",
    "SSH_AUTH_SOCK",
    "COMPASS",
]


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_known_by_its_name(name: str) -> None:
    assert is_secret(name)
    environment = {name: SENTINEL}
    assert hide_secrets(f"a {SENTINEL} b", environment) == "a *** b"
    assert secret_finder(environment)(f"a {SENTINEL} b") == name
    assert secret_finder({})(f"${{oc.env:{name}}}/x") == name
    assert secret_finder({})(f"${{oc.env:{name},default}}") == name


@pytest.mark.parametrize("name", OPEN)
def test_what_is_no_secret_is_left_alone(name: str) -> None:
    assert not is_secret(name)
    assert hide_secrets(SENTINEL, {name: SENTINEL}) == SENTINEL
    assert secret_finder({name: SENTINEL})(f"{SENTINEL} ${{oc.env:{name}}}") is None


@pytest.mark.parametrize("secret", ['ab"cd\\efgh-ijkl', "pass\tword\n0123", "schlüssel-0123"])
def test_a_secret_is_hidden_as_json_writes_it_too(secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    write_json(tmp_path / "a.json", {"said": f"x {secret} y"})
    assert json.loads((tmp_path / "a.json").read_text()) == {"said": "x *** y"}
    assert hide_secrets(json.dumps({"said": secret}), {"OPENAI_API_KEY": secret}) == '{"said": "***"}'


def test_a_login_is_secret_in_whichever_variable_it_stands() -> None:
    environment = {"MLFLOW_TRACKING_URI": "https://me:open%2Fsesame99@tracker.example:5000/x"}
    for text in ("me:open%2Fsesame99", "open/sesame99", environment["MLFLOW_TRACKING_URI"]):
        assert "sesame" not in hide_secrets(f"connecting to {text}", environment)
        assert secret_finder(environment)(text) == "MLFLOW_TRACKING_URI"
    assert hide_secrets("https://tracker.example:5000/x", environment) == "https://tracker.example:5000/x"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://me:word@host:1/x", "https://host:1/x"),
        ("http://token@host", "http://host"),
        ("http://host:5000/a@b", "http://host:5000/a@b"),
        ("sqlite:////tmp/a@b/mlflow.db", "sqlite:////tmp/a@b/mlflow.db"),
        ("postgresql+psycopg2://me:word@host/db", "postgresql+psycopg2://host/db"),
    ],
)
def test_an_address_is_shown_without_its_login(address: str, shown: str) -> None:
    assert without_login(address) == shown


def test_a_secret_is_hidden_as_an_address_writes_it_too() -> None:
    assert (
        hide_secrets("https://host/?key=ab%2Fcd%2Bef-0123", {"OPENAI_API_KEY": "ab/cd+ef-0123"})
        == "https://host/?key=***"
    )


def test_short_values_are_not_looked_for() -> None:
    assert hide_secrets("no key", {"SOME_KEY": "no key", "API_KEY": ""}) == "no key"


def test_the_longer_of_two_secrets_is_hidden_whole() -> None:
    environment = {"A_TOKEN": "abcdefgh", "B_TOKEN": "abcdefghijkl"}
    assert hide_secrets("abcdefghijkl abcdefgh", environment) == "*** ***"


def test_no_file_that_is_shared_holds_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SENTINEL)
    write_text(tmp_path / "a.txt", f"key {SENTINEL}\n")
    write_json(tmp_path / "a.json", {"key": SENTINEL, SENTINEL: [1]})
    write_yaml(tmp_path / "a.yaml", {"key": SENTINEL})
    assert not [path for path in tmp_path.iterdir() if SENTINEL in path.read_text()]
    assert json.loads((tmp_path / "a.json").read_text()) == {"key": "***", "***": [1]}
