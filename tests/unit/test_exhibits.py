"""Charts of runs: drawn without a warning whatever drives are left, with the figures of the document behind them."""

import json
import re
from dataclasses import replace

import altair
import jsonschema
import numpy as np
import pandas as pd
import pytest
import vl_convert
from synthetic_runs import SECOND, write_four_runs, write_run, write_trace

from blkreel.analysis import catalogue, document, figure
from blkreel.analysis.exhibits import compare, report
from blkreel.analysis.exhibits.model import FORMATS, MOST_MARKS
from blkreel.analysis.exhibits.parts import SCHEMA, marks, without
from blkreel.analysis.exhibits.timeline import reduced, steps
from blkreel.analysis.measure import measure
from blkreel.analysis.theme import THEMES
from blkreel.traces.errors import UsageError
from blkreel.traces.places import place
from blkreel.traces.telemetry_file import Telemetry, sensor, write_telemetry

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
def four(tmp_path_factory):
    root = tmp_path_factory.mktemp("four")
    (root / "drives.toml").write_text(DRIVES)
    compared = document.comparison([measure(path) for path in write_four_runs(root / "runs")])
    return compared, catalogue.load(root / "drives.toml")


@pytest.fixture(scope="module")
def page(four):
    compared, drives = four
    return compare.page_of(*compared, highlight="On disk", catalogue=drives)


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
        "meter": "bench", "rail": "12V", "rate_hz": 10, "average_w": 2.5, "energy_j": 30.0, "covered_ns": 12 * SECOND}}
    return measured, report.page_of(*document.report(measured))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Twenty drives: one run is measured, and stands for all with another name each."""
    root = tmp_path_factory.mktemp("fleet")
    ones = [measure(write_run(root / f"run{seed}", f"drive {seed}", 60 + 90 * seed, seed=seed)) for seed in range(3)]
    many = []
    for number in range(20):
        one = ones[number % 3]
        run = {**one.run, "label": f"Drive number {number}", "drive": {**one.run["drive"], "serial_hash": str(number)}}
        many.append(replace(one, metadata={**one.metadata, "run": run}))
    return compare.page_of(*document.comparison(many), highlight="Drive number 7")


def drawn(page):
    return [exhibit for section in page.sections for exhibit in section.exhibits if exhibit.spec]


def by_id(page):
    return {exhibit.id: exhibit for section in page.sections for exhibit in section.exhibits}


def svg(spec, capfd, highlight=""):
    """The picture, in the dark theme, and whatever the renderer complained of."""
    spec = json.loads(json.dumps(spec))
    if spec.get("width") == "container":
        spec["width"] = 400
    for param in spec["params"]:
        if param["name"] == "highlight":
            param["value"] = highlight
    capfd.readouterr()
    picture = vl_convert.vegalite_to_svg({**spec, "config": THEMES["dark"]})
    told = "".join(capfd.readouterr())
    return picture, [line for line in told.splitlines() if re.search("WARN|Infinite|error", line, re.I)]


def test_specifications_are_sound_vega_lite(page, alone, fleet):
    schema = json.loads((pathlib_of(altair) / "vegalite/v6/schema/vega-lite-schema.json").read_text())
    assert altair.SCHEMA_URL.startswith(SCHEMA.removesuffix("json"))
    validator = jsonschema.Draft7Validator(schema)
    for exhibit in [*drawn(page)[:12], *drawn(alone[1]), *drawn(fleet)[:4]]:
        errors = list(validator.iter_errors({**exhibit.spec, "data": exhibit.spec.get("data", {"values": []})}))
        assert not errors, (exhibit.id, errors[0].message[:300])
        assert "config" not in exhibit.spec and exhibit.spec["description"]


def pathlib_of(module):
    from pathlib import Path
    return Path(module.__file__).parent


def test_every_chart_is_there_once_with_a_table_behind_it(page, alone):
    ids = [exhibit.id for section in page.sections for exhibit in section.exhibits]
    assert len(ids) == len(set(ids)) and all(re.fullmatch("[a-z0-9-]+", id_) for id_ in ids)
    expected = ["wait", "read-throughput", "read-service", "timeline", "read-tail", "response-tail", "write-tail",
                "lateness-host", "lateness-device", "value", "sizes", "heat-reads", "heat-writes"]
    assert {f"s{index}-{id_}" for index in (0, 1) for id_ in expected} <= set(ids)
    assert {"timeline", "iops", "efficiency", "read-tail", "lateness-host", "sizes", "heat-reads", "certificate",
            "held-up", "threads", "work", "percentiles"} <= set(by_id(alone[1]))
    for exhibit in by_id(page).values():
        keys = {column.key for column in exhibit.table.columns}
        assert exhibit.table.rows and all(set(row.values) <= keys for row in exhibit.table.rows), exhibit.id
        assert {column.format for column in exhibit.table.columns} <= set(FORMATS)


@pytest.mark.parametrize("hidden", [set(), {"In memory"}, {"On disk"}])
def test_any_part_of_the_drives_is_drawn_without_a_warning(page, capfd, hidden):
    left = {"In memory", "On disk"} - hidden
    for exhibit in drawn(page)[:9]:
        picture, complaints = svg(without(exhibit.spec, hidden), capfd, "On disk")
        assert complaints == [], exhibit.id
        text = " ".join(re.findall(">([^<]+)<", picture))
        assert all(label in text for label in left), exhibit.id
        assert not any(label in text for label in hidden), exhibit.id


def test_a_run_alone_is_drawn_without_a_warning(alone, capfd):
    for exhibit in drawn(alone[1]):
        picture, complaints = svg(exhibit.spec, capfd)
        assert complaints == [] and picture.count("<path") > 3, exhibit.id


def test_twenty_drives_stay_few_marks_and_only_the_near_ones_have_names(fleet, capfd):
    size = sum(len(json.dumps(exhibit.spec)) for exhibit in drawn(fleet))
    assert size < 1_500_000
    for exhibit in drawn(fleet):
        assert 0 < marks(exhibit.spec) <= MOST_MARKS, exhibit.id
    tail = by_id(fleet)["read-tail"].spec
    picture, complaints = svg(tail, capfd, "Drive number 7")
    assert complaints == []
    # The words that can be seen: the marked drive's and its neighbours' in the order.
    order = [entry.key for entry in fleet.entries]
    at = order.index("Drive number 7")
    seen = {name for opacity, name in re.findall(r'<text[^>]*?opacity="([\d.]+)"[^>]*>(Drive number \d+)<', picture)
            if float(opacity) > 0}
    assert seen == set(order[max(0, at - 1):at + 2])


def test_rankings_show_the_document(four, page):
    (told, _), _ = four
    for index, section in enumerate(told["sections"]):
        for id_, name in (("wait", "wait_ns"), ("read-throughput", "read_throughput_mb_s")):
            table = by_id(page)[f"s{index}-{id_}"].table
            assert [row.values[name] for row in table.rows] == sorted(
                (entry["headline"][name]["value"] for entry in section["entries"]), reverse=name.endswith("mb_s"))
            for row in table.rows:
                (entry,) = [each for each in section["entries"] if each["label"] == row.entry]
                assert row.values[name] == entry["headline"][name]["value"]
                assert row.values["verdict"] == entry["verdict"]["level"]
    passed, failed = (json.dumps(by_id(page)[f"s{index}-wait"].spec) for index in (0, 1))
    assert "On disk (invalid)" in failed and "On disk (invalid)" not in passed


def test_intervals_ties_and_too_few_runs_are_drawn_as_what_they_are(four):
    told, sections = json.loads(json.dumps(four[0][0])), four[0][1]
    shown = [replace(section, shown=one, entries=[replace(entry, shown=own) for entry, own in zip(
        section.entries, one["entries"], strict=True)])
        for section, one in zip(sections, told["sections"], strict=True)]
    sure, unsure = (entry["headline"]["wait_ns"] for entry in told["sections"][0]["entries"])
    sure |= {"low": sure["value"] * 0.9, "high": sure["value"] * 1.2, "interval": "95 % interval", "rank": 1}
    unsure |= {"smallest": 10**9, "largest": 3 * 10**9, "rank": 1}
    exhibit = by_id(compare.page_of(told, shown))["s0-wait"]
    rows = {row["entry"]: row for row in exhibit.spec["data"]["values"]}
    assert rows["In memory"]["thick"] > rows["On disk"]["thick"]
    assert rows["In memory"]["span"].startswith("95 % interval") and "range of the runs" in rows["On disk"]["span"]
    assert rows["In memory"]["band"] == rows["On disk"]["band"] > 0
    assert any("tie" in note for note in exhibit.notes) and any("fewer than 6 runs" in note for note in exhibit.notes)
    (row,) = [row for row in exhibit.table.rows if row.entry == "In memory"]
    assert row.values["wait_low_ns"] == sure["low"] and row.values["rank"] == 1


def test_colour_of_a_ranking_tells_a_property(page):
    legend = [layer["encoding"]["color"] for layer in by_id(page)["s0-wait"].spec["layer"]
              if "color" in layer["encoding"]]
    assert legend[0]["legend"]["title"] == "interface"
    assert {row["hue"] for row in by_id(page)["s0-wait"].spec["data"]["values"]} == {"memory", "not told"}
    assert "class" in page.filters
    facts = {entry.key: entry.facts for entry in page.entries}
    assert facts["In memory"]["relation"] == "predecessor of the drive under test"
    assert "relation" not in facts["On disk"]


def test_highlight_is_a_label_or_words_that_one_drive_has(four):
    marked = {entry.key for entry in compare.page_of(*four[0], highlight="disk").entries if entry.highlighted}
    assert marked == {"On disk"}
    with pytest.raises(UsageError, match="name one of: In memory, On disk"):
        compare.page_of(*four[0], highlight="WD Black")
    with pytest.raises(UsageError, match="several: In memory, On disk"):
        compare.page_of(*four[0], highlight="Example")


def test_tails_are_faint_where_too_few_lie_beyond_and_end_there(alone):
    measured, shown = alone
    values = [row for row in by_id(shown)["read-tail"].spec["data"]["values"]]
    total = measured.partial.read.ops
    for row in values:
        assert (row["solid"] is None) == (row["share"] * total < 9.99)
    latencies = pd.read_parquet(measured.path / "records.parquet").query("op == 0").latency_ns
    for row in values[::7]:
        assert (latencies >= row["ns"]).mean() == pytest.approx(row["share"], rel=0.02, abs=1.5 / total)
    (row,) = by_id(shown)["read-tail"].table.rows
    assert row.values["p99_9_ns"] is None and "n too small" in row.why["p99_9_ns"]


def test_timelines_hold_every_byte_and_leave_what_was_measured_alone(alone, fleet):
    line = alone[0].timeline
    before = line.bytes.copy(), line.width_ns
    width_ns, moved = reduced([line] * 12)
    assert np.array_equal(line.bytes, before[0]) and line.width_ns == before[1]
    assert width_ns > line.width_ns and [int(each.sum()) for each in moved] == [int(line.bytes.sum())] * 12
    rows = steps(moved[0], width_ns)
    for key, part in (("read", alone[0].partial.read), ("write", alone[0].partial.write)):
        total = sum(row[key] * (after["t_ns"] - row["t_ns"]) / 1000 for row, after in zip(rows, rows[1:], strict=False))
        assert total == pytest.approx(part.bytes, rel=1e-9)


def test_temperature_stands_below_the_completions(alone):
    exhibit = by_id(alone[1])["iops"]
    assert len(exhibit.spec["vconcat"]) == 2
    assert [row.values["temperature_c"] for row in exhibit.table.rows][:3] == [41.0, 42.0, 43.0]
    assert sum(row.values["read_iops"] for row in exhibit.table.rows) == alone[0].partial.read.ops


def test_a_run_that_is_stored_elsewhere_is_drawn_without_what_lies_beside_it(alone):
    measured = replace(alone[0], path=place("https://host.invalid/run/records.parquet"))
    exhibit = by_id(report.page_of(*document.report(measured)))["iops"]
    assert "vconcat" not in exhibit.spec and "No temperature" in exhibit.notes[0]


def test_efficiency_is_data_by_energy(alone):
    (row,) = by_id(alone[1])["efficiency"].table.rows
    moved = alone[0].partial.read.bytes + alone[0].partial.write.bytes
    assert row.values["efficiency_mb_per_j"] == pytest.approx(moved / 1e6 / 30) and row.values["meter"] == "bench, 12V"


def test_value_is_throughput_by_price(four, page):
    entries = {entry["label"]: entry for entry in four[0][0]["sections"][0]["entries"]}
    rows = {row.entry: row.values for row in by_id(page)["s0-value"].table.rows}
    for label, price in (("In memory", 50), ("On disk", 100)):
        rate = entries[label]["headline"]["read_throughput_mb_s"]["value"]
        assert rows[label]["mb_s_per_currency"] == pytest.approx(rate / price)
        assert rows[label]["price_date"] == "2026-11-01"
    assert "value" not in " ".join(by_id(compare.page_of(*four[0])))


def test_every_command_of_a_column_gives_its_figure(alone):
    """The page names the command beside each figure; this reader types it."""
    measured, shown = alone
    told, _ = document.report(measured)
    tried = 0
    for exhibit in by_id(shown).values():
        row = exhibit.table.rows[0]  # the commands of tables by class are those of reads, their first row
        for column in exhibit.table.columns:
            key = re.fullmatch("blkreel report RUN --figure (.+)", column.recompute)
            if not column.recompute or row.values.get(column.key) is None or exhibit.id == "sizes":
                continue
            assert json.loads(figure.printed(told, key[1])) == row.values[column.key], (exhibit.id, column.key)
            tried += 1
    assert tried > 30


def test_a_trace_has_no_replay_to_be_honest_about(tmp_path):
    shown = report.page_of(*document.report(measure(write_trace(tmp_path / "game.parquet", lost=3))))
    assert not {"lateness-host", "response-tail", "certificate"} & set(by_id(shown))
    assert "honesty" not in [section.id for section in shown.sections]
    assert "the capture lost 3 events" in shown.entries[0].verdict["reasons"][0]["text"]
