"""``make dashboard``: pages for this machine alone, and what is sent to a server by an address with a login in it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from experiments.carry import Carrier
from experiments.files import write_json
from experiments.run_tree import read_json
from experiments.sent import MEMORY_FILE
from experiments.track import Tracker
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
LOGIN = "me:opensesame"


def recipe() -> list[str]:
    """The command of the Makefile's target, its variables filled in as ``make`` does."""
    text = (ROOT / "Makefile").read_text()
    (line,) = re.findall(r"^dashboard:.*\n\t@(.*)$", text, re.MULTILINE)
    command = line.replace("$(BIN)", str(ROOT / ".venv" / "bin")).replace("$$", "$")
    return shlex.split(
        subprocess.run(["sh", "-c", f"echo {command}"], capture_output=True, text=True, check=True).stdout
    )


def test_the_dashboard_is_bound_to_this_machine() -> None:
    command = recipe()
    assert command[0].endswith("bin/mlflow")
    assert command[command.index("--host") + 1] == "127.0.0.1"


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Of the dashboard, started as the Makefile does, on a free port and over an empty database."""
    port = free_port()
    command = [*recipe(), "--port", str(port), "--default-artifact-root", str(tmp_path / "artifacts"), "--workers", "1"]
    command[command.index("--backend-store-uri") + 1] = f"sqlite:///{tmp_path / 'mlflow.db'}"
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            break
        assert process.poll() is None, (tmp_path / "server.log").read_text()
        time.sleep(0.5)
    yield port
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(60)


def listening(port: int) -> set[str]:
    """The addresses on which this machine listens at a port, as the kernel writes them."""
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {place.split(":")[0] for _, place, _, state, *_ in lines if state == "0A" and int(place[-4:], 16) == port}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the kernel does not tell")
def test_the_dashboard_listens_on_loopback_and_a_login_is_written_nowhere(port: int, tmp_path: Path) -> None:
    assert listening(port) == {"0100007F"}
    run = tmp_path / "outputs" / "runs" / "name" / "now"
    run.mkdir(parents=True)
    write_json(run / "stages.json", {})
    write_json(run / "summary.json", {})
    (run / "config.yaml").write_text("seed: 0\n")
    tracker = Tracker(f"http://{LOGIN}@127.0.0.1:{port}")
    Carrier(run, tracker).carry(live=False)
    assert [found.status for found in tracker.runs(["name"], kind="experiment")] == ["FINISHED"]
    assert list(read_json(run / MEMORY_FILE)) == [f"http://127.0.0.1:{port}"]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"opensesame" in path.read_bytes()]
