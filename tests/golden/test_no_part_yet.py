"""What is recorded of parts that this project does not have: named, not passed over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

NO_PART = {
    "math_verify.jsonl": "the verifier of mathematical answers",
}


@pytest.mark.parametrize("name", NO_PART)
def test_recorded_file_without_a_part(name: str, golden_file: Callable[[str], Path]) -> None:
    path = golden_file(name)
    pytest.skip(f"{path.name}: no part to compare with {NO_PART[name]}")
