"""Notebooks of the repository: each runs from beginning to end, and plots something. Their outputs are not kept."""

from pathlib import Path

import nbclient
import nbformat
import pytest

DIRECTORY = Path(__file__).parents[2] / "examples" / "notebooks"


@pytest.mark.parametrize("name", sorted(p.name for p in DIRECTORY.glob("*.ipynb")))
def test_notebook_runs(name):
    notebook = nbformat.read(DIRECTORY / name, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not committed"
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": DIRECTORY}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert all(output.output_type != "error" for output in outputs)
    if any("matplotlib" in cell.source for cell in notebook.cells):
        assert any("image/png" in output.get("data", {}) for output in outputs)
