"""Our step with and without settings that are not defaults, in real processes on a CPU."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from benchmarks.measures import PARTS, Findings
from benchmarks.variants import VARIANTS, WithAndWithout
from benchmarks.workloads import WorkFiles
from tests.config_kit import composed
from tests.unit.benchmarks.test_roofline import FEW


@pytest.mark.parametrize("name", VARIANTS)
def test_settings_of_every_variant_exist_and_differ_from_the_default(name: str) -> None:
    assert composed("experiment=llama_baseline", *VARIANTS[name]) != composed("experiment=llama_baseline")


@pytest.mark.whole
def test_variant_is_measured_or_reason_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.variants.WorkFiles", partial(WorkFiles, folder=tmp_path))
    monkeypatch.setitem(VARIANTS, "absent", ("policy.kernels=none_such",))
    found = Findings()
    WithAndWithout(workload=FEW, variants=["absent", "cuda_graphs"], repeats=1, found=found, show=lambda what: None)()
    assert [(result.measure, result.peer) for result in found.results] == [
        (part, "ours without cuda_graphs") for part in PARTS
    ]
    assert all(result.ratio > 0 for result in found.results)
    (note,) = found.notes
    assert note.startswith("absent was not measured on short prompts: absent ended: ")
