"""docs/capture.md: its tables of what the tests try are of tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = {name for path in (ROOT / "tests").rglob("test_*.py")
         for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)}
LINES = [line for line in (ROOT / "docs/capture.md").read_text().splitlines() if line.startswith("|")]


def tables():
    """{first cell of the head: rows as lists of cells} of those with the column `tried by`."""
    found, rows = {}, None
    for line in LINES:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[-1] == "tried by":
            rows = found.setdefault(cells[0], [])
        elif rows is not None and len(cells) == len(rows[0] if rows else cells) and "---" not in cells:
            rows.append(cells)
        elif "---" not in cells:
            rows = None
    return found


@pytest.mark.parametrize("table", ["volume", "directory on", "namespace", "situation"])
def test_each_row_names_tests_that_exist_or_says_that_it_was_not_tried(table):
    rows = tables()[table]
    assert len(rows) > 3
    for *_, tried in rows:
        names = re.findall(r"`(test_\w+)`", tried)
        assert names or tried == "not tried", rows
        assert set(names) <= TESTS, set(names) - TESTS
