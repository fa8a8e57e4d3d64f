from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.system.files import write_json, write_text, write_yaml
from experiments.system.secrets import (
    hide_secrets,
    secret_finder,
    shorten_override,
    shorten_paths,
    without_login,
    without_paths,
)

SENTINEL = "sentinel-0123456789"
SECRETS = """
    HF_TOKEN HUGGING_FACE_HUB_TOKEN MLFLOW_TRACKING_TOKEN MLFLOW_TRACKING_PASSWORD AWS_SECRET_ACCESS_KEY
    AWS_SESSION_TOKEN OPENAI_API_KEY ANTHROPIC_APIKEY WANDB_API_KEY GITHUB_PAT PGPASSWORD azure_client_secret
    DB_PASS PGPASS MY_PWD BASIC_AUTH GOOGLE_CREDENTIALS SLACK_WEBHOOK SENTRY_DSN
"""
OPEN = """
    HOME PATH USER TOKENIZERS_PARALLELISM MLFLOW_TRACKING_URI OMP_NUM_THREADS KEYBOARD PATIENCE PWD OLDPWD
    SSH_AUTH_SOCK COMPASS
"""


def test_secrets_are_recognised_by_variable_name() -> None:
    text = f"a {SENTINEL} b"
    for name in SECRETS.split():
        assert hide_secrets(text, {name: SENTINEL}) == "a *** b"
        assert secret_finder({name: SENTINEL})(text) == name
        assert secret_finder({})(f"${{oc.env:{name}}}/x") == secret_finder({})(f"${{oc.env:{name},default}}") == name
    for name in OPEN.split():
        assert hide_secrets(text, {name: SENTINEL}) == text
        assert secret_finder({name: SENTINEL})(f"{SENTINEL} ${{oc.env:{name}}}") is None


@pytest.mark.parametrize("secret", ['ab"cd\\efgh-ijkl', "pass\tword\n0123", "schlüssel-0123"])
def test_secrets_are_hidden_in_json_escapes(secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    write_json(tmp_path / "a.json", {"said": f"x {secret} y"})
    assert json.loads((tmp_path / "a.json").read_text()) == {"said": "x *** y"}
    assert hide_secrets(json.dumps({"said": secret}), {"OPENAI_API_KEY": secret}) == '{"said": "***"}'


def test_login_in_url_is_secret_in_any_variable() -> None:
    environment = {"MLFLOW_TRACKING_URI": "https://me:open%2Fsesame99@tracker.example:5000/x"}
    for text in ("me:open%2Fsesame99", "open/sesame99", environment["MLFLOW_TRACKING_URI"]):
        assert "sesame" not in hide_secrets(f"connecting to {text}", environment)
        assert secret_finder(environment)(text) == "MLFLOW_TRACKING_URI"
    assert hide_secrets("https://tracker.example:5000/x", environment) == "https://tracker.example:5000/x"


def test_without_login_removes_login_from_url() -> None:
    for address, shown in {
        "https://me:word@host:1/x": "https://host:1/x",
        "http://token@host": "http://host",
        "http://host:5000/a@b": "http://host:5000/a@b",
        "sqlite:////tmp/a@b/mlflow.db": "sqlite:////tmp/a@b/mlflow.db",
        "postgresql+psycopg2://me:word@host/db": "postgresql+psycopg2://host/db",
    }.items():
        assert without_login(address) == shown


@pytest.mark.parametrize(
    ("environment", "text", "shown"),
    [
        ({"OPENAI_API_KEY": "ab/cd+ef-0123"}, "https://host/?key=ab%2Fcd%2Bef-0123", "https://host/?key=***"),
        ({"SOME_KEY": "no key", "API_KEY": ""}, "no key", "no key"),
        ({"A_TOKEN": "abcdefgh", "B_TOKEN": "abcdefghijkl"}, "abcdefghijkl abcdefgh", "*** ***"),
    ],
    ids=["as an address writes it", "short values occur by chance", "the longer of two is hidden whole"],
)
def test_hide_secrets_handles_encoded_short_and_overlapping_values(
    environment: dict[str, str], text: str, shown: str
) -> None:
    assert hide_secrets(text, environment) == shown


def test_written_files_contain_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SENTINEL)
    write_text(tmp_path / "a.txt", f"key {SENTINEL}\n")
    write_json(tmp_path / "a.json", {"key": SENTINEL, SENTINEL: [1]})
    write_yaml(tmp_path / "a.yaml", {"key": SENTINEL})
    assert not [path for path in tmp_path.iterdir() if SENTINEL in path.read_text()]
    assert json.loads((tmp_path / "a.json").read_text()) == {"key": "***", "***": [1]}


TAGS = ["</think>", "[/THINK]", "<|/think|>", "◁/think▷", "</seed:think>", "</answer>"]


def test_tags_are_no_paths() -> None:
    assert without_paths(" ".join(TAGS)) == " ".join(TAGS)
    assert shorten_paths({"thought_ends": TAGS}) == {"thought_ends": TAGS}
    assert shorten_override(f"thought_ends=[{','.join(TAGS[:1])}]") == "thought_ends=[</think>]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("saved to /home/ann/x.y/z, done", "saved to …/z, done"),
        ("a=~/models/x b=[/home/ann/x,/home/ann/y]", "a=…/x b=[…/x,…/y]"),
        ("already …/x", "already …/x"),
        ("https://host/x and 1/2", "https://host/x and 1/2"),
    ],
)
def test_paths_in_text_are_cut(text: str, shown: str) -> None:
    assert without_paths(text) == shown


@pytest.mark.parametrize(
    "path",
    [
        *("/data/run=1/secret", "/home/ann/my models/x", "/home/ann/a,b/c", "/0/ann", "/x/[y]/z/", "~/x", "~ann/x"),
        *("file:/x/y", "file:///x y/z", "sqlite:////x/y.db", "/one"),
    ],
)
def test_string_that_is_a_path_is_cut_wholly(path: str) -> None:
    cut = f"…/{path.rstrip('/').rpartition('/')[2]}"
    assert shorten_paths({"a": [{"b": path}, 1, None]}) == {"a": [{"b": cut}, 1, None]}
    assert shorten_override(f"key={path}") == f"key={cut}"
    assert shorten_override(f"key='{path}'") == f"key='{cut}'"
    assert shorten_override(f"key=['{path}',b, '{path}']") == f"key=['{cut}',b, '{cut}']"


@pytest.mark.parametrize("value", ["a/b", "/", "~", "5", "https://host/x", "say /x", ""])
def test_string_that_is_no_path_is_unchanged(value: str) -> None:
    assert shorten_paths([value]) == [value]
    assert shorten_override(f"key={value}") == f"key={value}"
