"""What `compare` prints: every number whole, in at most 25 lines at 80 columns, whatever the drives and runs."""

import re

import numpy as np
import pytest
from rich.cells import cell_len
from rich.text import Text
from small_trace import new_trace
from synthetic_runs import write_run

from blkreel.analysis.report import present, terminal
from blkreel.analysis.report.answer import reasons, sentence
from blkreel.analysis.report.columns import columns_of
from blkreel.analysis.report.export import View
from blkreel.common.console import Detail
from blkreel.common.text_table import TextColumn, fitting, in_parts, lines_of, shortened

pytestmark = pytest.mark.usefixtures("no_pictures")
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


@pytest.fixture(scope="module")
def run_paths(tmp_path_factory):
    """Twenty drives that differ by a factor of 3,000, with a run each."""
    root = tmp_path_factory.mktemp("runs")
    return [write_run(root / f"run-{number:02}", f"Maker {chr(65 + number)} drive {1000 + number}",
                      read_us=5 * 1.5 ** number, seed=number, seconds=3, verdict="invalid" if number == 7 else "valid",
                      reasons=[{"level": "invalid", "text": "5 I/Os failed", "code": "io_errors"}] if number == 7
                      else []) for number in range(20)]


@pytest.fixture(scope="module")
def documents(run_paths):
    return {count: present.compare(run_paths[:count]) for count in (1, 2, 12, 20)}


def plain(lines):
    return [Text.from_markup(line).plain for line in lines]


def known_numbers(document):
    """All numbers that the terminal may print: cells, labels, counts."""
    texts = [document["notes"]]
    for section in document["sections"]:
        texts += [section["title"], section["ratios"], sentence(section), reasons(section["entries"])]
        for entry in section["entries"]:
            texts += [entry["label"], entry["verdict"], [run["path"] for run in entry["runs"]], entry["idle"]]
            for column in columns_of(section["entries"]):
                cell = column.cell(entry)
                texts += [column.title, cell.text, cell.interval, cell.note]
    return set(NUMBER.findall(str(texts))) | {str(number) for number in range(41)}


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("drives", [1, 2, 20])
@pytest.mark.parametrize("detail", [Detail(), Detail(everything=True, why=True)], ids=["default", "all"])
def test_every_number_is_whole(documents, drives, width, detail):
    document = documents[drives]
    lines = plain(terminal.comparison_lines(document, detail, width))
    known = known_numbers(document)
    for line in lines:
        assert not re.search(r"\d…", line), line
        assert set(NUMBER.findall(line)) <= known, line
    table = [line for line in lines if "/run-" not in line]  # a path has no place to be wrapped
    assert max(map(cell_len, table)) <= width
    if not detail.everything:
        assert len(lines) <= 25


@pytest.mark.parametrize("detail", [Detail(), Detail(everything=True)], ids=["default", "all"])
def test_the_terminal_judges_the_drive_under_test_as_the_document_does(run_paths, documents, detail):
    labels = [entry["label"] for entry in documents[2]["sections"][0]["entries"]]
    answers = [present.compare(run_paths[:2], view=View(highlight=label))["answer"]["sentence"] for label in labels]
    tables = [plain(terminal.comparison_lines(documents[2], detail, 1000, under_test=label)) for label in labels]
    assert answers[0] != answers[1] and all(answer in table for answer, table in zip(answers, tables, strict=True))


def test_traces_without_reads_have_the_columns_of_their_writes(tmp_path):
    document = present.compare([new_trace(tmp_path / f"{name}.parquet", op=np.ones(1000, np.int8), latency_ns=latency)
                                for name, latency in (("a", 700_000), ("b", 900_000))])
    lines = plain(terminal.comparison_lines(document, Detail(), 80))
    assert any("700 " in line for line in lines) and any("900 " in line for line in lines)
    assert not any("Read" in line or "–" in line for line in lines)


@pytest.mark.parametrize("everything", [False, True], ids=["default", "all"])
def test_each_drive_has_its_own_value(documents, everything):
    """In the row of its label, and the best drive first, whatever the order of the runs."""
    document = {**documents[12], "sections": [{**section, "entries": section["entries"][::-1]}
                                              for section in documents[12]["sections"]]}
    (section,) = document["sections"]
    first = columns_of(section["entries"])[0]
    detail, width = Detail(everything=everything), 500 if everything else 80
    lines = [line for line in plain(terminal.comparison_lines(document, detail, width))
             if line.endswith(("valid", "qualified"))]
    for entry in section["entries"]:
        (row,) = [line for line in lines if line.startswith(entry["label"])]
        assert first.cell(entry).text in row.removeprefix(entry["label"]).split()
        assert row.endswith(entry["verdict"]["level"])
    rows = [line for line in lines if line.startswith("Maker")]
    values = [entry["headline"][first.metric.key]["value"] for label in rows for entry in section["entries"]
              if label.startswith(entry["label"]) and entry["verdict"]["level"] != "invalid"]
    assert values == sorted(values, reverse=first.metric.better == "higher")


