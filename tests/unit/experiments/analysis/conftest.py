from __future__ import annotations

from tests.unit.experiments.studies.conftest import runs as runs
