"""docs/study.ipynb on a capture of its own, from a file system on a scratch drive."""

import random
import re

import nbformat
import pytest
from documented import DOCS
from loop_device import ext4
from nbclient import NotebookClient

from blkreel.traces.format.reader import open_trace

pytestmark = pytest.mark.kernel

COMMAND = ["sh", "-c", "cat data/* | wc -c"]


@pytest.fixture
def place(loop_drive, tmp_path):
    """A directory on a drive of its own, with files to read."""
    with ext4(loop_drive(128 << 20), tmp_path / "mounted") as directory:
        (directory / "data").mkdir()
        for number in range(40):
            (directory / f"data/{number}").write_bytes(random.randbytes(200_000))
        yield directory


def test_the_notebook_records_and_studies_a_command(place, monkeypatch):
    monkeypatch.setenv("SUDO_USER", "root")
    notebook = nbformat.read(DOCS / "study.ipynb", as_version=4)
    source = notebook.cells[1].source
    source = re.sub("CAPTURE = None", f"CAPTURE = {COMMAND}", source).replace("REPEATS = 6", "REPEATS = 2")
    notebook.cells[1].source = source
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(place)}}).execute()
    trace = open_trace(place / "study/captured.parquet")
    assert trace.metadata["command"] == COMMAND and trace.metadata["cold"] is True
    reads = trace.table(["op", "length_bytes"]).to_pandas().query("op == 0")
    assert reads.length_bytes.sum() >= 40 * 200_000
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in shown) == 4
    assert any("times as long as Drive A" in output.get("text", "") for output in shown)
