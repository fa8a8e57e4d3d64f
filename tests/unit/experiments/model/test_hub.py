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
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlparse

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import disable_progress_bars, enable_progress_bars

from experiments.model.__main__ import main

NAME, COMMIT = "someone/some-model", "c0ffee" + 34 * "0"
REVISIONS = ("main", "v1", COMMIT)


class Hub(ThreadingHTTPServer):
    """One repository with one commit."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
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


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.answer(urlparse(self.path).path, body=False)

    def do_GET(self) -> None:
        self.answer(urlparse(self.path).path, body=True)

    def answer(self, path: str, *, body: bool) -> None:
        hub, api = self.server, f"/api/models/{NAME}"
        if path in {f"{api}/revision/{revision}" for revision in REVISIONS}:
            found = {"id": NAME, "sha": COMMIT, "siblings": hub.described(), "cardData": {"license": "mit"}}
            self.send(200, json.dumps(found).encode(), {}, body=body)
        elif path == f"{api}/tree/{COMMIT}":
            facts = {name: hub.facts(name) for name in hub.files}
            tree = [{"type": "file", "path": name, "oid": one["blobId"], **one} for name, one in facts.items()]
            self.send(200, json.dumps(tree).encode(), {}, body=body)
        elif (name := path.removeprefix(f"/{NAME}/resolve/{COMMIT}/")) in hub.failing:
            self.send(403, b"", {}, body=body)
        elif name in hub.files:
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


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """Yields a hub that the client addresses, here, where it was imported, and in a process of its own."""
    hub = Hub()
    Thread(target=hub.serve_forever, args=(0.01,), daemon=True).start()
    proxies = [name for name in os.environ if name.lower().endswith("_proxy")]
    for variable in ("HF_HUB_OFFLINE", "HF_TOKEN", "HF_HUB_DISABLE_PROGRESS_BARS", *proxies):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    of_file = f"{hub.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", of_file)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    disable_progress_bars()
    yield hub
    enable_progress_bars()
    hub.shutdown()
    hub.server_close()


@pytest.fixture
def failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Returns a function that fetches a model in vain, and returns the only sentence."""

    def fetch_in_vain(*arguments: str, name: str = NAME) -> str:
        assert main([name, f"output_dir={tmp_path}", *arguments]) == 1
        output, error = capsys.readouterr()
        assert (output, error.count("\n")) == ("", 1)
        return error

    return fetch_in_vain


def files_in_models(outputs: Path) -> list[str]:
    return sorted(path.name for path in (outputs / "models").iterdir() if path.suffix != ".lock")


FOLDER = "someone--some-model"


def test_hub_model_is_fetched_once_and_records_origin(
    tmp_path: Path, hub: Hub, failure: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "experiments.model", NAME, f"output_dir={tmp_path}", "revision=v1"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    folder = tmp_path / "models" / FOLDER
    printed = (0, f"{NAME} is in {folder}: policy.pretrained={folder}\n", "")
    assert (done.returncode, done.stdout, done.stderr) == printed
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
        assert main([NAME, f"output_dir={tmp_path}", *again]) == 0
    capsys.readouterr()
    assert failure("revision=main").startswith(f"revision=main: {folder} holds revision v1 (c0ffee000000); ")
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


def test_interrupted_download_is_resumed(tmp_path: Path, hub: Hub, failure: Callable[..., str]) -> None:
    hub.failing = {"model.safetensors"}
    assert failure().startswith(f"{NAME}: ")
    assert not (tmp_path / "models" / FOLDER).exists()
    before = sorted(hub.served)
    hub.failing.clear()
    assert main([NAME, f"output_dir={tmp_path}"]) == 0
    assert before == ["config.json", "tokenizer.json"]
    assert sorted(hub.served) == [*before[:1], "model.safetensors", *before[1:]], "what was there is not fetched again"
    assert files_in_models(tmp_path) == [FOLDER]


@pytest.mark.parametrize(("name", "revision"), [(NAME, "v2"), ("someone/else", "main")])
def test_unknown_model_or_revision_prints_one_sentence(
    name: str, revision: str, tmp_path: Path, hub: Hub, failure: Callable[..., str]
) -> None:
    assert failure(f"revision={revision}", name=name).startswith(f"{name} at revision {revision} ")
    assert files_in_models(tmp_path) == []


def test_wrong_hash_and_missing_safetensors_are_rejected(tmp_path: Path, hub: Hub, failure: Callable[..., str]) -> None:
    hub.hashes = {"model.safetensors": 64 * "0"}
    assert re.fullmatch(f"{NAME}: model.safetensors .*sha256.*\n", failure())
    assert files_in_models(tmp_path) == []
    hub.served.clear()
    del hub.files["model.safetensors"]
    assert re.fullmatch(f"{NAME}: .*safetensors.*\n", failure())
    assert hub.served == []


@pytest.mark.parametrize(("name", "value"), [("ENDPOINT", "http://127.0.0.1:9"), ("HF_HUB_OFFLINE", True)])
def test_unreachable_hub_prints_one_sentence(
    name: str, value: Any, tmp_path: Path, hub: Hub, failure: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, name, value)
    assert failure().startswith(f"{NAME}: ")
    assert files_in_models(tmp_path) == []
