"""Executes the notebook of the documentation as a reader would, and checks the output of its cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

DOCS = Path(__file__).resolve().parents[2] / "docs"
CELLS = 10


def text_of(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


@pytest.mark.whole
def test_story_notebook_runs_and_prints_expected_output() -> None:
    notebook = nbformat.read(DOCS / "story.ipynb", as_version=4)
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
