"""The store of a catalog: what an add writes, and that concurrent adds, kills and full disks lose nothing."""

import errno
import json
import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from small_trace import new_trace
from synthetic_catalog import run_of, variant
from synthetic_fleet import small_test
from synthetic_runs import write_run
from synthetic_tests import MS, MadeTest, closed_loop, rows_of, write_step

import blkreel
from blkreel.analysis.metrics.definitions.registry import metric_of
from blkreel.analysis.report.document import report
from blkreel.analysis.scale import measure_fleet
from blkreel.benchmarks.catalog import Catalog, collected, tables
from blkreel.benchmarks.catalog.collect import of_measured
from blkreel.benchmarks.catalog.result import CatalogError, NewerVersion, checksum_of, dump, id_of
from blkreel.benchmarks.catalog.verify import verify
from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.files import safe_files
from blkreel.common.progress import ProgressTask


@pytest.fixture
def catalog(tmp_path, results):
    opened = Catalog.open(tmp_path / "catalog", create=True)
    for result, partial in results:
        opened.put(result, partial)
    return opened


def files_of(directory):
    return {path.relative_to(directory): path.read_bytes() for path in sorted(Path(directory).rglob("*"))
            if path.is_file() and "tables" not in path.parts}


def test_an_entry_has_the_drive_the_workload_and_the_versions(catalog, small_runs):
    row = catalog.entries().query("label == 'fast'").iloc[0]
    assert (row.kind, row.model, row.firmware, row.unit) == ("run", "Example fast", "1B4Q", "hash of fast")
    assert (row.workload, row.workload_title, row.pace) == ("5e" * 32, "Game load", "As fast as possible")
    assert (row.state, row.verdict, row.host, row.blkreel) == ("full", "valid", "lab", "0.1.0")
    assert row.capacity_bytes == 8 << 30 and row.path in map(str, small_runs)
    assert str(row.started_at) in ("2026-01-01 20:00:00+00:00", "2026-01-03 20:00:00+00:00")


def test_simulated_drives_of_one_name_are_units_of_their_own(blkreel, tmp_path):
    trace = new_trace(tmp_path / "t.parquet", drive_bytes=1 << 20, submit_ns=np.arange(50) * 100_000)
    runs = []
    for keys in ("seed=1", "seed=2", "read_latency=9ms"):
        runs.append(tmp_path / keys)
        blkreel("replay", trace, "--on", f"nil:usb,jitter=0.1,{keys}", "-o", runs[-1], check=False)
    blkreel("results", "add", *runs, "--catalog", tmp_path / "catalog")
    result = blkreel("results", "history", "t.parquet", "--catalog", tmp_path / "catalog", check=False)
    assert result.returncode == 2 and "the results have 2 units: " in result.stderr


def test_a_simulated_drive_has_its_unit_in_results_of_earlier_versions(blkreel, tmp_path):
    """They have none, so that history and verify took the drive for another one after an update."""
    run = tmp_path / "run"
    trace = new_trace(tmp_path / "t.parquet", drive_bytes=1 << 20, submit_ns=np.arange(50) * 100_000)
    blkreel("replay", trace, "--on", "nil:usb", "-o", run, check=False)
    catalog = Catalog.open(tmp_path / "catalog", create=True)
    new, _ = catalog.add(run)
    old = {**new, "drive": {**new["drive"], "unit": ""}}
    catalog.path_of(new["id"]).write_bytes(dump({**old, "checksum": checksum_of(old)}))
    assert catalog.entries().unit.tolist() == [new["drive"]["unit"]] != [""]
    assert verify(catalog).problems == []


def test_metrics_are_those_of_the_report(catalog, small_runs):
    metrics = catalog.metrics().set_index(["id", "key"])
    for row in catalog.entries().itertuples():
        figures = blkreel.open(row.path).figures
        assert metrics.value[row.id, "read_p99"] == figures["read"]["latency"]["p99_ns"]
        assert metrics.value[row.id, "iops"] == pytest.approx(figures["all"]["iops"], rel=1e-12)
        assert metrics.unit[row.id, "read_p99"] == "ns" and metrics.better[row.id, "iops"] == "higher"
        assert (row.id, "read_response_p99") not in metrics.index  # no due times at this pace


