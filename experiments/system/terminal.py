"""Output of this process: hides secrets, survives unencodable characters and closed pipes, silences library noise."""

from __future__ import annotations

import logging
import os
import sys
import unicodedata
import warnings
from collections.abc import Iterable
from typing import Any, TextIO

from experiments.system.secrets import SHORTEST, hide_secrets

USAGE_ERROR = 2
"""Exit code of a command with an invalid argument."""
NOISE = (
    r".*treespec, LeafSpec.*",
    r".*module\(s\) in eval mode at the start of training.*",  # frozen parts are in eval mode on purpose
    r".*Using ModelCheckpoint with manual optimization.*",  # the state after the update is intended
    r".*does not have many workers.*",
    r".*You have overridden `\w+` in `LightningModule`.*",
    r".*Checkpoint directory .* exists and is not empty.*",
    r".*to use `self.log\(.*, sync_dist=True\)`.*",  # ranks agree on a number before they log it
    r".*`torch.distributed.\w+` is deprecated.*",  # deepspeed calls it
    r".*DeepSpeed handles gradient clipping internally.*",  # the strategy passes the module's gradient_clip
    r".*each worker will save a shard of the checkpoint.*",  # the stage writes one file at its end
    r".*Total length of `\w+` across ranks is zero.*",  # the data module says it in terms of its settings
    r".*checkpoint that ended before the epoch ended.*",  # the data loaders start at the restored step
)
QUIET_LOGGERS = (
    "lightning.pytorch.utilities.rank_zero",
    "lightning.pytorch",
    "lightning.fabric",
    "lightning.pytorch.strategies.deepspeed",
)


def be_quiet() -> None:
    """Silences the libraries' irrelevant output; errors and the project's own output remain.

    Call it before importing the libraries: they read the setting for progress bars over local files at import.
    """
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("huggingface_hub.utils._http").setLevel(logging.ERROR)  # the error after its last retry remains
    # a cached list of fonts may name those of an environment that was removed since; Matplotlib then uses its default
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    for message in NOISE:
        warnings.filterwarnings("ignore", message=message)
    warnings.showwarning = print_warning  # not formatwarning, which Lightning replaces at its import


def print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Prints a warning as one line, without the place in the code: ``warning: …``, or ``FutureWarning: …``."""
    name = "warning" if category is UserWarning else category.__name__
    if (stream := file or sys.stderr) is not None:
        stream.write(f"{name}: {' '.join(str(message).split())}\n")


class ProtectedStream:
    """A text stream that hides secrets, replaces characters it cannot encode, and goes silent once its reader is gone.

    A failing part may quote its token in a warning, a Hydra traceback, an error of this project or a job's log. All of
    these go through the two streams of the process. Everything else is delegated to the wrapped stream.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        if hasattr(stream, "reconfigure") and stream.errors == "strict":
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]

    def write(self, text: str) -> int:
        try:
            self._stream.write(hide_secrets(text) if len(text) >= SHORTEST else text)
        except BrokenPipeError:
            self._go_silent()
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._go_silent()

    def _go_silent(self) -> None:
        """Redirects the stream, including its buffered text, to the null device: ``| head`` must not fail a run."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def protect_output() -> None:
    """Wraps stdout and stderr of this process; code that writes to the file descriptors directly is not covered."""
    streams: Any = sys
    for name in ("stdout", "stderr"):
        if not isinstance(stream := getattr(sys, name), ProtectedStream | None):
            setattr(streams, name, ProtectedStream(stream))


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message that is not blank; the error's type if there is none."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def one_line(error: BaseException) -> str:
    """Returns an error's whole message in one line; the error's type if it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def visible(text: str) -> str:
    r"""Returns ``text`` with invisible characters as Python escapes, ``\x1b`` or ``\u202e``; line ends and tabs stay.

    So a model's text cannot move the cursor, change colours or reverse a line.
    """
    return "".join(
        one if one in "\n\t" or unicodedata.category(one)[0] != "C" else one.encode("unicode_escape").decode()
        for one in text
    )
