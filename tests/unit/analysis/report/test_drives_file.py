"""drives.toml: facts of drives are found by label or model, and errors name their line."""

import pytest
from synthetic_runs import write_run

from blkreel.analysis.report import drives_file, export, present
from blkreel.common.errors import UsageError

PRICED = 'price = 1\ncurrency = "EUR"\nprice_date = 2026-11-01\n'


def loaded(tmp_path, text):
    path = tmp_path / "drives.toml"
    path.write_text(text)
    return drives_file.load(path)


def test_the_example_of_the_manual_is_read(tmp_path):
    told = loaded(tmp_path, drives_file.EXAMPLE)
    facts = told.facts("my drive", "Samsung SSD 990 PRO 2TB")
    assert facts == {"class": "consumer", "interface": "PCIe 4.0 x4", "flash": "TLC",
                     "price": "119.90 EUR (2026-11-01)"}
    assert told.facts("my drive", "Samsung SSD 980") == {} and told.facts("samsung ssd 990 evo", "")


def test_a_label_goes_before_a_model_and_the_first_of_the_file_before_the_next(tmp_path):
    told = loaded(tmp_path, '[[drive]]\nmatch = "Example*"\nclass = "a"\n[[drive]]\nmatch = "old unit"\nclass = "b"\n'
                            '[[drive]]\nmatch = "old*"\nclass = "c"\n')
    assert told.facts("old unit", "Example 1") == {"class": "b"}
    assert told.facts("new unit", "Example 1") == {"class": "a"}
    assert told.facts("old one", "Other") == {"class": "c"}


def test_an_entry_that_matches_no_drive_is_named_with_the_drives_there_are(tmp_path):
    told = loaded(tmp_path, '[[drive]]\nmatch = "New*"\n[[drive]]\nmatch = "Exmaple*"\n[[drive]]\nmatch = "example*"\n')
    (warning,) = told.unmatched({"New 1": "Example 10", "B": ""})
    assert "drives.toml: match = 'Exmaple*' matches none of these drives: New 1 (Example 10), B" in warning


def test_predecessor_and_rivals_are_told_of_the_others(tmp_path):
    told = loaded(tmp_path, '[[drive]]\nmatch = "New"\npredecessor = "Example 9*"\nrivals = ["B", "C*"]\n')
    models = {"New": "Example 10", "old": "Example 980", "B": "", "c1": "CX 5", "D": "D"}
    rival = "rival of the drive under test"
    assert told.relations("New", models) == {"old": "predecessor of the drive under test", "B": rival, "c1": rival}
    assert told.relations("B", models) == {}


@pytest.mark.parametrize(("text", "line", "what"), [
    ('[[drive]]\nmatch = "a"\nclas = "b"\n', 3, "'clas' is not known; use match, class"),
    ('[[drive]]\nmatch = "a"\n\n[[drive]]\nclass = "b"\n', 4, "'match' is missing"),
    ('[[drive]]\nmatch = "a"\n[[drive]]\nmatch = "b"\nprice = "12"\n', 5, "not a number above 0"),
    ('[[drive]]\nmatch = "a"\nprice = -3\n', 3, "not a number above 0"),
    ('[[drive]]\nmatch = "a"\nprice = nan\n', 3, "not a number above 0"),
    ('[[drive]]\nmatch = "a"\nprice = 12\n', 3, "without currency"),
    ('[[drive]]\nmatch = "a"\nprice = 12\ncurrency = "EUR"\n', 3, "without price_date"),
    ('[[drive]]\nmatch = "a"\n' + PRICED.replace("2026-11-01", '"2026-11-01"'), 5, "is not a date"),
    ('[[drive]]\nmatch = "a"\nrivals = "b"\n', 3, "not a list of texts"),
    ('[[drive]]\nmatch = 5\n', 2, "match = 5 is not a text"),
    *((f'[[drive]]\nmatch = "a"\ncolor = "{color}"\n', 3, f"color = '{color}' is not a color")
      for color in ("red", "#12345", "#12345g")),
    ('[drive]\nmatch = "a"\n', 1, "two brackets"),
    ('[[drives]]\nmatch = "a"\n', 1, "'drives' is not known"),
])
def test_what_is_wrong_is_told_with_its_line(tmp_path, text, line, what):
    with pytest.raises(UsageError) as told:
        loaded(tmp_path, text)
    assert f"drives.toml:{line}: " in str(told.value) and what in str(told.value)


def test_what_is_no_toml_is_told_with_its_place(tmp_path):
    with pytest.raises(UsageError, match=r"drives.toml: .*line 2"):
        loaded(tmp_path, '[[drive]]\nmatch = "a\n')
    with pytest.raises(UsageError, match="No such file"):
        drives_file.load(tmp_path / "none.toml")


def test_the_color_of_a_drive_is_that_of_drives_toml(tmp_path):
    path, color = tmp_path / "drives.toml", "#13579b"
    path.write_text(f'[[drive]]\nmatch = "slow"\ncolor = "{color}"\n')
    runs = [write_run(tmp_path / label, label, us, seconds=3) for label, us in (("fast", 60), ("slow", 300))]
    for name, named in (("own", drives_file.load(path)), ("theme", None)):
        view = export.View("svg", "read-tail", drives_file=named)
        present.compare(runs, tmp_path / f"{name}.svg", view=view)
    own, theme = ((tmp_path / f"{name}.svg").read_text() for name in ("own", "theme"))
    assert color in own and color not in theme
    assert "#0072b2" in own  # of the other drive, from the theme