def test_a_withheld_metric_is_not_in_a_catalog(tmp_path):
    """Its value counted in the means of a site and in a history."""
    catalog = Catalog.open(tmp_path / "catalog", create=True)
    result, _ = catalog.add(write_run(tmp_path / "run", seconds=6, withheld=("read_wait", "read_p99")))
    assert result["headline"] == "read_throughput" and "read_p50" in result["metrics"]
    assert not {"read_wait", "read_p99"} & set(result["metrics"])
    assert verify(catalog).problems == []


def test_the_verdict_is_that_of_the_report(tmp_path):
    """A run that the limit of a control group held back was qualified there, and valid in a catalog and on a site."""
    (run,) = measure_fleet([write_run(tmp_path / "run", seconds=6)]).measured
    run.metadata["devices"] = [{**run.metadata["devices"][0], "io_max": {"wiops": 250}}]
    result, _ = of_measured(run, "host")
    reasons = result["verdict"]["reasons"]
    assert [reason["code"] for reason in reasons] == ["io_max"] and result["verdict"]["level"] == "qualified"
    assert result["verdict"] == report(run)[0]["entry"]["verdict"]


def test_a_test_has_its_score_and_its_tables(tmp_path, a_test):
    catalog = Catalog.open(tmp_path / "catalog", create=True)
    result, added = catalog.add(a_test)
    assert added == "added" and catalog.add(a_test)[1] == "unchanged"
    metrics = catalog.metrics().set_index("key")
    assert metrics.value["score"] == metrics.value["data_rate/full/data_rate_mb_s"]
    full = result["results"]["figures"]["states"]["full"]
    assert metrics.value["latency/full:reads/p99_ns"] == full["reads"]["p99_ns"]
    assert catalog.entries().kind.tolist() == ["test"]


def test_the_workload_of_a_changed_test_has_the_changes_in_its_title(tmp_path):
    test = MadeTest(tmp_path / "t", "trace", quick=True, scale=0.25)
    test.told |= {"overrides": {"lead": "2s"}, "parameters_text": {"lead": "2.00 s", "reads": "10"}}
    test.step("trace", {"state": "full", "repeat": 1}, rows_of([0, MS], MS), do="replay")
    assert collected(test.path)[0]["workload"]["title"] == "a-test of trace, quick, scaled to 25 %, lead 2.00 s"


@pytest.mark.parametrize(("kind", "unit", "text"), [
    ("mixed-burst", "ns", r"[\d.]+ m?s"), ("cache", "bytes", r"[\d.]+ [MG]B"), ("qd1", "kIOPS", r"[\d.]+ kIOPS"),
    ("trim", "s/GB", r"[\d.]+ s/GB"), ("trace", "MB/s", r"[\d.]+ MB/s")])
def test_the_score_of_a_test_has_a_unit(tmp_path, kind, unit, text):
    score = collected(small_test(tmp_path / kind, kind), host="lab")[0]["metrics"]["score"]
    assert score["unit"] == unit
    assert re.fullmatch(text, metric_of("score", unit, "").unit.text(score["value"]))


@pytest.mark.parametrize(("op", "headline"), [(0, "read_wait"), (1, "write_wait")])
def test_a_run_without_reads_has_a_headline_of_its_writes(tmp_path, op, headline):
    rows = {**closed_loop(1500, 100_000, 4), "op": [op] * 1500}
    result, _ = collected(write_step(tmp_path / "run", rows, pace={"name": "original", "depth": None}), host="lab")
    assert result["headline"] == headline


def test_the_same_run_twice_is_one_wherever_it_lies(catalog, small_runs, tmp_path):
    before = files_of(catalog.directory)
    shutil.copytree(small_runs[0], tmp_path / "copy")
    assert catalog.add(small_runs[0])[1] == "unchanged"
    assert catalog.add(tmp_path / "copy", host="another")[1] == "unchanged"
    assert files_of(catalog.directory) == before


