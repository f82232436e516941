"""docs/study.ipynb runs from its first cell to its last, and is stored with what it gave, of no particular machine."""

import re

import nbformat
import pytest
from documented import DOCS
from nbclient import NotebookClient


@pytest.fixture(scope="module")
def stored():
    return nbformat.read(DOCS / "study.ipynb", as_version=4)


def outputs_of(notebook):
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def kinds_of(notebook):
    return [sorted(output.get("data", {"text": 0})) for output in outputs_of(notebook)]


def test_it_is_stored_with_its_outputs_and_without_paths_of_a_machine(stored):
    nbformat.validate(stored)
    assert sum("image/png" in kinds for kinds in kinds_of(stored)) == 4
    assert not [output for output in outputs_of(stored) if output.output_type == "error"]
    text = "".join(str(output) for output in outputs_of(stored)) + "".join(cell.source for cell in stored.cells)
    assert not re.search(r"/(home|root|tmp|work|usr|var)/", re.sub(r"'image/png': '[^']*'", "", text))


def test_it_runs(stored, tmp_path, monkeypatch):
    monkeypatch.setenv("BLKREEL_STATE_DIR", str(tmp_path / "state"))
    notebook = nbformat.from_dict(stored)
    parameters = next(cell for cell in notebook.cells if "REPEATS = 6" in cell.source)
    parameters.source = parameters.source.replace("REPEATS = 6", "REPEATS = 3")
    NotebookClient(notebook, timeout=120, kernel_name="python3",
                   resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert kinds_of(notebook) == kinds_of(stored)
    said = "".join(output.get("text", "") for output in outputs_of(notebook))
    # The two simulated drives differ by so much that three runs of each show it.
    found = re.search(r"Drive B takes ([\d.]+) times as long as Drive A, 95 % interval ([\d.]+) to ([\d.]+)", said)
    assert 1.02 < float(found[2]) <= float(found[1]) <= float(found[3]) < 1.05
    assert "2,865 reads: at the median 1." in said