def test_the_answer_comes_first(documents):
    for drives in (1, 2, 12, 20):
        (section,) = documents[drives]["sections"]
        lines = plain(terminal.comparison_lines(documents[drives], Detail(), 80))
        assert "".join(sentence(section).split()) in "".join("".join(lines[:6]).split())


def test_what_is_not_shown_is_said_with_the_option_that_shows_it(documents):
    lines = plain(terminal.comparison_lines(documents[20], Detail(), 80, more_lines=1))
    assert re.fullmatch(r"not shown: \d+ drives? and \d+ columns? \(--all\); reasons of the verdicts: --why", lines[-1])
    assert len(lines) <= 24
    whole = "\n".join(plain(terminal.comparison_lines(documents[20], Detail(everything=True), 80)))
    for column in columns_of(documents[20]["sections"][0]["entries"]):
        assert column.title.split()[0] in whole
    assert all(entry["label"] in whole for entry in documents[20]["sections"][0]["entries"])


def test_invalid_runs_are_named_with_the_option_that_leaves_them_out(documents, run_paths):
    text = " ".join(plain(terminal.comparison_lines(documents[12], Detail(), 200)))
    assert f"invalid: {run_paths[7]}; leave out: --drop-invalid" in text
    why = plain(terminal.comparison_lines(documents[12], Detail(why=True), 200))
    assert any(line.startswith("invalid: 5 I/Os failed") and "Maker H drive 1007" in line for line in why)


def test_drives_that_are_qualified_by_few_valid_runs_are_explained(documents):
    text = " ".join(plain(terminal.comparison_lines(documents[2], Detail(), 200)))
    assert "qualified" in text and "2 runs: 2 valid; verdict of 2 drives: qualified, fewer than 6 runs" in text


def test_dropped_runs_are_listed(run_paths, tmp_path):
    document = present.compare(run_paths[6:9], tmp_path / "page.html", drop_invalid=True)
    assert [run["path"] for run in document["dropped_runs"]] == [str(run_paths[7])]
    assert document["dropped_runs"][0]["verdict"]["reasons"][0]["text"] == "5 I/Os failed"
    assert len(document["sections"][0]["entries"]) == 2
    text = "\n".join(plain(terminal.comparison_lines(document, Detail(), 200)))
    assert f"1 invalid run left out: {run_paths[7]} (5 I/Os failed)" in text
    assert "1 invalid run left out" in (tmp_path / "page.html").read_text()
    assert present.compare(run_paths[6:9])["dropped_runs"] == []


def test_a_share_is_in_the_unit_of_its_column(documents):
    entry = documents[1]["sections"][0]["entries"][0]
    paced = {**entry, "pace": {"name": "dependent"},
             "headline": {**entry["headline"], "read_share": {**entry["headline"]["read_wait"], "value": 0.185}}}
    (column,) = [each for each in columns_of([paced]) if each.metric.key == "read_share"]
    assert (column.unit, column.cell(paced).text) == ("%", "18.5")


def test_several_sections_share_the_lines(tmp_path, run_paths):
    capped = [write_run(tmp_path / f"capped-{number}-{cap}", f"drive {number}", cap_ns=cap * 1_000_000, seconds=3)
              for number in range(2) for cap in (2, 3, 5, 10, 25)]
    document = present.compare(capped)
    assert len(document["sections"]) == 5
    lines = plain(terminal.comparison_lines(document, Detail(), 80))
    assert len(lines) <= 25
    assert " ".join(" ".join(lines).split()).startswith(document["answer"]["sentence"])  # over all sections
    for cap in (2, 3, 5, 10, 25):
        assert any(f"idle capped at {cap} ms" in line for line in lines)
    many = present.compare([*capped, *run_paths])
    assert len(terminal.comparison_lines(many, Detail(), 80)) <= 25


def test_columns_are_dropped_whole():
    columns = [TextColumn("", ["A", "B"], right=False), TextColumn("Read wait", ["284", "1,234"], "s"),
               TextColumn("Response p99", ["12.3", "0.123"], "ms")]
    assert [column.title for column in fitting(columns, 12)] == ["", "Read wait"]
    assert lines_of(fitting(columns, 12)) == ["      [bold]Read[/]", "   [bold]wait, s[/]", "A      284", "B    1,234"]
    assert [[column.title for column in part] for part in in_parts(columns, 12)] == [
        ["", "Read wait"], ["", "Response p99"]]


@pytest.mark.parametrize(("text", "width", "expected"), [
    ("Samsung 990 Pro", 15, "Samsung 990 Pro"), ("Samsung 990 Pro", 12, "Samsung…"),
    ("Samsung 990 Pro", 14, "Samsung 990 P…"), ("drive 1,234.5 x", 12, "drive…"), ("日本語ドライブ", 7, "日本語…")])
def test_a_label_is_not_cut_inside_a_number(text, width, expected):
    assert shortened(text, width) == expected
