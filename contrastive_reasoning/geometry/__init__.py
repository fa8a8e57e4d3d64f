"""Embeddings looked at: projections, spread, what can be read from them. Pure functions that only watch."""

from contrastive_reasoning.geometry.projection import Projection, parity_accuracy, parity_of, pca, tsne
from contrastive_reasoning.geometry.spread import alignment, effective_rank, uniformity
