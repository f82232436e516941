"""Each example of docs/python.md gives the documented value."""

from documented import DOCS, DRIVES, blocks, run_python


def test_each_example_gives_the_documented_value(examples, monkeypatch, capsys):
    monkeypatch.chdir(examples)
    names = {}
    sections = blocks("python.md", "python")
    assert len(sections) >= 8
    for _, code in sections:
        run_python(code, names)
    assert "nothing.parquet does not exist; record one with" in capsys.readouterr().out
    text = (DOCS / "python.md").read_text()
    for drive in DRIVES.values():
        assert drive in text, "docs/python.md does not have the drive of the examples"


def test_every_public_name_is_documented():
    from blkreel.benchmarks.study import Study

    text = (DOCS / "python.md").read_text()
    for name in dir(Study):
        if not name.startswith("_"):
            assert name in text, f"docs/python.md does not mention {name}"
            assert getattr(Study, name).__doc__, f"{name} has no docstring"
