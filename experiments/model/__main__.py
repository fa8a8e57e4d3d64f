"""Fetch a pretrained model into outputs/models, in the format of Hugging Face:  make model name=smollm2-135m-q4

python -m experiments.model NAME [revision=…] [output_dir=outputs]

NAME is one of experiments/config/known_models.yaml, or a hub name, OWNER/NAME. A model that was fetched before is only
checked. A damaged one is fetched again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from experiments.cli.commands import COMMANDS
from experiments.config.hints import did_you_mean
from experiments.config.known_models import HUB_NAME, known_models, model_folder
from experiments.model.fetch import FetchError, fetch
from experiments.system.launch import FAILED, INTERRUPTED
from experiments.system.terminal import USAGE_ERROR, be_quiet, one_line, protect_output


def main(arguments: Sequence[str]) -> int:
    options = COMMANDS["model"].read(arguments)
    if (refused := refusal(options.name, options.revision)) is not None:
        print(refused, file=sys.stderr)
        return USAGE_ERROR
    try:
        fetch(options.name, model_folder(options.name, options.output_dir), revision=options.revision)
    except FetchError as error:
        print(error, file=sys.stderr)
        return FAILED
    except OSError as error:  # a full disk or a folder without write permission
        print(f"{options.name}: {one_line(error)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"{options.name}: stopped, and not there; the same command fetches it", file=sys.stderr)
        return INTERRUPTED
    return 0


def refusal(name: str | None, revision: str | None) -> str | None:
    """Returns the first error of the arguments as one sentence; None if there is none."""
    known = known_models()
    if name is None:
        return f"choose a model: name=NAME; there are {', '.join(known)}, and OWNER/NAME of the Hugging Face hub"
    if name not in known and not HUB_NAME.fullmatch(name):
        return f"name={name}: no known model, nor a name of the hub, OWNER/NAME; {did_you_mean(name, known)}"
    if name in known and revision is not None:
        return f"revision={revision}: {name} has one version, {known[name].package}"
    return None


if __name__ == "__main__":
    if os.isatty(2):
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "0")  # otherwise be_quiet hides the libraries' bars
    else:
        os.environ.setdefault("TQDM_DISABLE", "1")
    be_quiet()
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # saving weights imports deepspeed, which warns if it chooses
    protect_output()
    sys.exit(main(sys.argv[1:]))