def test_a_changed_verdict_replaces_the_result(catalog, small_runs, results, tmp_path):
    result, partial = results[0]
    older = {**result, "verdict": {**result["verdict"], "level": "invalid"}}
    catalog.put({**older, "checksum": checksum_of(older)}, partial)
    assert catalog.entry(result["id"])["verdict"]["level"] == "invalid"
    assert catalog.add(small_runs[0])[1] == "replaced"
    assert catalog.entry(result["id"])["verdict"]["level"] == "valid" and len(catalog.entries()) == 4
    assert catalog.partial(catalog.entry(result["id"])).read.ops == 1500


def test_a_captured_trace_is_refused(catalog):
    with pytest.raises(UsageError, match="is a trace, not a run"):
        catalog.add(Path(blkreel.__path__[0]) / "traces/samples/app-start.parquet")


def test_a_directory_of_something_else_is_refused(small_runs, tmp_path):
    with pytest.raises(CatalogError, match="is a run or a test"):
        Catalog.open(small_runs[0], create=True)
    with pytest.raises(CatalogError, match="is not a catalog: no catalog.json"):
        Catalog.open(tmp_path)


@pytest.mark.parametrize("part", ["catalog.json", "result"])
def test_a_later_version_is_refused_and_kept(catalog, results, part):
    result = results[0][0]
    path = catalog.directory / part if part == "catalog.json" else catalog.path_of(result["id"])
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    before = path.read_bytes()
    with pytest.raises(NewerVersion, match=rf"{path} has version 2, this blkreel reads up to 1; update blkreel"):
        Catalog.open(catalog.directory).put(*results[0])
    assert path.read_bytes() == before


def test_damaged_files_are_named_and_the_others_are_read(catalog, results):
    edited, cut, renamed = (catalog.path_of(result["id"]) for result, _ in results[:3])
    edited.write_text(edited.read_text().replace('"valid"', '"invalid"'))
    cut.write_bytes(cut.read_bytes()[:500])
    other_name = renamed.rename(renamed.with_name("0" * 32 + ".json"))
    assert catalog.entries().id.tolist() == [results[3][0]["id"]]
    assert set(catalog.damaged) == {edited, cut, other_name}
    assert "was edited" in str(catalog.damaged[edited]) and "is damaged" in str(catalog.damaged[cut])
    assert f"mv {other_name} {renamed}" in str(catalog.damaged[other_name])
    assert len(catalog.metrics().id.unique()) == 1
    # Adding the run again repairs its file.
    catalog.put(*results[0])
    assert len(catalog.entries()) == 2 and edited not in catalog.damaged


def test_tables_follow_the_results(catalog, results):
    tables = catalog.directory / "tables"
    catalog.refresh()
    written = {path: path.stat().st_ino for path in tables.iterdir()}
    assert len(catalog.entries()) == 4 and {path: path.stat().st_ino for path in tables.iterdir()} == written
    catalog.remove(results[0][0])
    assert len(catalog.entries()) == 3 and len(catalog.metrics().id.unique()) == 3
    older = (tables / "metrics.parquet").read_bytes()
    catalog.put(*results[0])
    assert len(catalog.metrics().id.unique()) == 4
    (tables / "metrics.parquet").write_bytes(older)  # as if two writers had alternated
    assert len(catalog.metrics().id.unique()) == 4
    (tables / "results.parquet").write_bytes(b"PAR1 damaged")
    assert len(catalog.entries()) == 4 and len(catalog.metrics().id.unique()) == 4


def test_a_copied_catalog_is_not_parsed_again(catalog, results, tmp_path, monkeypatch):
    """A copy has other times; its tables are those of the same contents. A changed file of the same size is read."""
    catalog.refresh()
    read = []
    parse = tables.parse
    monkeypatch.setattr(tables, "parse", lambda content, path: read.append(path.name) or parse(content, path))
    copy = Catalog.open(shutil.copytree(catalog.directory, tmp_path / "copy", copy_function=shutil.copyfile))
    path = copy.path_of(results[0][0]["id"])
    for number, file in enumerate(copy.results.iterdir()):
        os.utime(file, ns=(0, number * 10**9))
    assert copy.entries().drop(columns="file_mtime_ns").equals(catalog.entries().drop(columns="file_mtime_ns"))
    assert len(copy.metrics()) == len(catalog.metrics()) and not read
    path.write_bytes(path.read_bytes().replace(b'"host": "lab"', b'"host": "bal"'))
    assert len(copy.entries()) == 3 and list(copy.damaged) == [path] and read == [path.name]


