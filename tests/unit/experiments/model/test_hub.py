"""A model of the hub, fetched by the real client from a local server that responds like the hub."""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlparse

import pytest

NAME, COMMIT = "someone/some-model", "c0ffee" + 34 * "0"
REVISIONS = ("main", "v1", COMMIT)


class Hub:
    """One repository with one commit."""

    def __init__(self) -> None:
        self.files = {
            "config.json": b"{}",
            "tokenizer.json": b'{"version": "1.0"}',
            "model.safetensors": b"w" * 3000,
            "pytorch_model.bin": b"the same weights once more",
            "onnx/model.safetensors": b"and once more",
        }
        self.failing: set[str] = set()
        """Files for which the server responds with 403."""
        self.hashes: dict[str, str] = {}
        """Hashes that differ from those of the files."""
        self.served: list[str] = []

    def described(self) -> list[dict[str, Any]]:
        return [{"rfilename": name, **self.facts(name)} for name in self.files]

    def facts(self, name: str) -> dict[str, Any]:
        content = self.files[name]
        found = {"size": len(content), "blobId": hashlib.sha1(content).hexdigest()}
        if name.endswith(".safetensors"):
            mark = self.etag(name)  # a tree calls it oid, a description sha256
            found["lfs"] = {"sha256": mark, "oid": mark, "size": len(content), "pointerSize": 100}
        return found

    def etag(self, name: str) -> str:
        return self.hashes.get(name) or hashlib.sha256(self.files[name]).hexdigest()

    def handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.answer(urlparse(self.path).path, body=False)

            def do_GET(self) -> None:
                self.answer(urlparse(self.path).path, body=True)

            def answer(self, path: str, *, body: bool) -> None:
                api = f"/api/models/{NAME}"
                if path in {f"{api}/revision/{revision}" for revision in REVISIONS}:
                    description = {
                        "id": NAME,
                        "sha": COMMIT,
                        "siblings": hub.described(),
                        "cardData": {"license": "mit"},
                    }
                    self.send(200, json.dumps(description).encode(), {}, body=body)
                elif path == f"{api}/tree/{COMMIT}":
                    tree = [
                        {"type": "file", "path": name, "oid": hub.facts(name)["blobId"], **hub.facts(name)}
                        for name in hub.files
                    ]
                    self.send(200, json.dumps(tree).encode(), {}, body=body)
                elif (name := path.removeprefix(f"/{NAME}/resolve/{COMMIT}/")) in hub.files:
                    if name in hub.failing:
                        self.send(403, b"", {}, body=body)
                        return
                    if body:
                        hub.served.append(name)
                    self.send(200, hub.files[name], {"ETag": f'"{hub.etag(name)}"', "X-Repo-Commit": COMMIT}, body=body)
                else:
                    code = "RevisionNotFound" if path.startswith(api) else "RepoNotFound"
                    self.send(404, b"", {"X-Error-Code": code, "X-Error-Message": "nothing of that name"}, body=body)

            def send(self, status: int, content: bytes, headers: dict[str, str], *, body: bool) -> None:
                self.send_response(status)
                for key, value in ({"Content-Length": str(len(content))} | headers).items():
                    self.send_header(key, value)
                self.end_headers()
                if body:
                    self.wfile.write(content)

            def log_message(self, *_: object) -> None: ...

        return Handler


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), hub.handler())
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    for variable in ("HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    yield hub
    server.shutdown()
    server.server_close()


def fetch(tmp_path: Path, *arguments: str, name: str = NAME) -> tuple[int, str, str]:
    """Returns exit code, standard output and standard error."""
    command = [sys.executable, "-m", "experiments.model", name, f"output_dir={tmp_path}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    return done.returncode, done.stdout, done.stderr


def files_in_models(outputs: Path) -> list[str]:
    return sorted(path.name for path in (outputs / "models").iterdir() if path.suffix != ".lock")


FOLDER = "someone--some-model"


def test_hub_model_is_fetched_once_and_records_origin(tmp_path: Path, hub: Hub) -> None:
    code, output, error = fetch(tmp_path, "revision=v1")
    folder = tmp_path / "models" / FOLDER
    assert (code, output, error) == (0, f"{NAME} is in {folder}: policy.pretrained={folder}\n", "")
    fetched = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "origin.json"}
    assert fetched == {name: hub.files[name] for name in ("config.json", "tokenizer.json", "model.safetensors")}
    origin = json.loads((folder / "origin.json").read_text())
    assert set(origin.pop("files")) == set(fetched)
    assert origin == {
        "name": NAME,
        "revision": "v1",
        "commit": COMMIT,
        "licence": "mit",
        "versions": {"huggingface_hub": version("huggingface_hub")},
    }
    served = len(hub.served)
    for again in ((), ("revision=v1",), (f"revision={COMMIT}",)):
        assert fetch(tmp_path, *again)[0] == 0
    code, output, error = fetch(tmp_path, "revision=main")
    assert (code, output) == (1, "")
    assert error == (
        f"revision=main: {folder} holds revision v1 (c0ffee000000); remove that folder to fetch another one\n"
    )
    assert len(hub.served) == served


def test_terminal_shows_bars_of_hub_client(tmp_path: Path, hub: Hub) -> None:
    here, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, 100))
    command = [sys.executable, "-m", "experiments.model", NAME, f"output_dir={tmp_path}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, text=True, env=os.environ)
    shown = b""
    while select.select([here], [], [], 1)[0]:  # before the terminal is closed, which may discard its output
        shown += os.read(here, 65536)
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert b"100%" in shown
    os.close(terminal)
    os.close(here)


def test_interrupted_download_is_resumed(tmp_path: Path, hub: Hub) -> None:
    hub.failing = {"model.safetensors"}
    code, output, error = fetch(tmp_path)
    assert (code, output) == (1, "")
    assert error.startswith(f"{NAME}: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "models" / FOLDER).exists()
    before = sorted(hub.served)
    hub.failing.clear()
    assert fetch(tmp_path)[0] == 0
    assert before == ["config.json", "tokenizer.json"]
    assert sorted(hub.served) == [*before[:1], "model.safetensors", *before[1:]], "what was there is not fetched again"
    assert files_in_models(tmp_path) == [FOLDER]


@pytest.mark.parametrize(("name", "revision"), [(NAME, "v2"), ("someone/else", "main")])
def test_unknown_model_or_revision_prints_one_sentence(name: str, revision: str, tmp_path: Path, hub: Hub) -> None:
    code, _, error = fetch(tmp_path, f"revision={revision}", name=name)
    assert code == 1
    assert error.startswith(f"{name} at revision {revision} ")
    assert error.count("\n") == 1
    assert files_in_models(tmp_path) == []


def test_weights_with_wrong_hash_are_rejected(tmp_path: Path, hub: Hub) -> None:
    hub.hashes = {"model.safetensors": 64 * "0"}
    code, _, error = fetch(tmp_path)
    assert code == 1
    assert re.fullmatch(f"{NAME}: model.safetensors .*sha256.*\n", error)
    assert files_in_models(tmp_path) == []


def test_repository_without_safetensors_is_rejected(tmp_path: Path, hub: Hub) -> None:
    del hub.files["model.safetensors"]
    code, _, error = fetch(tmp_path)
    assert code == 1
    assert re.fullmatch(f"{NAME}: .*safetensors.*\n", error)
    assert hub.served == []


@pytest.mark.parametrize(
    "variables", [{"HF_ENDPOINT": "http://127.0.0.1:9"}, {"HF_HUB_OFFLINE": "1"}], ids=["no network", "offline"]
)
def test_unreachable_hub_prints_one_sentence(
    variables: dict[str, str], tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    code, _, error = fetch(tmp_path)
    assert code == 1
    assert error.startswith(f"{NAME}: ")
    assert error.count("\n") == 1
    assert files_in_models(tmp_path) == []
