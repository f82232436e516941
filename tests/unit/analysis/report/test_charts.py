"""Charts of runs: drawn without a warning whatever drives are left, with the figures of the document behind them."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import vl_convert
from documents import check_vega_lite
from small_trace import new_trace
from synthetic_runs import SECOND, write_run, write_trace

from blkreel.analysis.charts.model import FORMATS, MOST_MARKS
from blkreel.analysis.charts.spec import inline_data, without
from blkreel.analysis.charts.theme import NO_BRAND
from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.report import document, drives_file, figure
from blkreel.analysis.report.charts.efficiency import endurance
from blkreel.analysis.report.charts.timeline import rebin, steps
from blkreel.analysis.report.html.static_chart import static_svg
from blkreel.analysis.report.page import compare_page, metric_tables, report_page
from blkreel.common import units
from blkreel.common.errors import UsageError
from blkreel.common.files.storage_url import parse_location
from blkreel.traces.telemetry.file import Telemetry, sensor, write_telemetry

DRIVES = """
[[drive]]
match = "In *"
class = "consumer"
interface = "memory"
price = 50
currency = "EUR"
price_date = 2026-11-01
[[drive]]
match = "On disk"
class = "enterprise"
price = 100
currency = "EUR"
price_date = 2026-11-01
predecessor = "Example In memory"
"""


@pytest.fixture(scope="module")
def four(four_compared, tmp_path_factory):
    """(document, sections) of four runs, and facts of their drives."""
    path = tmp_path_factory.mktemp("four") / "drives.toml"
    path.write_text(DRIVES)
    return four_compared, drives_file.load(path)


@pytest.fixture(scope="module")
def page(four):
    compared, drives = four
    return compare_page.page_of(*compared, highlight="On disk", drives_file=drives)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run with a temperature and a measured power, and its page."""
    root = tmp_path_factory.mktemp("alone")
    path = write_run(root / "run")
    seconds = np.arange(14) * SECOND
    write_telemetry(path / "telemetry.parquet", Telemetry(
        {"temperature_c": sensor("C", "hwmon", 1.0)}, epoch_ns=0,
        samples={"temperature_c": (seconds, 40 + np.arange(14.0))}))
    measured = measure(path)
    measured.metadata["run"]["telemetry"] = {"power": {
        "meter": "bench", "rail": "12V", "rate_hz": 10, "average_w": 2.5, "energy_j": 30.0, "covered_ns": 12 * SECOND},
        "smart": {"changed": {}, "critical_warning": 0, "took_ns": None, "writes": {
            "unit": "B", "host": 400_000_000, "media": 600_000_000, "host_step": 512_000, "media_step": 4096}}}
    return measured, report_page.page_of(*document.report(measured))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Twenty drives: one run is measured, and stands for all with another name each."""
    root = tmp_path_factory.mktemp("fleet")
    ones = [measure(write_run(root / f"run{seed}", f"drive {seed}", 60 + 90 * seed, seed=seed)) for seed in range(3)]
    many = []
    for number in range(20):
        one = ones[number % 3]
        run = one.metadata["run"]
        run = {**run, "label": f"Drive number {number}", "drive": {**run["drive"], "serial_hash": str(number)}}
        many.append(replace(one, metadata={**one.metadata, "run": run}))
    return compare_page.page_of(*document.comparison(many), highlight="Drive number 7")


def drawn(page):
    return [chart for section in page.sections for chart in section.charts if chart.spec]


def by_id(page):
    return {chart.id: chart for section in page.sections for chart in section.charts}


def svg(spec, capfd, highlight=""):
    """The picture, in the dark theme, and whatever the renderer complained of."""
    spec = json.loads(json.dumps(spec))
    if spec.get("width") == "container":
        spec["width"] = 400
    for param in spec["params"]:
        if param["name"] == "highlight":
            param["value"] = highlight
    capfd.readouterr()
    picture = vl_convert.vegalite_to_svg({**spec, "config": NO_BRAND.config("dark")})
    told = "".join(capfd.readouterr())
    return picture, [line for line in told.splitlines() if re.search("WARN|Infinite|error", line, re.I)]


def test_specifications_are_sound_vega_lite(page, alone):
    for chart in [*drawn(page)[:12], *drawn(alone[1])]:
        check_vega_lite({**chart.spec, "data": chart.spec.get("data", {"values": []})})
        assert "config" not in chart.spec and chart.spec["description"]


def test_several_devices_have_heat_maps_of_their_own(tmp_path):
    """On one map, offsets of two drives would look like one place."""
    count = 400
    new_trace(tmp_path / "t.parquet", {"devices": [{"name": "sda"}, {"name": "sdb"}]}, device=np.arange(count) % 2,
              submit_ns=np.arange(count) * 1_000_000, offset_bytes=np.where(np.arange(count) % 2, 0, 1 << 30))
    charts = by_id(report_page.page_of(*document.report(measure(tmp_path / "t.parquet"))))
    assert "heat-reads" not in charts
    for device, (name, from_bytes) in enumerate((("sda", 1 << 30), ("sdb", 0))):
        chart = charts[f"heat-reads-{device}"]
        assert chart.title == f"Reads by offset and time, device {device} ({name})"
        (row,) = chart.table.rows
        assert (row.values["from_bytes"], row.values["moved_bytes"]) == (from_bytes, count // 2 * 4096)


@pytest.mark.parametrize(("pace", "groups"), [("original", ["Latency", "Response"]), ("dependent", ["Latency"])])
def test_percentiles_of_the_response_are_of_runs_with_fixed_due_times(tmp_path, pace, groups):
    write_run(tmp_path / "run")
    entry, _ = document.report(measure(tmp_path / "run"))
    entry = entry["entry"]
    entry["pace"] = {"name": pace}
    (chart,) = [chart for chart in metric_tables.by_class(entry) if chart.id == "percentiles"]
    assert list(dict.fromkeys(row.group for row in chart.table.rows)) == groups


def test_every_chart_is_there_once_with_a_table_behind_it(page, alone):
    ids = [chart.id for section in page.sections for chart in section.charts]
    assert len(ids) == len(set(ids)) and all(re.fullmatch("[a-z0-9-]+", id_) for id_ in ids)
    expected = ["read-wait", "read-throughput", "read-response-p99",
                "latency-over-time", "timeline", "read-tail", "response-tail", "write-tail",
                "lateness-host", "lateness-device", "value", "sizes", "heat-reads", "heat-writes"]
    assert {f"s{index}-{id_}" for index in (0, 1) for id_ in expected} <= set(ids)
    assert {"latency-over-time", "timeline", "iops", "efficiency", "read-tail", "lateness-host", "sizes", "heat-reads",
            "certificate", "held-up", "threads", "work", "percentiles"} <= set(by_id(alone[1]))
    for chart in by_id(page).values():
        keys = {column.key for column in chart.table.columns}
        assert chart.table.rows and all(set(row.values) <= keys for row in chart.table.rows), chart.id
        assert {column.format for column in chart.table.columns} <= set(FORMATS)


@pytest.mark.parametrize("hidden", [set(), {"In memory"}, {"On disk"}])
def test_any_part_of_the_drives_is_drawn_without_a_warning(page, capfd, hidden):
    left = {"In memory", "On disk"} - hidden
    for chart in drawn(page)[:9]:
        if hidden and chart.id.endswith("changes"):
            continue  # of both drives
        picture, complaints = svg(without(chart.spec, hidden), capfd, "On disk")
        assert complaints == [], chart.id
        text = " ".join(re.findall(">([^<]+)<", picture))
        assert all(label in text for label in left), chart.id
        assert not any(label in text for label in hidden), chart.id


def test_a_run_alone_is_drawn_without_a_warning(alone, capfd):
    for chart in drawn(alone[1]):
        picture, complaints = svg(chart.spec, capfd)
        assert complaints == [] and picture.count("<path") > 3, chart.id


def test_twenty_drives_stay_few_marks(fleet):
    size = sum(len(json.dumps(chart.spec)) for chart in drawn(fleet))
    assert size < 1_500_000
    for chart in drawn(fleet):
        assert 0 < len(inline_data(chart.spec)) <= MOST_MARKS, chart.id


def test_rankings_show_the_document(four, page):
    (told, _), _ = four
    for index, section in enumerate(told["sections"]):
        for id_, name, column in (("read-wait", "read_wait", "read_wait_ns"),
                                  ("read-throughput", "read_throughput", "read_throughput_mb_s")):
            table = by_id(page)[f"s{index}-{id_}"].table
            assert [row.values[column] for row in table.rows] == sorted(
                (entry["headline"][name]["value"] for entry in section["entries"]), reverse=column.endswith("mb_s"))
            for row in table.rows:
                (entry,) = [each for each in section["entries"] if each["label"] == row.entry]
                assert row.values[column] == entry["headline"][name]["value"]
                assert row.values["verdict"] == entry["verdict"]["level"]
    passed, failed = (json.dumps(by_id(page)[f"s{index}-read-wait"].spec) for index in (0, 1))
    assert "On disk (invalid)" in failed and "On disk (invalid)" not in passed


def test_the_drives_file_makes_filters_and_relations(page):
    assert "class" in page.filters
    facts = {entry.key: entry.facts for entry in page.entries}
    assert facts["In memory"]["relation"] == "predecessor of the drive under test"
    assert "relation" not in facts["On disk"]


def test_highlight_is_a_label_or_words_that_one_drive_has(four):
    marked = {entry.key for entry in compare_page.page_of(*four[0], highlight="disk").entries if entry.highlighted}
    assert marked == {"On disk"}
    with pytest.raises(UsageError, match="name one of: In memory, On disk"):
        compare_page.page_of(*four[0], highlight="WD Black")
    with pytest.raises(UsageError, match="several: In memory, On disk"):
        compare_page.page_of(*four[0], highlight="Example")


def test_tails_are_faint_where_too_few_lie_beyond_and_end_there(alone):
    measured, shown = alone
    values = [row for row in by_id(shown)["read-tail"].spec["data"]["values"]]
    total = measured.partial.read.ops
    for row in values:
        assert row["share"] * total >= 9.99 if row["part"] == "enough" else row["share"] * total <= 10 + total / 20
    latencies = pd.read_parquet(measured.path / "records.parquet").query("op == 0").latency_ns
    for row in values[::7]:
        assert (latencies >= row["ns"]).mean() == pytest.approx(row["share"], rel=0.02, abs=1.5 / total)
    (row,) = by_id(shown)["read-tail"].table.rows
    assert row.values["p99_9_ns"] is None and "n too small" in row.why["p99_9_ns"]


def test_timelines_hold_every_byte_and_leave_what_was_measured_alone(alone, fleet):
    line = alone[0].timeline
    before = line.bytes.copy(), line.width_ns
    width_ns, moved = rebin([line] * 12)
    assert np.array_equal(line.bytes, before[0]) and line.width_ns == before[1]
    assert width_ns > line.width_ns and [int(each.sum()) for each in moved] == [int(line.bytes.sum())] * 12
    rows = steps(moved[0], width_ns)
    for key, part in (("read", alone[0].partial.read), ("write", alone[0].partial.write)):
        total = sum(row[key] * (after["t_ns"] - row["t_ns"]) / 1000 for row, after in zip(rows, rows[1:], strict=False))
        assert total == pytest.approx(part.bytes, rel=1e-9)


def test_a_timeline_of_weeks_shows_low_rates(tmp_path):
    """4 KiB an hour: rounded to KB/s, all of it was zero, and the chart empty."""
    trace = new_trace(tmp_path / "t.parquet", {}, submit_ns=np.arange(500) * 3600 * SECOND, offset_bytes=0,
                      length_bytes=4096)
    chart = by_id(report_page.page_of(*document.report(measure(trace))))["timeline"]
    drawn = [row["read"] for row in inline_data(chart.spec) if "write" in row]
    assert sorted(set(drawn)) == pytest.approx(sorted({row.values["read_mb_s"] for row in chart.table.rows}), rel=1e-4)
    assert max(drawn) > 0


def test_latency_over_time_draws_the_slowest_ios_of_both_classes(alone, fleet):
    partial, chart = alone[0].partial, by_id(alone[1])["latency-over-time"]
    drawn_rows = [row for row in inline_data(chart.spec) if row.get("entry")]
    for op, part in (("read", partial.read), ("write", partial.write)):
        assert max(row["ns"] for row in drawn_rows if row["op"] == op) == part.latency.maximum
        assert sum(row["n"] for row in drawn_rows if row["op"] == op) == part.ops
    latencies = [row.values["latency_ns"] for row in chart.table.rows]
    assert latencies == sorted((row["ns"] for row in drawn_rows), reverse=True)
    # Slow I/Os are few and keep their points; the many fast ones share theirs.
    slow = [row for row in drawn_rows if row["ns"] > 10 * partial.read.latency.percentile((1, 2))]
    assert sum(row["n"] for row in slow) / len(slow) < sum(row["n"] for row in drawn_rows) / len(drawn_rows)
    assert len(inline_data(by_id(fleet)["latency-over-time"].spec)) < 4000


def test_two_drives_open_with_their_single_ios(tmp_path):
    runs = [measure(write_run(tmp_path / label, label, read_us, seconds=3))
            for label, read_us in (("A", 60), ("B", 90), ("C", 70))]
    of_two, of_three = (compare_page.page_of(*document.comparison(runs[:count])).sections[0] for count in (2, 3))
    assert [chart.id for chart in of_two.open_charts] == ["changes", "latency-over-time", "timeline"]
    assert "latency-over-time" in [chart.id for chart in of_three.folded_charts]


def test_static_pictures_of_many_drives_have_no_marks_that_cannot_be_seen(fleet):
    for id_, letters in (("read-tail", "Drive number"), ("timeline", "MB/s"), ("bursts", "folded")):
        picture = static_svg(by_id(fleet)[id_], fleet)
        assert letters in picture and len(picture) < 150_000
        assert not re.search(r'<text[^>]*/>| opacity="0"', picture) and picture.count("font-family") == 1


def test_a_static_picture_keeps_the_digits_of_numbers_and_each_place_of_few_paths(alone):
    chart = by_id(alone[1])["latency-over-time"]
    picture, latency = static_svg(chart, alone[1]), alone[0].partial.read.latency
    caption = " · ".join(f"read {name} {units.duration(ns)}" for name, ns in (
        ("p99", latency.percentile((99, 100))), ("max", latency.maximum)))
    assert re.search(r"\d\.\d\d", caption) and f">{caption}<" in picture
    places = [place for dots in re.findall(r'<path d="((?:M[-\d.,]+h0)+)"', picture) for place in dots.split("M")[1:]]
    assert len(places) == sum(1 for row in inline_data(chart.spec) if row.get("entry"))
    assert len(picture) < 30 * len(places) + 20_000 and "var(--read)" in picture


def test_temperature_is_drawn_over_the_completions(alone):
    chart = by_id(alone[1])["iops"]
    values = inline_data(chart.spec["vconcat"][0])
    assert [row["degrees"] for row in values if "degrees" in row] == [40.0 + second for second in range(13)]
    assert all(row["entry"] == alone[1].entries[0].key for row in values) and chart.zooms
    assert [row.values["temperature_c"] for row in chart.table.rows][:3] == [41.0, 42.0, 43.0]
    assert sum(row.values["read_iops"] for row in chart.table.rows) == alone[0].partial.read.ops


def test_a_run_that_is_stored_elsewhere_is_drawn_without_what_lies_beside_it(alone):
    measured = replace(alone[0], path=parse_location("https://host.invalid/run/records.parquet"))
    chart = by_id(report_page.page_of(*document.report(measured)))["iops"]
    assert not any("degrees" in row for row in inline_data(chart.spec)) and "No temperature" in chart.notes[0]


def test_efficiency_is_data_by_energy(alone):
    (row,) = by_id(alone[1])["efficiency"].table.rows
    moved = alone[0].partial.read.bytes + alone[0].partial.write.bytes
    assert row.values["efficiency_mb_per_j"] == pytest.approx(moved / 1e6 / 30) and row.values["meter"] == "bench, 12V"


def test_write_amplification_is_by_the_counters_of_the_drive(alone, tmp_path):
    (tmp_path / "drives.toml").write_text('[[drive]]\nmatch = "*"\nendurance_tbw = 600\n')
    measured = alone[0]
    (row,) = by_id(alone[1])["endurance"].table.rows
    assert row.values["write_amplification"] == pytest.approx(1.5) and row.values["interval"] == "1.50 to 1.50"
    assert (row.values["host_bytes"], row.values["media_bytes"]) == (400_000_000, 600_000_000)
    # The trace lasts 12 s.
    per_day = measured.partial.write.bytes * 7200
    assert row.values["media_writes_per_day_bytes"] == pytest.approx(1.5 * per_day, abs=1)
    section = document.report(measured)[1]
    chart = endurance(section.entries, "endurance", drives_file.load(tmp_path / "drives.toml"))
    assert chart.table.rows[0].values["rated_share_per_day"] == pytest.approx(per_day / 600e12)


def test_value_is_throughput_by_price(four, page):
    entries = {entry["label"]: entry for entry in four[0][0]["sections"][0]["entries"]}
    rows = {row.entry: row.values for row in by_id(page)["s0-value"].table.rows}
    for label, price in (("In memory", 50), ("On disk", 100)):
        rate = entries[label]["headline"]["read_throughput"]["value"]
        assert rows[label]["mb_s_per_currency"] == pytest.approx(rate / price)
        assert rows[label]["price_date"] == "2026-11-01"
    assert "value" not in " ".join(by_id(compare_page.page_of(*four[0])))


def test_every_command_of_a_column_gives_its_figure(alone):
    """The page names the command beside each figure; this reader types it."""
    measured, shown = alone
    told, _ = document.report(measured)
    tried = 0
    for chart in by_id(shown).values():
        row = chart.table.rows[0]  # the commands of tables by class are those of reads, their first row
        for column in chart.table.columns:
            key = re.fullmatch("blkreel report RUN --figure (.+)", column.recompute)
            if not column.recompute or row.values.get(column.key) is None or chart.id == "sizes":
                continue
            assert json.loads(figure.printed(told, key[1])) == row.values[column.key], (chart.id, column.key)
            tried += 1
    assert tried > 30


def test_a_trace_has_no_replay_to_be_honest_about(tmp_path):
    shown = report_page.page_of(*document.report(measure(write_trace(tmp_path / "game.parquet", lost=3))))
    assert not {"lateness-host", "response-tail", "certificate"} & set(by_id(shown))
    assert "honesty" not in [section.id for section in shown.sections]
    assert "3 events lost by the capture" in shown.entries[0].verdict["reasons"][0]["text"]


def test_no_tail_has_the_curve_of_a_withheld_percentile(tmp_path):
    """Its table had no value, and the curve and its dot showed it."""
    runs = [measure(write_run(tmp_path / label, label, seconds=3, withheld=withheld))
            for label, withheld in (("A", ("read_p99",)), ("B", ()))]
    tail = by_id(compare_page.page_of(*document.comparison(runs)))["read-tail"]
    assert {row["entry"] for row in tail.spec["data"]["values"]} == {"B"} and tail.notes[-1].endswith("withheld: A.")
    alone = by_id(report_page.page_of(*document.report(runs[0])))
    assert alone["read-tail"].spec is None and alone["write-tail"].spec
