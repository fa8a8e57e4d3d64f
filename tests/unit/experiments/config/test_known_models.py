"""A run whose policy is not fetched yet: one sentence with the command, before anything is loaded or written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.config.known_models import known_models, missing_model, model_folder
from experiments.config.override_checks import override_error
from tests.config_kit import composed

ROOT = Path(__file__).resolve().parents[4]
NAME = "smollm2-135m-q4"
RUN = ("experiment=llama_baseline", "policy=smollm2")


def missing_model_message(outputs: Path) -> str:
    folder = outputs / "models" / NAME
    return (
        f"policy.pretrained={folder}: no model there; make model name={NAME} over='output_dir={outputs}' puts it into "
        f"{folder}"
    )


def test_run_rejects_missing_model_before_heavy_imports(tmp_path: Path) -> None:
    code = "import sys; from experiments.run import main\n"
    code += "try: main()\nfinally: print({'torch', 'lightning', 'transformers'} & set(sys.modules))"
    command = [sys.executable, "-c", code, *RUN, f"output_dir={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "set()\n", missing_model_message(tmp_path) + "\n")
    assert [*tmp_path.iterdir()] == []


def test_override_error_reports_model_missing_from_output_dir(tmp_path: Path) -> None:
    lines = [*RUN, f"output_dir={tmp_path}"]
    assert override_error(["policy=llama_laptop,smollm2", *lines[::2]], loads=True) == missing_model_message(tmp_path)
    assert override_error(lines) is None, "a plan needs no weights"
    folder = model_folder(NAME, tmp_path)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert missing_model(composed(*lines)) is None


@pytest.mark.parametrize(
    ("overrides", "command"),
    [
        (["policy=smollm2"], f"make model name={NAME} puts it into outputs/models/{NAME}"),
        ([f"policy.pretrained={NAME}"], f"make model name={NAME} puts it into outputs/models/{NAME}"),
        (
            ["policy.pretrained=outputs/models/Qwen--Qwen2.5-0.5B-Instruct"],
            "make model name=Qwen/Qwen2.5-0.5B-Instruct puts it into outputs/models/Qwen--Qwen2.5-0.5B-Instruct",
        ),
        (["policy=smollm2", "stages=[critic]"], None),
        (["policy.pretrained=Qwen/Qwen2.5-0.5B-Instruct"], None),
        (["policy.pretrained=models/mine"], None),
        (["policy.pretrained=null"], None),
    ],
)
def test_missing_model_names_command_only_for_fetched_models(
    overrides: list[str], command: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = missing_model(composed("experiment=llama_baseline", *overrides))
    assert (message and message.partition("no model there; ")[2]) == command


def test_known_model_names_differ_from_hub_names() -> None:
    for name, model in known_models().items():
        assert "/" not in name
        assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
        assert re.search(r"-q\d+$", name), "its weights were quantised, which its name says"
