"""What a page shows of a table and of its drives, without a browser."""

import json
import re

import numpy as np
import pytest
from synthetic_pages import made

from blkreel.analysis.charts.model import Chart, Column, Entry, Page, Row, Section, Table
from blkreel.analysis.metrics.definitions.headline import READ_RESPONSE_P99
from blkreel.analysis.report import export
from blkreel.analysis.report.charts import paired
from blkreel.analysis.report.columns import missing
from blkreel.analysis.report.html import cells, rendering
from blkreel.analysis.report.html.rendering import Explained, render_page, unbroken
from blkreel.common.errors import BlkreelError


def shown(form, values, unit=""):
    """(unit of the column, texts of its cells)."""
    rows = tuple(Row({"x": value}) for value in values)
    head = cells.head(Column("x", "X", form, unit), rows)
    return head.unit, [cells.cell(head, row).text for row in rows]


@pytest.mark.parametrize(("form", "values", "unit", "texts"), [
    ("time", [1_500_000, 22_000_000, None], "ms", ["1.50", "22.0", ""]),
    ("time", [900, 1], "ns", ["900", "1.00"]),
    ("size", [1_234_567_890, 5_000_000], "GB", ["1.23", "0.00500"]),
    ("size", [4, 999], "bytes", ["4", "999"]),
    ("rate", [95.93, 0], "MB/s", ["95.9", "0"]),
    ("block", [4096, 131_072, 512], "", ["4K", "128K", "512"]),
    ("count", [1_234_567, np.int64(3), 2.5], "", ["1,234,567", "3", "2.50"]),
    ("share", [0.123, 1, 0], "%", ["12.3", "100", "0"]),
    ("change", [0.051, -0.2, 0.0, -0.0004], "%", ["+5.1", "-20.0", "0.0", "0.0"]),
    ("number", [np.float64(0.0123), float("nan"), float("inf")], "W", ["0.0123", "", ""]),
    ("text", ["TLC", True, False], "", ["TLC", "yes", "no"])])
def test_a_column_has_one_unit_and_three_digits(form, values, unit, texts):
    assert shown(form, values, "W" if form == "number" else "") == (unit, texts)


def test_raw_values_are_those_of_the_model_and_a_missing_one_says_why():
    column = Column("wait_ns", "Wait", "time")
    full = Row({"wait_ns": np.int64(1_234_567_891)}, remarks={"wait_ns": "1.2 to 1.3 s"})
    empty = Row({"wait_ns": None}, why={"wait_ns": "no reads"})
    head = cells.head(column, (full, empty))
    assert cells.cell(head, full) == cells.Cell("1.23", "1234567891", "1.2 to 1.3 s")
    assert cells.cell(head, empty) == cells.Cell("", None, "no reads")


def page(*entries, **more):
    return Page("compare", "T", "", entries, (), **more)


def entry(key, rank=None, highlighted=False, reasons=(), **facts):
    return Entry(key, facts, {"level": "valid", "reasons": list(reasons)}, rank, highlighted)


def test_the_list_of_drives_says_once_what_all_have_in_common():
    n, hot = {"level": "qualified", "text": "n=1"}, {"level": "qualified", "text": "throttled"}
    table = rendering.drives(page(entry("a", 1, model="X", state="client", price=10.5, reasons=[n]),
                                  entry("b", 2, model="X", state="client", price=9, reasons=[n, hot])))
    assert [column.key for column in table.columns] == ["rank", "entry", "verdict", "model", "price"]
    assert "state client" in table.caption
    assert [row.remarks["verdict"] for row in table.rows] == ["", "throttled"]
    assert [column.format for column in table.columns][-1] == "number"


def test_reasons_that_fill_a_paragraph_are_folded():
    short, long = ({"level": "invalid", "text": text} for text in ("3 I/Os failed", "held up by the kernel, " * 20))
    html = render_page(page(entry("a", 1, reasons=[short]), entry("b", 2, reasons=[long])))
    assert "<small>3 I/Os failed</small>" in html and "<summary>why</summary><small>held up by the kernel" in html
    assert html.count("<details class=why>") == 1


def test_predecessor_and_rivals_are_found_by_label_and_model():
    drives = (entry("new", highlighted=True, predecessor="old", rivals="Model R, gone"), entry("old"),
              entry("rival", model="Model R"), entry("other", relation="rival"), entry("none"))
    assert page(*drives).kin(drives[0]) == ["old", "rival", "other"]
    assert page(*drives).kin(drives[4]) == []


