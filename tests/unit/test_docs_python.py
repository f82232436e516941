"""docs/python.md does what it says, line by line."""

import pytest
from documented import DOCS, DRIVES, blocks, make_runs, run_blkreel, run_python


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    directory = tmp_path_factory.mktemp("docs")
    make_runs(directory)
    (directory / "tests").mkdir()
    run_blkreel(directory, "test", "qd1", "--quick", "--on", "nil:1GiB,clock=virtual", "-o", "tests/qd1")
    return directory


def test_every_line_of_the_reference_gives_what_it_says(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    names = {}
    found = blocks("python.md", "python")
    assert len(found) >= 8
    for _, code in found:
        run_python(code, names)
    assert "nothing.parquet does not exist; record one with" in capsys.readouterr().out
    text = (DOCS / "python.md").read_text()
    for drive in DRIVES.values():
        assert drive in text, "the reader must be able to make the same runs"


def test_every_public_name_is_told_of():
    from blkreel.analysis.study import Study

    text = (DOCS / "python.md").read_text()
    for name in vars(Study):
        if not name.startswith("_"):
            assert name in text, f"docs/python.md says nothing of {name}"
            assert getattr(Study, name).__doc__, f"{name} has no docstring"
