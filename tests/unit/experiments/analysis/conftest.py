from __future__ import annotations

from tests.unit.experiments.jobs.conftest import runs as runs