def test_nothing_that_a_trace_names_ends_a_script_or_makes_an_element():
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    rows = (Row({"entry": evil}, evil, {"gone": evil}, {"entry": evil}, evil, evil),)
    table = Table(evil, (Column("entry", evil, formula=evil), Column("gone", evil, "time")), rows)
    spec = {"description": evil, "data": {"values": [{"entry": evil}]}, "mark": "bar"}
    html = render_page(Page("compare", evil, evil, (entry(evil, model=evil), entry("b", model="m")), (
        Section("s", evil, (Chart("e", evil, table, spec, text=evil, notes=(evil,)),), (evil,)),), ("model",),
        (evil,), ((evil, evil),), ((evil, evil),)))
    assert evil not in html and "<img src=x" not in html
    assert html.count("<script") == html.count("</script>") == 4
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])
    assert data["entries"][0]["key"] == evil and data["specs"]["e"] == spec


def test_a_section_named_as_its_chart_has_an_id_of_its_own():
    table = Table("c", (Column("x", "X"),), ())
    sections = (Section("figures", "F", (Chart("figures", "F", table),)),)
    html = render_page(Page("report", "T", "", (entry("a"),), sections))
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids)) and "figures" in ids


def test_modules_are_joined_in_an_order_in_which_each_finds_what_it_needs():
    defined = set()
    for name in rendering.PROGRAM:
        text = (rendering.PROGRAM_FOLDER / name).read_text()
        for source in re.findall(r'^import .* from "\./(.*)";$', text, re.MULTILINE):
            assert source in defined, f"{name} stands before {source}"
        defined.add(name)
    assert "import " not in rendering.joined_program() and "export " not in rendering.joined_program()
    assert defined == {path.name for path in rendering.PROGRAM_FOLDER.glob("*.js")}


def test_a_page_loads_nothing_and_is_written_whole(tmp_path):
    html = render_page(made(3, paces=1, steps=20))
    head = html[:html.index('<script type="application/json"')]
    assert not re.search(r'(?:src|href)="(?!#|data:)|url\((?!#)|@import', head)
    assert "default-src 'none'" in head
    path = tmp_path / "page.html"
    export._text(html, path, False)
    assert path.read_text(encoding="utf-8") == html
    with pytest.raises(BlkreelError, match="page.html"):
        export._text(html, path, False)


def test_a_response_of_no_reads_lacks_reads_and_not_due_times():
    shown = {"pace": {"name": "original"}, "verdict": {}, "figures": {"read": {"ops": 0, "response": {"n": 0}}}}
    assert missing(shown, READ_RESPONSE_P99) == "no reads"
    shown["figures"]["read"]["ops"] = 5
    assert missing(shown, READ_RESPONSE_P99) == "no due times"


def test_columns_of_one_name_say_of_which_table_they_are():
    explained = Explained()
    columns = [Column("p90_ns", "p90", "time", formula=words) for words in ("of reads", "of writes")]
    columns.append(Column("n", "n", "count", formula="I/Os"))
    for column, caption in zip(columns, ("Reads", "Writes", "Both"), strict=True):
        explained.of(cells.head(column, ()), caption)
    assert [explained.where(told) for told in explained.columns] == ["Reads", "Writes", ""]


def test_of_many_drives_few_losses_of_each_are_listed():
    one = {"source_row": 1, "op": "read", "at_ns": 1, "offset_bytes": 0, "length_bytes": 4096, "base_ns": 1,
           "other_ns": 2}
    for others, rows in ((1, 20), (2, 40), (19, 57)):
        pairs = [{"base": "base", "other": f"drive {each}", "losses": [one] * 20} for each in range(others)]
        assert len(paired._losses(pairs, "").table.rows) == rows


def test_a_reason_that_a_group_shares_stands_once_in_its_title():
    reason, short = "load time is set by the plan at original pace", "no reads"
    columns = (Column("entry", "Drive"), Column("load_ns", "Load time", "time"), Column("wait_ns", "Wait", "time"))

    def row(name, group, load_ns):
        return Row({"entry": name, "load_ns": load_ns, "wait_ns": None}, name,
                   why={"load_ns": "" if load_ns else reason, "wait_ns": short}, group=group)

    table = Table("T", columns, (row("A", "original", None), row("B", "original", None),
                                 row("A", "dependent", 5), row("B", "dependent", None)))
    original, dependent = str(rendering.body(table, cells.heads(table))).split("</tbody>")[:2]
    assert original.count(reason) == 1 and f"<small>Load time: {reason}</small>" in original
    assert original.count(short) == 2, "a short reason stays in its cell"
    assert "<small>" not in dependent and f"<span class=none>{reason}</span>" in dependent


def test_a_number_and_its_unit_stay_on_one_line():
    kept = unbroken("loads in 2.87 s / 4.1 s at 110 MB/s (+59 %), 97 µs, 3 samples of 2 drives")
    assert re.findall(r"\S+\u00a0\S+", kept) == ["2.87\u00a0s", "4.1\u00a0s", "110\u00a0MB/s", "(+59\u00a0%),",
                                                  "97\u00a0µs,"]
