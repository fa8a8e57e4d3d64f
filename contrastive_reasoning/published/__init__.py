"""Figures from papers, for comparison with our own results."""

from contrastive_reasoning.published.table import (
    PublishedArm,
    PublishedTable,
    published_names,
    published_table,
    same_model,
)
