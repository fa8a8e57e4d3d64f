"""Executes the notebook of the documentation as a reader would, and checks the output of its cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

DOCS = Path(__file__).resolve().parents[2] / "docs"
CELLS = 10
SMALLER = {
    'critic = ["budget.critic.steps=250"': 'critic = ["debug=fast", "budget.critic.steps=4"',
    "critic.trajectories=1000": "critic.trajectories=200",
    "critic.evaluate_every=250": "critic.evaluate_every=4",
    '"budget.grpo.steps=4", "budget.grpo.problems=16"': '"budget.grpo.steps=2", "budget.grpo.problems=2"',
    "grpo.validation_problems=32": "grpo.validation_problems=4",
    "budget.evaluate.problems=32": "budget.evaluate.problems=4",
}
"""Sizes in the cells, and those with which the test runs them."""


def text_of(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


@pytest.mark.whole
def test_story_notebook_runs_and_prints_expected_output() -> None:
    notebook = nbformat.read(DOCS / "story.ipynb", as_version=4)
    for size, ours in SMALLER.items():
        (cell,) = (cell for cell in notebook.cells if size in cell.source)
        cell.source = cell.source.replace(size, ours)
    where = {"metadata": {"path": str(DOCS)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    texts = [text_of(cell) for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(texts) == CELLS
    assert len(shown) == 3, "the critic's values, the heat map, the study"
    assert "illegal" in texts[2]
    assert "first moves:" in texts[3]
    assert "oracle/auroc_depth1" in texts[4]
    assert texts[7].count("done") == 3
    assert all(arm in texts[8] for arm in ("llama_baseline", "llama_critic", "llama_oracle"))
