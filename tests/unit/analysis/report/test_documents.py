"""What a report and a comparison say, before anything is drawn: every shown figure recomputed, runs grouped soundly."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from empty_image import empty_image
from emulated_accounts import account
from small_trace import new_trace
from synthetic_runs import MS, write_run, write_trace

from blkreel import open as blkreel_open
from blkreel.analysis.metrics.definitions.headline import EXPLAINED, HEADLINE, READ_WAIT
from blkreel.analysis.metrics.definitions.registry import METRICS, value_at
from blkreel.analysis.metrics.measure import Measured
from blkreel.analysis.report import answer, columns, document, present
from blkreel.analysis.report.charts.ranking import ranking
from blkreel.analysis.report.page import method
from blkreel.analysis.report.page.drive_facts import entries_of
from blkreel.common import units
from blkreel.common.emulated import use_between
from blkreel.common.errors import BlkreelError, UsageError
from blkreel.traces.format.schema import RUN_SCHEMA

pytestmark = pytest.mark.usefixtures("no_pictures")


def measured(account):
    return Measured(Path("run"), {"run": account}, 0, partial=None)


@pytest.fixture(scope="module")
def compared(four_runs):
    return present.compare(four_runs)


def test_every_published_recipe_gives_the_figure_of_the_report(four_runs, compared):
    """The page tells a reader how to recompute each figure; this reader does."""
    entries = {entry["runs"][0]["path"]: entry for section in compared["sections"] for entry in section["entries"]}
    checked = set()
    for run in four_runs:
        names = {"pd": pd}
        exec(method.PREAMBLE.replace("RUN/records.parquet", str(run / "records.parquet")), names)
        entry = entries[str(run)]
        for metric in METRICS.values():
            value = value_at(entry["figures"], metric.path)
            if metric.recompute and value is not None and (not metric.op or entry["figures"][metric.op]["ops"]):
                assert value == pytest.approx(float(eval(metric.recompute, names)), rel=1e-12), metric.key
                checked.add(metric)
        for metric in HEADLINE:
            assert entry["headline"][metric.key]["value"] == (
                value_at(entry["figures"], metric.path) if metric.meaningful(["original"]) else None)
    # These runs have no time in the scheduler, no I/O late by a full queue, too few I/Os for p99.9, and no load time.
    without = re.compile("read_queue|lateness_device|read_share|.*p99_9")
    assert [metric.key for metric in EXPLAINED if metric not in checked and metric.recompute
            and not without.match(metric.key) and "run[" not in metric.recompute] == []


def test_paces_stand_apart_in_a_fixed_order(four_runs, compared):
    assert [section["title"] for section in compared["sections"]] == ["Original timing",
                                                                     "Original timing, idle capped at 3 ms"]
    assert [[entry["label"] for entry in section["entries"]] for section in compared["sections"]] == 2 * [
        ["In memory", "On disk"]]
    backwards = present.compare(four_runs[::-1])
    assert [section["title"] for section in backwards["sections"]] == [s["title"] for s in compared["sections"]]


@pytest.mark.parametrize(("pace", "idle", "title", "claims"), [
    ({"name": "scaled", "factor": 2.0}, "original", "Original timing divided by 2", "another intensity"),
    ({"name": "dependent", "dependencies": "observed"}, "none", "Dependent timing, idle removed",
     "how long the application would take on this drive. With idle"),
    ({"name": "dependent", "dependencies": "inferred"}, "original", "Dependent timing (inferred)", "did not observe"),
    ({"name": "original", "streams": {"1": {"name": "depth", "depth": 4}}}, "original",
     "Original timing; stream 1: as fast as possible, 4 outstanding", "paces of their own"),
])
def test_a_pace_says_what_it_may_claim(pace, idle, title, claims):
    run = measured({"pace": pace, "idle": {"name": idle, "cap_ns": None}})
    assert document.pace_title(run) == title
    assert claims in document.claim(run)


def test_a_run_on_several_drives_names_them_all():
    drives = [{"name": "nvme0n1", "model": "Fast 1", "kind": "disk", "size_bytes": 10**12, "serial_hash": "aa"},
              {"name": "loop3", "model": "", "kind": "loop", "size_bytes": 1 << 30}]
    shown = document.drive(measured({"drive": drives[0], "drives": drives}))
    assert shown["name"] == "nvme0n1 and loop3"
    assert columns.drive_words(shown).startswith("Fast 1, 1")
    assert "and loop device, 1" in columns.drive_words(shown)
    alone = document.drive(measured({"drive": drives[0], "drives": None}))
    assert alone == drives[0]


def test_verdicts_add_what_the_analysis_sees(compared):
    original, capped = compared["sections"]
    levels = [[entry["verdict"]["level"] for entry in section["entries"]] for section in (original, capped)]
    assert levels == [["qualified", "qualified"], ["qualified", "invalid"]]
    texts = [reason["text"] for reason in capped["entries"][1]["verdict"]["reasons"]]
    assert any("180 µs" in text for text in texts)
    assert any("idle" in text for text in texts)
    assert any("n=1" in text and "no interval" in text for text in texts)


def test_a_drive_with_an_invalid_run_takes_no_rank(tmp_path):
    paths = [write_run(tmp_path / f"{name}{seed}", f"Drive {name}", read_us, seed=seed, seconds=3,
                       verdict="invalid" if name == "A" and seed == 1 else "valid")
             for name, read_us in (("A", 90), ("B", 180), ("C", 270)) for seed in range(6)]
    (section,) = present.compare(paths)["sections"]
    assert {entry["label"]: entry["headline"]["read_wait"]["rank"] for entry in section["entries"]} == {
        "Drive A": None, "Drive B": 1, "Drive C": 2}
    assert not any("Drive A" in (ratio["base"], ratio["other"]) for ratio in section["ratios"])
    assert answer.sentence(section, "Drive C").endswith("rank 2 of 2 drives (1 without a result)")
    chart = ranking("read-wait", section["entries"], READ_WAIT)
    assert [(row.values["drive"], row.values["rank"]) for row in chart.table.rows] == [
        ("Drive B", 1), ("Drive C", 2), ("Drive A", None)]
    places = {"Drive B": (1, 1), "Drive C": (2, 2), "Drive A": (None, 3)}
    assert [(drive.key, drive.why) for drive in entries_of([section], places, None)] == [
        ("Drive B", ""), ("Drive C", ""), ("Drive A", "a run is invalid")]


def test_repetitions_are_pooled_and_shown_as_one_entry(tmp_path):
    paths = [write_run(tmp_path / f"run{seed}", seed=seed) for seed in (1, 2)]
    document = present.compare(paths)
    (entry,) = document["sections"][0]["entries"]
    each = [run["figures"] for run in entry["runs"]]
    assert entry["n"] == 2 and entry["figures"]["read"]["ops"] == sum(one["read"]["ops"] for one in each)
    service = entry["headline"]["read_service_time"]
    assert service["value"] == pytest.approx((each[0]["read"]["service_ns"] * each[1]["read"]["service_ns"]) ** 0.5)
    assert service["smallest"] == min(one["read"]["service_ns"] for one in each)
    # A percentile of both is a read of one of them, not a mean.
    latencies = pd.concat(pd.read_parquet(path / "records.parquet").query("op == 0").latency_ns for path in paths)
    p99 = entry["headline"]["read_p99"]["value"]
    assert p99 == latencies.sort_values().iloc[-(-len(latencies) * 99 // 100) - 1]


BEGUN = account()


@pytest.mark.parametrize(("changes", "labels"), [
    ([{"state": "client"}, {"state": "full"}, {"label": "other"}], ["fast drive, client", "fast drive, full", "other"]),
    ([{"firmware": "1B4Q"}, {"firmware": "2C01"}], ["fast drive, firmware 1B4Q", "fast drive, firmware 2C01"]),
    # Not by the hash of their serial.
    ([{"serial": "5e" * 32}, {"serial": "7a" * 32}], ["fast drive, #1", "fast drive, #2"]),
    # I/Os of 512 bytes are issued as 4 KiB there: eight times the bytes were averaged with the captured ones.
    ([{"block_bytes": 512}, {"block_bytes": 4096}],
     ["fast drive, blocks of 512 bytes", "fast drive, blocks of 4096 bytes"]),
    ([{"emulated": [use_between(BEGUN, account(drive=f"nil:usb,{keys}"))]}
      for keys in ("size=1048576", "read_latency=9ms,size=1048576")],
     ["fast drive, size=1048576", "fast drive, read_latency=9ms,size=1048576"])],
    ids=["state", "firmware", "serial", "block size", "emulated"])
def test_another_state_or_drive_is_another_entry(tmp_path, changes, labels):
    paths = [write_run(tmp_path / str(number), **change) for number, change in enumerate(changes)]
    assert [entry["label"] for entry in present.compare(paths)["sections"][0]["entries"]] == labels


def test_units_of_one_label_keep_their_names_and_order_in_each_section(tmp_path):
    """Over workloads, drives are compared by name, and with the first one named."""
    paths = [write_run(tmp_path / f"{serial}{cap_ns}", serial=serial, cap_ns=cap_ns, seconds=3)
             for serial, cap_ns in (("aa", None), ("bb", None), ("cc", None), ("cc", 5 * MS), ("bb", 5 * MS))]
    first, second = ([(entry["label"], entry["drive"]["serial_hash"]) for entry in section["entries"]]
                     for section in present.compare(paths)["sections"])
    assert first == [("fast drive, #1", "aa"), ("fast drive, #2", "bb"), ("fast drive, #3", "cc")]
    assert second == first[1:]


@pytest.mark.parametrize(("changed", "note"), [
    ({"firmware": "2.0"}, "fast drive: firmware is not the same in all workloads: 1B4Q, 2.0"),
    ({"serial": "bb"}, "fast drive: not the same drive in all workloads"), ({}, "")])
def test_a_label_of_several_drives_is_noted(tmp_path, changed, note):
    paths = [write_run(tmp_path / "a", seconds=3), write_run(tmp_path / "b", seconds=3, cap_ns=5 * MS, **changed)]
    assert present.compare(paths)["notes"] == ([note] if note else [])


def test_drives_of_one_name_are_other_entries(blkreel, tmp_path):
    """Simulated drives with other keys, and images of one name in two directories; another seed is a repetition."""
    trace = new_trace(tmp_path / "t.parquet", drive_bytes=1 << 20, submit_ns=np.arange(50) * 100_000)
    drives = ["nil:usb,jitter=0.1,seed=1", "nil:usb,jitter=0.1,seed=2", "nil:usb,jitter=0.1,read_latency=9ms"]
    for name in "ab":
        (tmp_path / name).mkdir()
        drives.append(empty_image(tmp_path / name / "scratch.img", 1 << 20))
    for number, drive in enumerate(drives):
        blkreel("replay", trace, "--on", drive, "-o", tmp_path / f"run{number}", check=False)
    (section,) = present.compare([tmp_path / f"run{number}" for number in range(len(drives))])["sections"]
    assert [(entry["label"], entry["n"]) for entry in section["entries"]] == [
        ("USB stick (typical), jitter=0.1", 2),
        ("USB stick (typical), jitter=0.1,read_latency=9ms", 1),
        *((f"scratch.img, {tmp_path / name / 'scratch.img'}", 1) for name in "ab")]


def test_different_traces_never_share_a_section(tmp_path, four_runs):
    trace = write_trace(tmp_path / "game.parquet")
    document = present.compare([*four_runs[:1], trace])
    assert len(document["sections"]) == 2
    assert all("(" in section["title"] for section in document["sections"])
    assert not document["notes"], "each section has the name of its trace"


def test_a_run_named_twice_is_refused(four_runs):
    with pytest.raises(UsageError, match="named twice"):
        present.compare([four_runs[0], four_runs[0] / "records.parquet"])


def test_a_copy_of_a_run_is_no_repetition(tmp_path, four_runs):
    copy = shutil.copytree(four_runs[0], tmp_path / "backup")
    with pytest.raises(UsageError, match="backup is a copy of"):
        present.compare([*four_runs, copy])


def test_report_of_a_capture_that_ended_early_is_qualified(tmp_path):
    path = new_trace(tmp_path / "t.parquet", {"ledger": {"missing": ["loop2 is gone"]}}, submit_ns=[1])
    verdict = present.report(path)["entry"]["verdict"]
    assert verdict["level"] == "qualified" and verdict["reasons"][0]["code"] == "incomplete_capture"
    assert verdict["reasons"][0]["text"] == "the capture is not complete: loop2 is gone"


def test_report_of_a_trace_names_threads_and_losses(tmp_path):
    document = present.report(write_trace(tmp_path / "game.parquet", lost=7))
    assert document["threads"][0]["name"] == "aria2c"
    assert document["threads"][0]["write_ops"] == document["entry"]["figures"]["write"]["ops"]
    assert sum(row["read_ops"] for row in document["threads"]) == document["entry"]["figures"]["read"]["ops"]
    assert document["entry"]["verdict"]["level"] == "qualified"
    assert "7 events lost" in document["entry"]["verdict"]["reasons"][0]["text"]
    assert document["source"]["command"] == "./start-game"


def test_missing_directories_of_a_page_are_made(tmp_path, four_runs):
    present.compare(four_runs[:1], tmp_path / "new/pages/compare.json")
    assert (tmp_path / "new/pages/compare.json").exists()
    with pytest.raises(BlkreelError, match="compare.json is not a directory"):
        present.compare(four_runs[:1], tmp_path / "new/pages/compare.json/a.json")


def test_a_trace_without_rows_still_gives_a_page(tmp_path):
    document = present.report(new_trace(tmp_path / "empty.parquet", {}, submit_ns=[]), tmp_path / "report.html")
    assert document["entry"]["headline"]["read_throughput"]["value"] is None
    assert document["entry"]["verdict"]["level"] == "invalid"
    assert "it holds no workload I/O" in document["entry"]["verdict"]["reasons"][0]["text"]
    assert "no reads" in {columns.missing(document["entry"], metric) for metric in HEADLINE}


def test_only_json_has_a_withheld_value(blkreel, tmp_path):
    """A page gave `no due times` as the reason, and the tables of a report gave the value."""
    run = write_run(tmp_path / "run", seconds=6, withheld=("read_p99", "read_response_p99"))
    entry = json.loads(blkreel("report", run, "--json").stdout)["entry"]
    values = {key: METRICS[key].unit.text(value_at(entry["figures"], METRICS[key].path)).split()[0]
              for key in entry["verdict"]["withheld"]}
    for command in (["report", run, "--all"], ["report", run, "--format", "markdown"],
                    ["compare", run, "--format", "markdown"],
                    ["report", run, "--chart", "read-tail", "--format", "markdown"]):
        told = blkreel(*command).stdout
        assert "withheld" in told and "no due times" not in told
        assert not [value for value in values.values() if f" {value} " in told]
    assert "withholds it" in blkreel("report", run, "--figure", "read_p99", check=False).stderr
    assert blkreel_open(run).headline.read_p99.isna().all()


def test_a_share_that_is_zero_in_each_run_has_a_value(tmp_path):
    runs = [tmp_path / name for name in "abcdef"]
    for seed, run in enumerate(runs):
        run.mkdir()
        new_trace(run / "records.parquet", {"run": {
            "label": "slow", "seed": seed, "issued_ops": 2, "pace": {"name": "original"},
            "verdict": {"level": "valid", "reasons": [], "notes": [], "withheld": []}}}, schema=RUN_SCHEMA,
            submit_ns=[0, 10**9], due_ns=[0, 10**9], op=1, latency_ns=10**10)
    (entry,) = present.compare(runs)["sections"][0]["entries"]
    on_time = entry["headline"]["written_on_time"]
    assert (entry["n"], on_time["value"], on_time["low"], on_time["rank"]) == (6, 0, None, None)


def test_a_run_that_issued_nothing_is_not_called_valid(tmp_path):
    """A step of 60 ms on a machine that was delayed for longer."""
    (tmp_path / "run").mkdir()
    new_trace(tmp_path / "run/records.parquet", {"run": {"label": "late", "issued_ops": 0, "verdict": {
        "level": "valid", "reasons": [], "notes": [], "withheld": []}}}, schema=RUN_SCHEMA, submit_ns=[])
    verdict = present.report(tmp_path / "run")["entry"]["verdict"]
    assert verdict["level"] == "invalid"
    assert "it issued no I/O" in verdict["reasons"][0]["text"]


def test_a_trace_of_which_no_completion_was_seen_is_not_called_valid(blkreel, tmp_path):
    new_trace(tmp_path / "unseen.parquet", {}, submit_ns=np.arange(20), latency_ns=-1)
    told = blkreel("report", tmp_path / "unseen.parquet").stdout
    assert "invalid: none of 20 I/Os was seen to complete" in told and "Data rate" not in told


@pytest.mark.parametrize(("unseen", "level"), [(1, "valid"), (3, "qualified")])
def test_a_trace_without_many_completions_is_qualified(tmp_path, unseen, level):
    latency = np.where(np.arange(200) < unseen, -1, 100)
    verdict = present.report(new_trace(tmp_path / "some.parquet", latency_ns=latency))["entry"]["verdict"]
    assert verdict["level"] == level
    assert [(reason["code"], reason["value"]) for reason in verdict["reasons"]] == (
        [("unseen_completions", 0.015)] if level == "qualified" else [])


def test_a_valid_trace_with_sums_that_do_not_fit_is_refused_with_the_limits(blkreel, tmp_path):
    path = new_trace(tmp_path / "long.parquet", latency_ns=[1 << 60] * 8)
    assert blkreel("check", path).returncode == 0
    refused = blkreel("report", path, check=False)
    assert refused.returncode == 1 and "2^61 ns" in refused.stderr and "blkreel slice" in refused.stderr


def test_brackets_in_a_label_are_shown_as_they_are(blkreel, tmp_path):
    runs = [write_run(tmp_path / name, label=f"{name} [/red] [bold]", seconds=3) for name in "abcde"]
    assert "a [/red] [bold]" in blkreel("report", runs[0]).stdout
    assert "b [/red] [bold]" in blkreel("compare", *runs[:2]).stdout
    assert "e [/red] [bold]" in blkreel("compare", *runs).stdout


@pytest.mark.parametrize(("value", "text"), [
    (None, "–"), (0, "0"), (0.01234, "0.0123"), (1.234, "1.23"), (9.996, "10.0"), (99.96, "100"), (12345.6, "12,346"),
    (0.9996, "1.00"), (-3.14159, "-3.14")])
def test_three_digits(value, text):
    assert units.digits(value) == text


# The installed command.

def test_commands_print_figures_and_the_path_of_the_page(blkreel, tmp_path, four_runs):
    output = tmp_path / "compare.html"
    shown = blkreel("compare", *four_runs[1::2], "-o", output)
    page = output.read_text()
    pictures = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL))
    # Every chart is there twice: as a picture that prints and needs no script, and as data.
    assert len(pictures) < 800_000 and len(page) - len(pictures) < 3_000_000
    assert page.count("window.vegaEmbed=") == 1
    assert f"Page: {output}" in shown.stdout and "wait, s" in shown.stdout and "invalid" in shown.stdout
    again = blkreel("compare", *four_runs, "-o", output, check=False)
    assert again.returncode == 1 and "--force" in again.stderr and "exists" in again.stderr
    document = json.loads(blkreel("compare", *four_runs, "--json").stdout)
    assert document == present.compare(four_runs)


def test_report_command(blkreel, tmp_path):
    trace = write_trace(tmp_path / "game.parquet")
    shown = blkreel("report", trace, "--all")
    assert "Throughput by busy time" in shown.stdout and "n too small (n=" in shown.stdout
    assert json.loads(blkreel("report", trace, "--json", "--gap", "5ms").stdout)["parameters"]["burst_gap_ns"] == 5 * MS
    assert blkreel("report", trace, "--gap", "5", check=False).returncode == 2


def test_commands_that_show_results_end_with_0_whatever_the_verdict(blkreel, tmp_path):
    """docs/guide.md: those that make a result return 3."""
    runs = [write_run(tmp_path / name, label=name, verdict="invalid", seconds=3,
                      reasons=[{"level": "invalid", "text": "1 I/O failed"}]) for name in "ab"]
    for words in (["info", runs[0]], ["report", runs[0]], ["compare", *runs]):
        assert "invalid" in blkreel(*words, code=0).stdout or words[0] == "info"


def test_the_report_of_a_run_has_the_verdict_of_the_run(tmp_path):
    """That there is one run only concerns comparisons: the terminal said valid, the page and the document qualified."""
    run = write_run(tmp_path / "run")
    built = present.report(run)
    assert built["entry"]["verdict"] == built["entry"]["runs"][0]["verdict"] and not built["answer"]["reasons"]
    (entry,) = present.compare([run])["sections"][0]["entries"]
    assert [reason["code"] for reason in entry["verdict"]["reasons"]] == ["few_runs"]
