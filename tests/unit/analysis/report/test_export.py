"""Pages in other forms: pictures that stand alone, tables with raw values, and nothing half-written."""

import csv
import io
import json
import math

import pandas as pd
import pytest
from synthetic_fleet import small_test
from synthetic_runs import write_run, write_trace

from blkreel.analysis.charts import model
from blkreel.analysis.metrics.definitions.headline import headline_metrics
from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.report import document, drives_file, export, figure, present
from blkreel.analysis.report.page import compare_page, report_page
from blkreel.benchmarks.present import compare_results, read_tests, report_test
from blkreel.common.errors import BlkreelError, OutputExists, UsageError
from blkreel.common.files.safe_files import NewFile


@pytest.fixture(scope="module")
def told(four_compared):
    return four_compared[0], compare_page.page_of(*four_compared, highlight="On disk")


def test_a_picture_stands_alone(told, tmp_path):
    export.write(told[1], "svg", tmp_path / "wait.svg", chart="s1-read-wait")
    picture = (tmp_path / "wait.svg").read_text()
    assert "Read wait (lower is better)" in picture and "fewer than 6 runs" in picture
    assert "On disk (invalid)" in picture and "In memory" in picture
    assert 'fill="#ffffff"' in picture or 'fill="white"' in picture
    export.write(told[1], "png", tmp_path / "wait.png", chart="s0-read-wait")
    content = (tmp_path / "wait.png").read_bytes()
    width = int.from_bytes(content[16:20], "big")
    assert content.startswith(b"\x89PNG") and width >= 2 * 560


@pytest.mark.parametrize("width", [360, 1300])
def test_the_width_is_that_of_the_whole_picture(told, width):
    charts = {chart.id: chart for section in told[1].sections for chart in section.charts}
    for id_ in ("s1-read-wait", "s1-timeline", "s1-heat-reads"):
        svg = export.picture(charts[id_], told[1], "svg", width)
        head = svg.split(">", 1)[0]
        assert f' width="{width}"' in head and (f'viewBox="0 0 {width}.00 ' in head or width == 360), id_
    for scale in (1, 2):
        png = export.picture(charts[id_], told[1], "png", width, scale)
        assert int.from_bytes(png[16:20], "big") == width * scale


def test_a_name_that_no_picture_can_hold_is_drawn_without_what_it_cannot(tmp_path):
    """Control characters, and a byte that is not UTF-8, as in a label of the command line."""
    run = write_run(tmp_path / "run", label="lab\x1b[31mel\udcff", seconds=3)
    shown, sections = document.comparison([measure(run)])
    sections[0].document["programs"] = ["start\x1bgame"]
    export.write(compare_page.page_of(shown, sections), "png", tmp_path / "wait.png", chart="read-wait")
    assert (tmp_path / "wait.png").read_bytes().startswith(b"\x89PNG")
    page = compare_page.page_of(shown, sections)
    (timeline,) = (one for section in page.sections for one in section.charts if one.id == "timeline")
    timeline.spec["description"] = "a\x1bb"
    assert export.standing_alone(timeline, page)["description"] == r"a\x1bb"
    assert shown["sections"][0]["entries"][0]["label"] == r"lab\x1b[31mel\xff"


def test_pictures_of_all_charts_get_a_directory(told, tmp_path):
    few = tuple(model.Section(section.id, section.title, section.charts[:1]) for section in told[1].sections)
    only = model.Page(**{**vars(told[1]), "sections": few})
    export.write(only, "svg", tmp_path / "pictures")
    drawn = {one.id for section in only.sections for one in section.charts if one.spec}
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == {f"{id_}.svg" for id_ in drawn}
    with pytest.raises(OutputExists):
        export.write(only, "svg", tmp_path / "pictures")
    export.write(only, "svg", tmp_path / "pictures", force=True)


def test_csv_holds_raw_values_with_their_units(told, tmp_path):
    shown, page = told
    export.write(page, "csv", tmp_path / "tables")
    tables = {one.id: one.table for section in page.sections for one in section.charts}
    assert {path.stem for path in (tmp_path / "tables").iterdir()} == set(tables)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "tables/figures.csv").read_text())))
    order = [entry.key for entry in page.entries]
    entries = [(section["title"], entry) for section in shown["sections"]
               for entry in sorted(section["entries"], key=lambda entry: order.index(entry["label"]))]
    assert len(rows) == len(entries) == 4
    for row, (title, entry) in zip(rows, entries, strict=True):
        assert row["group"] == title and row["drive"] == entry["label"]
        for metric in headline_metrics(["original"]):
            assert metric.column.endswith(metric.unit.suffix)
            cell = row.get(metric.column, "")
            assert metric.column in row or metric.optional
            assert (float(cell) if cell else None) == entry["headline"][metric.key]["value"]
    line = list(csv.DictReader(io.StringIO((tmp_path / "tables/s0-timeline.csv").read_text())))
    assert set(line[0]) == {"group", "drive", "from_ns", "read_mb_s", "write_mb_s"}


