"""Publish what a run has trained on the Hugging Face hub:  make publish model=outputs/runs/NAME/DATE repo=OWNER/NAME

python -m experiments.publish model=RUN [repo=OWNER/NAME] [part=policy] [private=true|false] [output_dir=outputs]

    outputs/published/NAME-DATE-policy/    README.md, config.json, model.safetensors, tokenizer.json, …

The folder is written first, without a network, and then pushed if ``repo`` is given.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from experiments.cli.commands import COMMANDS
from experiments.config.hints import IN_A_CLONE, command_line, did_you_mean
from experiments.config.known_models import HUB_NAME
from experiments.run_folder.reader import CRITIC, POLICY, RESULT, STAGES, read_config, read_json, stage_folders
from experiments.stages.checkpoints import newest
from experiments.stages.stage_manifest import find_damage
from experiments.system.files import write_json, write_text
from experiments.system.launch import FAILED
from experiments.system.secrets import hide_secrets, shorten_paths
from experiments.system.terminal import USAGE_ERROR, be_quiet, first_line, one_line, protect_output

PARTS = {POLICY: ("grpo", "warm_start"), CRITIC: ("critic",), "clipo": ("grpo",)}
"""What is published, and the stages that train it, the last one first."""
LOCAL_KEYS = ("_name_or_path", "name_or_path")
"""Keys in the JSON files of transformers that may have a local path."""


class NotPublished(Exception):
    """Raised if the hub does not take a folder; the message is one clause."""


def main(arguments: Sequence[str]) -> int:
    options = COMMANDS["publish"].read(arguments)
    try:
        run = checked(options.model, options.repo, options.part)
        folder = write_folder(run, options.part, Path(options.output_dir) / "published")
    except ValueError as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR
    except OSError as error:
        print(f"{options.model}: {one_line(error)}", file=sys.stderr)
        return FAILED
    print(f"{folder} is complete")
    if options.repo is None:
        return 0
    try:
        print(f"published: {push(folder, options.repo, part=options.part, private=options.private)}")
    except ValueError as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR
    except NotPublished as error:
        given = {"part": options.part, "private": options.private}
        more = " ".join(f"{key}={value}" for key, value in given.items() if value not in (None, POLICY))
        more = f"over='{more}'" if more and IN_A_CLONE else more
        again = command_line("publish", "", f"model={quote(options.model)} repo={options.repo} {more}".strip())
        sentence = f"{options.repo}: {error}; {folder} is complete, push it later by {again}"
        print(hide_secrets(sentence), file=sys.stderr)
        return FAILED
    return 0


def checked(model: str | None, repo: str | None, part: str) -> Path:
    """Returns the run folder. Raises ValueError, of one sentence, for an argument that cannot be used."""
    if model is None or not (run := Path(model).expanduser()).joinpath(STAGES).is_file():
        raise ValueError(
            f"model={model or ''}: no run there ({STAGES} is missing); give a folder of outputs/runs, model=RUN"
        )
    if part not in PARTS:
        raise ValueError(f"part={part}: no such part; {did_you_mean(part, PARTS, names=PARTS)}")
    if repo is not None and not HUB_NAME.fullmatch(repo):
        raise ValueError(f"repo={repo}: no name of the hub, OWNER/NAME")
    return run


def write_folder(run: Path, part: str, root: Path) -> Path:
    """Writes weights, configuration, tokenizer and card into a folder of ``root``, which replaces an earlier one.

    Raises ValueError if the run has not trained this part to the end, or its files are damaged.
    """
    from experiments.publish.card import card  # slow: it imports the statistics

    stage = trained(run, part)
    head = head_of(stage) if part == "clipo" else None
    folder = root / f"{run.parent.name}-{run.name}-{part}"
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    if head is not None:
        from safetensors.torch import save_file

        save_file(head, partial / "clipo.safetensors")
        write_json(partial / "clipo.json", shorten_paths(read_config(stage)["reward"]))
    else:
        shutil.copytree(stage / part, partial, dirs_exist_ok=True)
    for path in partial.glob("*config.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        write_json(path, {key: value for key, value in content.items() if key not in LOCAL_KEYS})
    if part == CRITIC:
        write_json(partial / "critic.json", shorten_paths(read_json(partial / "critic.json")))
    write_text(partial / "README.md", str(card(run, part, stage)))
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return folder


def trained(run: Path, part: str) -> Path:
    """Returns the folder of the stage of a run that trains this part last. Raises ValueError unless it is finished."""
    folders = {stage: folder for stage, folder, _ in stage_folders(run)}
    stages = [*folders]
    if "grpo" in read_config(run).get("stages", ()):  # it may not have begun; other planned stages may be left out
        stages.append("grpo")
    stage = next((stage for stage in PARTS[part] if stage in stages), None)
    if stage is None:
        raise ValueError(
            f"model={run}: this run has trained no {part}; choose another run, or over='part=…' of {', '.join(PARTS)}"
        )
    if stage not in folders or not (folders[stage] / RESULT).is_file():
        raise ValueError(f"model={run}: {stage} is not finished; run it again")
    if (flaw := find_damage(folders[stage])) is not None:
        raise ValueError(f"model={run}: {flaw}")
    return folders[stage]


def head_of(stage: Path) -> dict[str, Any]:
    """Returns the tensors of the CLIPO head in the newest checkpoint of a stage. Raises ValueError if it has none."""
    import torch

    checkpoint = newest(stage / "checkpoints")
    if checkpoint is None or not checkpoint.is_file():
        raise ValueError(f"{stage}: the head is in the stage's checkpoint, and there is none in one file")
    head = torch.load(checkpoint, map_location="cpu", weights_only=True).get("reward", {}).get("head")
    if not head:
        raise ValueError(f"{checkpoint}: it has no head of CLIPO")
    return {name: tensor.contiguous() for name, tensor in head.items()}


def push(folder: Path, repo: str, *, part: str, private: str | None) -> str:
    """Creates the repository if necessary and uploads the folder; returns its address.

    ``private`` is true, false, or None for the hub's default, and of no effect on a repository that exists. Raises
    ValueError if the repository has another part, whose card would be replaced, and NotPublished.
    """
    from httpx2 import HTTPError
    from huggingface_hub import HfApi, ModelCard, get_token

    if get_token() is None:
        raise NotPublished("there is no token of the hub: set HF_TOKEN")
    try:
        ModelCard.load(folder / "README.md").validate()  # by the hub
        api = HfApi()
        address = api.create_repo(repo, exist_ok=True, private={"true": True, "false": False}.get(private or ""))
        present = api.model_info(repo).card_data
        others = (PARTS.keys() - {part}).intersection((present.tags if present else None) or ())
        if not others:
            api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Upload by contrastive-reasoning")
    except (HTTPError, OSError, ValueError) as error:
        raise NotPublished(f"the hub cannot be reached or refused it ({first_line(error)})") from error
    if others:  # after the try statement, which would turn a ValueError into NotPublished
        raise ValueError(
            f"repo={repo}: it has the {others.pop()} of a run; choose a repository of its own for this {part}"
        )
    return str(address)


if __name__ == "__main__":
    be_quiet()
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    protect_output()
    sys.exit(main(sys.argv[1:]))
