"""The four operations on a pair as a search writes them: an equation each, and why some are dropped."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from contrastive_reasoning.tasks.countdown.game import MAX_RESULT

Attempt = tuple[int | None, str]
"""(result, equation), or (None, equation and why it is dropped)."""
CACHED = 1 << 14


def attempts(a: int, b: int) -> Iterator[Attempt]:
    """The operations ``+ - * /`` on two numbers ≥ 0, the larger named first; written as they are asked for."""
    if a < b:
        a, b = b, a
    yield _sum(a, b)
    yield _difference(a, b)
    yield _product(a, b)
    yield _quotient(a, b)


def too_large(equation: str, result: int) -> str:
    return f"{equation}. {result} exceeds the maximum intermediate result, drop this branch."


def no_integer(equation: str, result: str) -> str:
    return f"{equation}. {result} is a decimal, drop this branch."


@lru_cache(maxsize=CACHED)
def _sum(a: int, b: int) -> Attempt:
    return _bounded(a + b, f"{a} + {b} = {a + b}")


@lru_cache(maxsize=CACHED)
def _difference(a: int, b: int) -> Attempt:
    return _bounded(a - b, f"{a} - {b} = {a - b}")


@lru_cache(maxsize=CACHED)
def _product(a: int, b: int) -> Attempt:
    return _bounded(a * b, f"{a} * {b} = {a * b}")


@lru_cache(maxsize=CACHED)
def _quotient(a: int, b: int) -> Attempt:
    if b == 0:
        return None, f"{a} / {b} (invalid operation). drop this branch."
    if a % b == 0:
        return _bounded(a // b, f"{a} / {b} = {a // b}")
    quotient = f"{a / b:.1f}"
    return None, no_integer(f"{a} / {b} = {quotient}", quotient)


def _bounded(result: int, equation: str) -> Attempt:
    return (result, equation) if result < MAX_RESULT else (None, too_large(equation, result))