def test_json_is_the_document_or_one_table(told):
    shown, page = told
    assert json.loads(export.write(page, "json", document=shown)) == shown
    one = json.loads(export.write(page, "json", chart="s0-read-wait", document=shown))
    assert one["id"] == "s0-read-wait" and {row["entry"] for row in one["rows"]} == {"In memory", "On disk"}
    assert {column["key"] for column in one["columns"]} >= set(one["rows"][0]["values"])


def test_markdown_shows_units_verdicts_and_notes(told):
    text = export.write(told[1], "markdown")
    assert "| Drive |" in text and "✕ invalid" in text and "180 µs" in text and "(highlighted)" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    widths, counts = None, 0
    for line in text.splitlines():
        widths = None if not line.startswith("|") else widths or line.replace("\\|", "").count("|")
        if widths:
            assert line.replace("\\|", "").count("|") == widths
            counts += 1
    assert counts == len(lines) > 50
    assert "rows: `--format csv --chart s0-timeline`" in text
    assert export.write(told[1], "markdown", chart="s0-timeline").count("\n| ") > 100
    assert "no interval" in export.write(told[1], "markdown", chart="s0-read-wait")


def test_text_cannot_break_a_table():
    table = model.Table("a | b", (model.Column("x", "X|Y"),), (model.Row({"x": "1 | 2\n3 <b>"}),))
    page = model.Page("compare", "t", "", (), (model.Section("s", "s", (model.Chart("one", "One", table),)),))
    rows = [line for line in export.write(page, "markdown", chart="one").splitlines() if line.startswith("|")]
    assert rows == ["| X\\|Y |", "| --- |", "| 1 \\| 2 3 &lt;b> |"]


def test_only_some_drives_are_exported(told):
    rows = list(csv.DictReader(io.StringIO(export.write(
        export.only(told[1], {"In memory"}), "csv", chart="s0-read-wait"))))
    assert [row["drive"] for row in rows] == ["In memory"]
    section = export.only(told[1], {"In memory"}).sections[0]
    assert section.source and section.source == told[1].sections[0].source, "stands below a picture"
    (chart,) = [chart for chart in section.charts if chart.id == "s0-read-wait"]
    spec = json.dumps(chart.spec)
    assert "On disk" not in spec.replace('highlight', '') and "In memory" in spec


def test_a_chart_that_is_not_there_is_told_with_those_that_are(told, tmp_path):
    with pytest.raises(UsageError, match="no chart 'read-wait'; did you mean .*s0-read-wait"):
        export.write(told[1], "svg", tmp_path / "x.svg", chart="read-wait")
    with pytest.raises(UsageError, match="table without a picture"):
        export.write(told[1], "svg", tmp_path / "x.svg", chart="figures")
    assert list(tmp_path.iterdir()) == []


def test_nothing_half_written_is_left(told, tmp_path, monkeypatch):
    def full(new):
        made.append(new.path)
        if len(made) == 3:
            raise OSError(28, "No space left on device")
        published(new)

    made, published = [], NewFile.publish
    monkeypatch.setattr(NewFile, "publish", full)
    with pytest.raises(BlkreelError, match="no space left"):
        export.write(told[1], "csv", tmp_path / "tables")
    assert list(tmp_path.iterdir()) == []


def test_an_output_of_the_wrong_kind_is_refused_before_anything_is_read(tmp_path):
    (tmp_path / "file.txt").write_text("mine")
    for view, output, words in ((export.View("png"), tmp_path / "file.txt", "these are several"),
                                (export.View("html"), tmp_path, "this is one file"),
                                (export.View("svg", "read-wait"), tmp_path, "this is one file")):
        with pytest.raises(UsageError, match=words):
            present.compare([tmp_path / "no such run"], output, view=view)
    assert (tmp_path / "file.txt").read_text() == "mine"


def test_a_figure_is_printed_unrounded_or_its_absence_explained(four_runs):
    shown = present.report(four_runs[0])
    figures = shown["entry"]["figures"]
    assert float(figure.printed(shown, "read.throughput_mb_s")) == figures["read"]["throughput_mb_s"]
    assert figure.printed(shown, "read_wait") == str(figures["read"]["wait_ns"])
    assert figure.with_unit(shown, "read_wait") == f"{figures['read']['wait_ns']} ns"
    assert figure.with_unit(shown, "read.throughput_mb_s") == f"{figures['read']['throughput_mb_s']} MB/s"
    assert figure.with_unit(shown, "read.ops") == str(figures["read"]["ops"])
    with pytest.raises(UsageError, match="no figure 'read_wait'"):
        figure.printed({"figures": {"slowdown": 2.0}}, "read_wait")
    with pytest.raises(UsageError, match="did you mean .*'read.throughput_mb_s'"):
        figure.printed(shown, "read.throughputs_mb_s")
    with pytest.raises(UsageError, match="several figures"):
        figure.printed(shown, "read.bursts")
    with pytest.raises(BlkreelError, match=r"n too small \(n="):
        figure.printed(shown, "read.latency.p99_9_ns")
    with pytest.raises(UsageError, match="one run, trace or test"):
        figure.printed(present.compare(four_runs), "read_wait")


