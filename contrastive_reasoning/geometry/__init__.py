"""Analysis of embeddings: projections, spread and parity. Pure functions that do not affect training."""

from contrastive_reasoning.geometry.projection import Projection, parity_accuracy, parity_of, pca, tsne
from contrastive_reasoning.geometry.spread import alignment, effective_rank, uniformity
