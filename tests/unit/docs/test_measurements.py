"""Tables of docs/measurements.md that set a replay beside the program: each column has one kind of figure, and each
error is that of the two figures before it."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs/measurements.md"
NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
TRIPLE = re.compile(rf"{NUMBER}, {NUMBER}(?: ms| µs)?, ([+-]\d+(?:\.\d+)?) %")


def tables():
    for block in PAGE.read_text().split("\n\n"):
        rows = [line.strip("|").split("|") for line in block.splitlines() if line.startswith("|")]
        if len(rows) > 2:
            yield [[cell.strip() for cell in row] for row in rows[2:]]


def half_a_digit(text):
    return 0.5 / 10 ** len(text.partition(".")[2])


def test_errors_are_those_of_their_figures():
    checked = 0
    for rows in tables():
        for column in zip(*rows, strict=True):
            found = [TRIPLE.fullmatch(cell) for cell in column]
            if not any(found):
                continue
            for cell, match in zip(column, found, strict=True):
                if cell == "–":
                    continue
                assert match, f"{cell} in a column of {column[0]}"
                actual, replayed, error = (float(text.replace(",", "")) for text in match.groups())
                rounding = sum(half_a_digit(text) for text in match.groups()[:2]) * max(1, replayed / actual) / actual
                assert abs(replayed / actual - 1 - error / 100) <= rounding + half_a_digit(match[3]) / 100, cell
                checked += 1
    assert checked > 100
