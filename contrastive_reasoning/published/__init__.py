"""What papers printed, to stand beside our own numbers."""

from contrastive_reasoning.published.table import (
    PublishedArm,
    PublishedTable,
    published_names,
    published_table,
    same_model,
)
