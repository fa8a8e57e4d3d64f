"""What the libraries say that nobody needs to read, switched off; errors and our own lines remain."""

from __future__ import annotations

import logging
import os
import warnings

NOISE = (
    r".*treespec, LeafSpec.*",
    r".*module\(s\) in eval mode at the start of training.*",  # frozen parts are so on purpose
    r".*Using ModelCheckpoint with manual optimization.*",  # the state after the update is what we want
    r".*does not have many workers.*",
    r".*You have overridden `\w+` in `LightningModule`.*",
    r".*Checkpoint directory .* exists and is not empty.*",
    r".*to use `self.log\(.*, sync_dist=True\)`.*",  # ranks agree on a number before they log it
    r".*`torch.distributed.\w+` is deprecated.*",  # deepspeed calls it
    r".*DeepSpeed handles gradient clipping internally.*",  # it is told our norm
    r".*each worker will save a shard of the checkpoint.*",  # the stage writes one file at its end
    r".*checkpoint that ended before the epoch ended.*",  # our loaders start where the step says
)


def be_quiet() -> None:
    """Call before the libraries are imported: progress bars for reading local files are decided at import."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    for name in (
        "lightning.pytorch.utilities.rank_zero",
        "lightning.pytorch",
        "lightning.fabric",
        "lightning.pytorch.strategies.deepspeed",
    ):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in NOISE:
        warnings.filterwarnings("ignore", message=message)
