"""Every mutation matches the code: the replaced text occurs once in its file, and the named tests exist."""

from __future__ import annotations

import pytest

from tests.mutations.__main__ import HERE, ROOT, mutations


@pytest.mark.parametrize("package", sorted(path.stem for path in HERE.glob("*.yaml")))
def test_mutations_match_code_and_tests(package: str) -> None:
    for mutation in mutations(package):
        text = (ROOT / mutation.file).read_text(encoding="utf-8")
        assert text.count(mutation.find) == 1, f"{mutation.file}: {mutation.find!r}"
        assert mutation.replace != mutation.find
        for name in mutation.tests:
            path, _, function = name.partition("::")
            assert (ROOT / path).exists(), name
            assert not function or f"\ndef {function.partition('[')[0]}(" in (ROOT / path).read_text(), name