def test_reading_thousands_of_new_results_shows_its_progress(catalog, monkeypatch):
    steps = []

    @contextmanager
    def progress(step, total=None):
        steps.append((step, total))
        yield ProgressTask()

    monkeypatch.setattr(tables, "_FEWEST_SHOWN", 4)
    assert len(Catalog.open(catalog.directory, progress=progress).entries()) == 4
    assert len(Catalog.open(catalog.directory, progress=progress).entries()) == 4
    assert steps == [("reading new results", 4)]


def test_a_read_only_catalog_is_read(catalog, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("blkreel.benchmarks.catalog.tables.NewFile", refuse)
    assert len(catalog.entries()) == 4 and not (catalog.directory / "tables").exists()


def test_an_id_may_be_shortened(catalog, results):
    id_ = results[0][0]["id"]
    assert catalog.entry(id_[:8])["id"] == id_
    with pytest.raises(UsageError, match="no such result"):
        catalog.entry("zzzz")
    with pytest.raises(UsageError, match="at least 4 digits"):
        catalog.entry(id_[:1])


@pytest.mark.parametrize("fails_at", [1, 2, 3, 4])
def test_a_full_disk_loses_nothing(catalog, tmp_path, monkeypatch, fails_at):
    """The data of the partial, of its directory, then those of the result cannot be written."""
    before, calls = files_of(catalog.directory), []
    fsync = os.fsync

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    new = collected(run_of(tmp_path / "new", seed=9))
    monkeypatch.setattr(safe_files.os, "fsync", full)
    try:
        catalog.put(*new)
    except BlkreelError as error:
        assert "no space left" in str(error) and "df -h" in str(error)
        after = files_of(catalog.directory)
        assert before.items() <= after.items() and not [name for name in after if name.name.endswith(".tmp")]
    monkeypatch.undo()
    assert len(calls) >= fails_at
    assert len(Catalog.open(catalog.directory).entries()) in (4, 5) and not catalog.damaged
    catalog.put(*new)
    assert len(catalog.entries()) == 5 and catalog.partial(new[0]).read.ops == 1500


@pytest.mark.parametrize("dies_at", [1, 2])
def test_a_kill_during_an_add_leaves_the_catalog_as_it_was(catalog, results, dies_at):
    new = variant(results[0][0], 1), results[0][1]
    pid = os.fork()
    if not pid:
        named = []

        def die(self):
            named.append(self)
            if len(named) == dies_at:
                os._exit(9)
            give_name(self)

        give_name, safe_files.NewFile._give_name = safe_files.NewFile._give_name, die
        catalog.put(*new)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert len(catalog.entries()) == 4 and not catalog.damaged
    assert catalog.put(*new)[1] == "added" and len(catalog.entries()) == 5


def test_concurrent_adds_lose_nothing(results, tmp_path):
    """Four processes create one catalog, add overlapping results and write its tables."""
    directory, pids = tmp_path / "catalog", []
    for first in range(4):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                catalog = Catalog.open(directory, create=True)
                for number in range(first, first + 4):
                    catalog.put(variant(results[0][0], number), results[0][1])
                    catalog.refresh()
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * 4
    catalog = Catalog.open(directory)
    assert sorted(catalog.entries().label) == [f"drive {number}" for number in range(7)] and not catalog.damaged
    assert len(catalog.metrics().id.unique()) == 7


@pytest.mark.parametrize("adds", [False, True], ids=["query", "add"])
def test_tables_written_by_another_process_between_two_reads(results, tmp_path, monkeypatch, adds):
    """The other has seen fewer results: its metrics with our results would lose metrics, once written for ever."""
    catalog = Catalog.open(tmp_path / "catalog", create=True)
    older = {}
    for number in range(3):
        catalog.put(variant(results[0][0], number), results[0][1])
        catalog.refresh()
        older = older or {path: path.read_bytes() for path in (catalog.directory / "tables").iterdir()}
    if adds:
        catalog.put(variant(results[0][0], 3), results[0][1])
    stored = tables._stored

    def alternate(path, schema):
        if path.name == tables.METRICS and older:
            while older:
                written, content = older.popitem()
                written.write_bytes(content)
        return stored(path, schema)

    monkeypatch.setattr(tables, "_stored", alternate)
    assert len(catalog.metrics().id.unique()) == len(catalog.entries()) == 3 + adds and not older
    assert len(Catalog.open(catalog.directory).metrics().id.unique()) == 3 + adds


@cases(8)
@given(first=st.sets(st.integers(0, 5)), second=st.sets(st.integers(0, 5)))
def test_two_catalogs_merge_by_copying_their_files(results, tmp_path_factory, first, second):
    root = tmp_path_factory.mktemp("merged")
    for name, numbers in (("a", first), ("b", second)):
        catalog = Catalog.open(root / name, create=True)
        (catalog.directory / "results").mkdir()
        for number in numbers:
            catalog.path_of(variant(results[0][0], number)["id"]).write_bytes(dump(variant(results[0][0], number)))
        catalog.refresh()
    shutil.copytree(root / "b", root / "a", dirs_exist_ok=True)
    merged = Catalog.open(root / "a")
    assert sorted(merged.entries().label) == [f"drive {number}" for number in sorted(first | second)]
    assert set(merged.metrics().id) == set(merged.entries().id) and not merged.damaged


@cases(10)
@given(st.dictionaries(st.text(max_size=5), st.recursive(
    st.none() | st.booleans() | st.integers(-2**53, 2**53) | st.floats() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each, max_size=3), max_leaves=5),
    max_size=4))