def test_a_figure_of_several_runs_is_the_one_that_their_comparison_shows(tmp_path):
    runs = [write_run(tmp_path / str(seed), seed=seed, seconds=4) for seed in (1, 2, 3)]
    compared = present.compare(runs)
    alone = [present.report(run) for run in runs]
    waits_ns = [float(figure.printed(one, "read_wait")) for one in alone]
    assert float(figure.printed(compared, "read_wait")) == pytest.approx(math.prod(waits_ns) ** (1 / 3), rel=1e-12)
    assert figure.printed(compared, "read.wait_ns") == figure.printed(compared, "read_wait")
    assert int(figure.printed(compared, "read.ops")) == sum(int(figure.printed(one, "read.ops")) for one in alone)
    rows = pd.concat([pd.read_parquet(run / "records.parquet") for run in runs])
    latency_ns = sorted(rows.latency_ns[rows.op == 0])
    assert int(figure.printed(compared, "read_p99")) == latency_ns[-(-len(latency_ns) * 99 // 100) - 1]


def test_what_was_said_of_drives_is_checked_where_no_page_is_made(tmp_path, four_runs):
    tests = [small_test(tmp_path / name, "qd1", parameters={"drive": name}) for name in ("A", "B")]
    (tmp_path / "drives.toml").write_text('[[drive]]\nmatch = "Nobody*"\n')
    ways = [(lambda view: present.compare(four_runs, view=view), "In memory, On disk"),
            (lambda view: present.report(four_runs[0], view=view), "In memory"),
            (lambda view: compare_results(read_tests(tests), view=view), "fast drive"),
            (lambda view: report_test(tests[0], view=view), "fast drive")]
    for show, drives in ways:
        with pytest.raises(UsageError, match=f"--highlight 'WD' is none of these drives; name one of: {drives}"):
            show(export.View(highlight="WD"))
        view = export.View(drives_file=drives_file.load(tmp_path / "drives.toml"))
        show(view)
        (warning,) = view.warnings
        assert "match = 'Nobody*' matches none of these drives: " in warning and drives.split(", ")[0] in warning


def test_commands_find_the_bursts_that_the_page_shows(tmp_path):
    run = write_run(tmp_path / "run", seconds=4)
    for gap_ns, option, line in ((5_000_000, " --gap 5ms", "gap = 5_000_000 "), (1_234_567_891, " --gap 1234567891ns",
                                                                                "gap = 1_234_567_891 ")):
        for told, page_of in ((document.comparison([measure(run, gap_ns)]), compare_page.page_of),
                              (document.report(measure(run, gap_ns)), report_page.page_of)):
            page = page_of(*told)
            commands = {column.recompute for section in page.sections for one in section.charts
                        for column in one.table.columns if column.recompute}
            assert commands and all(command.endswith(option) for command in commands) and line in page.preamble


# The installed command.

def test_commands_write_what_they_are_asked_for(blkreel, tmp_path, four_runs):
    shown = blkreel("compare", *four_runs, "--chart", "s0-read-tail", "-o", "tail.svg", "--highlight", "memory",
                    cwd=tmp_path)
    assert "tail.svg" in shown.stdout and "<svg" in (tmp_path / "tail.svg").read_text()
    (tmp_path / "drives.toml").write_text('[[drive]]\nmatch = "Nobody*"\n')
    told = blkreel("compare", *four_runs, "--format", "csv", "--chart", "s0-read-wait", "--drives", "drives.toml",
                   cwd=tmp_path)
    assert told.stderr.startswith("warning: ") and "Nobody*" in told.stderr
    table = told.stdout
    assert table.splitlines()[0].startswith("rank,drive,state,read_wait_ns")
    trace = write_trace(tmp_path / "game.parquet")
    printed = blkreel("report", trace, "--figure", "read.service_ns").stdout
    assert printed == f"{present.report(trace)['entry']['figures']['read']['service_ns']} ns\n"


@pytest.mark.parametrize(("words", "code", "told_why"), [
    (["--format", "csv"], 2, "add -o DIRECTORY, or --chart ID"),
    (["--format", "png"], 2, "add -o DIRECTORY, or --chart ID -o FILE"),
    (["--format", "json", "-o", "-"], 2, "name a file"),
    (["-o", "fleet.PDF"], 2, "fleet.PDF: a .pdf file cannot be written here; name a file with .html, .png"),
    (["--highlight", "nobody"], 2, "name one of: In memory, On disk"),
    (["--chart", "read-wait"], 2, "add -o read-wait.svg"),
    (["--highlight", "nobody", "-o", "x.html"], 2, "name one of: In memory, On disk"),
    (["--drives", "none.toml", "-o", "x.html"], 2, "none.toml"),
    (["--figure", "read_wait"], 2, "or of several runs of one drive"),
])
def test_commands_say_what_is_missing(blkreel, tmp_path, four_runs, words, code, told_why):
    words = [tmp_path / word if word.endswith((".html", ".toml")) else word for word in words]
    result = blkreel("compare", *four_runs, *words, check=False)
    assert result.returncode == code and told_why in result.stderr and "Traceback" not in result.stderr
