"""docs/study.ipynb runs from the first cell to the last, and is stored with outputs that name no particular machine."""

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
    """Without what libraries say on stderr, such as that they make a cache of fonts the first time.

    What a cell prints comes in one output or in several, as the kernel has time for.
    """
    kinds = [sorted(output.get("data", {"text": 0})) for output in outputs_of(notebook)
             if output.get("name") != "stderr"]
    return [kind for number, kind in enumerate(kinds) if kind != ["text"] or kinds[number - 1:number] != [kind]]


def test_stored_outputs_are_complete_and_have_no_local_paths(stored):
    nbformat.validate(stored)
    assert sum("image/png" in kinds for kinds in kinds_of(stored)) == 4
    assert not [output for output in outputs_of(stored) if output.output_type == "error"]
    text = "".join(str(output) for output in outputs_of(stored)) + "".join(cell.source for cell in stored.cells)
    assert not re.search(r"/(home|root|tmp|work|usr|var)/", re.sub(r"'image/png': '[^']*'", "", text))


def test_all_cells_run(stored, tmp_path):
    notebook = nbformat.from_dict(stored)
    parameters = next(cell for cell in notebook.cells if "REPEATS = 6" in cell.source)
    parameters.source = parameters.source.replace("REPEATS = 6", "REPEATS = 3")
    NotebookClient(notebook, timeout=300, kernel_name="python3",
                   resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert kinds_of(notebook) == kinds_of(stored)
    text = "".join(output.get("text", "") for output in outputs_of(notebook))
    # The two simulated drives differ enough that three runs of each show it.
    ratio = re.search(r"Drive B takes ([\d.]+) times as long as Drive A, 95 % interval ([\d.]+) to ([\d.]+)", text)
    assert 1.01 < float(ratio[2]) <= float(ratio[1]) <= float(ratio[3]) < 1.03
    assert "1,881 reads: at the median 1." in text
