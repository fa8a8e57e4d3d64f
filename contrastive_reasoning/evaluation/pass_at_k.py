"""pass@k without bias, Chen et al. (arXiv:2107.03374), Eq. (1):  1 − C(n − c, k) / C(n, k)."""

from __future__ import annotations

from math import comb


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """The chance that at least one of k completions, drawn from n without replacement, is correct.

    Args:
        samples: n completions were judged.
        correct: c of them are correct.
        k: how many may be tried, at most n.

    Raises:
        ValueError: unless 0 ≤ c ≤ n and 1 ≤ k ≤ n.
    """
    if not 0 <= correct <= samples:
        raise ValueError(f"correct must lie between 0 and the {samples} samples, got {correct}")
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs at least {k} samples and k ≥ 1, got {samples} samples")
    return 1.0 - comb(samples - correct, k) / comb(samples, k)
