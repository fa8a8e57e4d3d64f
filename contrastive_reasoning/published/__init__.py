"""Figures from papers, for comparison with our own results."""

from contrastive_reasoning.published.table import (
    PublishedArm as PublishedArm,
    PublishedTable as PublishedTable,
    published_names as published_names,
    published_table as published_table,
    same_model as same_model,
)
