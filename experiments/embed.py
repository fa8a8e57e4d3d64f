"""Copy a finished warm start into the package, so that ``policy.pretrained: embedded:NAME`` can load it.

    make exp name=llama_baseline over='stages=[warm_start] policy.pretrained=null'
    python -m experiments.embed outputs/stages/warm_start/<fingerprint> llama_countdown

The configuration of the warm start and ``origin.json`` (its fingerprint and command) are stored with the policy.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from omegaconf import OmegaConf

from experiments.config.folders import EMBEDDED_FOLDER
from experiments.run_folder import read_json
from experiments.system.files import plain_name, write_json
from experiments.system.terminal import protect_output

COMMAND = "make exp name={family}_baseline over='{task}stages=[warm_start] policy.pretrained=null seed={seed}'"
LARGEST = 5_000_000
"""Maximum size of an embedded policy in bytes, because every clone contains it."""


def embed(stage: Path, name: str, *, folder: Path = EMBEDDED_FOLDER) -> Path:
    """Copies the policy of a warm-start folder to ``folder/name`` with its configuration; replaces an earlier one.

    A name consists of family, task and an optional suffix: ``llama_countdown_unaimed``. The command in ``origin.json``
    assumes the default budget.

    Raises:
        ValueError: if the folder is not a finished warm start, the policy is larger than five million bytes, or the
            name is not a plain file name.
    """
    target = folder / plain_name(name, what="NAME")
    result = read_json(stage / "result.json")
    if result.get("stage") != "warm_start" or not (stage / "policy" / "config.json").is_file():
        raise ValueError(f"{stage} holds no policy of a finished warm start")
    size = sum(file.stat().st_size for file in (stage / "policy").iterdir())
    if size > LARGEST:
        raise ValueError(f"the policy in {stage} has {size} bytes; an embedded one may have {LARGEST}")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(stage / "policy", target)
    shutil.copy(stage / "config.yaml", target / "warm_start.yaml")
    seed = OmegaConf.load(stage / "config.yaml").seed
    family, task, *_ = [*name.split("_"), ""]
    command = COMMAND.format(family=family, task="" if task == "countdown" else f"task={task} ", seed=seed)
    write_json(
        target / "origin.json", {"stage": "warm_start", "fingerprint": result["fingerprint"], "command": command}
    )
    return target


if __name__ == "__main__":
    protect_output()
    if len(sys.argv) != 3:
        sys.exit("usage: python -m experiments.embed STAGE_FOLDER NAME")
    try:
        print(embed(Path(sys.argv[1]), sys.argv[2]))
    except ValueError as error:
        sys.exit(str(error))