def test_an_id_is_that_of_the_content_however_it_is_written(measured):
    shuffled = dict(reversed(measured.items()))
    assert id_of(measured) == id_of(shuffled)
    text = json.dumps(measured, indent=3, allow_nan=True)
    assert id_of(json.loads(text)) == id_of(measured)
    assert id_of({**measured, "another key": 1}) != id_of(measured)


def test_a_partial_stays_until_its_last_result_is_removed(catalog, results):
    """Equal runs have one partial."""
    (first, partial), (second, _) = results[:2]
    twin = {**second, "partial": first["partial"]}
    twin["checksum"] = checksum_of(twin)
    shared, replaced = catalog.partial_path(first), catalog.partial_path(second)
    assert catalog.put(twin, partial)[1] == "replaced" and not replaced.exists()
    catalog.remove(first)
    assert catalog.partial(twin)
    catalog.remove(twin)
    assert not shared.exists() and catalog.partial(results[2][0])


def test_verify_repairs_what_the_run_still_has(catalog, small_runs, results):
    lost, changed = catalog.partial_path(results[0][0]), catalog.partial_path(results[1][0])
    contents = lost.read_bytes(), changed.read_bytes()
    lost.unlink()
    changed.write_bytes(b"damaged")
    gone = {**results[2][0], "path": "/nowhere"}
    gone["checksum"] = checksum_of(gone)
    catalog.put(gone, results[2][1])
    catalog.path_of(gone["id"]).write_bytes(dump(gone))
    catalog.partial_path(gone).unlink()
    assert len(verify(catalog).problems) == 3
    report = verify(catalog, repair=True)
    assert report.repaired == sorted(str(catalog.path_of(result["id"])) for result, _ in results[:2])
    assert [problem.file for problem in report.problems] == [str(catalog.partial_path(gone))]
    assert (lost.read_bytes(), changed.read_bytes()) == contents


def test_a_metric_of_a_test_has_the_interval_of_its_repeats(tmp_path):
    test = MadeTest(tmp_path / "t", "depths")
    for repeat in range(1, 8):
        test.step("depth", {"depth": 1, "repeat": repeat}, closed_loop(100, MS + repeat * 1000, 1))
    result, _ = collected(test.path, host="lab")
    metric = result["metrics"]["by_queue_depth/1/mb_s"]
    assert metric["n"] == 7 and metric["low"] < metric["value"] < metric["high"]
    assert not [key for key in result["metrics"] if key.endswith(("_smallest", "_largest"))]
