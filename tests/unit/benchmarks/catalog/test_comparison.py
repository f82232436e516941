"""A comparison with results of a catalog: the same digits as of the runs, only comparable results, and no run read."""

import json
import shutil
import zlib
from itertools import count

import pytest
from click.testing import CliRunner
from documents import valid_document
from synthetic_catalog import PACE, SOURCE, run_of, variant

from blkreel.analysis.metrics.partials.partial_file import dump as dump_partial
from blkreel.analysis.report import document, present
from blkreel.analysis.scale import measure_fleet
from blkreel.benchmarks.catalog import Catalog, collected, stored
from blkreel.benchmarks.catalog.comparison import join
from blkreel.benchmarks.catalog.result import checksum_of, dump
from blkreel.benchmarks.present import read_tests
from blkreel.cli.main import cli
from blkreel.common.errors import UsageError

LIMITS = {"limits": {"accepted": 0.02, "withheld": 0.1}}


@pytest.fixture(scope="module")
def odd_runs(tmp_path_factory):
    """Runs that differ from small_runs in one trait each, by its reason."""
    root = tmp_path_factory.mktemp("odd")
    traits = {"workload": {"source": {**SOURCE, "sha256": "6f" * 32, "path": "other.parquet"}},
              "pace": {"pace": {**PACE, "name": "depth", "depth": 4}}, "state": {"state": {"name": "client"}},
              "condition": {"source": {**SOURCE, "device": 1}}, "drive_kind": {"simulated": True},
              "fidelity_limits": {"host_effect": {"limits": {"accepted": 0.5, "withheld": 0.6}}}}
    return {reason: run_of(root / reason, reason, seed=20 + number, **trait)
            for number, (reason, trait) in enumerate(traits.items())}


@pytest.fixture(scope="module")
def filled(tmp_path_factory, small_runs, odd_runs, a_test):
    opened = Catalog.open(tmp_path_factory.mktemp("filled") / "catalog", create=True)
    for run in (*small_runs, *odd_runs.values(), a_test):
        opened.add(run)
    return opened


@pytest.fixture
def catalog(filled, tmp_path):
    return Catalog.open(shutil.copytree(filled.directory, tmp_path / "catalog"))


@pytest.fixture
def new_run(tmp_path):
    return run_of(tmp_path / "new", "new drive", 150, seed=9, host_effect=LIMITS)


def compare(*words):
    result = CliRunner().invoke(cli, ["compare", *map(str, words)], standalone_mode=False)
    if result.exception:
        raise result.exception
    return result


def test_the_digits_are_those_of_the_runs(catalog, small_runs, new_run):
    by_runs = present.compare([new_run, *small_runs])
    compared = valid_document("compare", compare(new_run, "--catalog", catalog.directory, "--json").stdout)
    entries = {entry["label"]: entry for entry in compared["sections"][0]["entries"]}
    for entry in by_runs["sections"][0]["entries"]:
        assert entries[entry["label"]]["headline"] == entry["headline"]
        assert entries[entry["label"]]["figures"] == entry["figures"] and entries[entry["label"]]["n"] == entry["n"]
        assert entries[entry["label"]]["verdict"]["level"] == entry["verdict"]["level"]
    assert compared["answer"]["sentence"] == by_runs["answer"]["sentence"]


def test_no_run_of_the_catalog_is_read(catalog, new_run, tmp_path):
    for path in list(catalog.results.iterdir()):
        result = catalog.entry(path.stem)
        changed = {**result, "path": f"/no/such/{path.stem}"}
        path.write_bytes(dump({**changed, "checksum": checksum_of(changed)}))
    output = tmp_path / "page.html"
    result = compare(new_run, "--catalog", catalog.directory, "-o", output)
    assert "fast" in result.stdout and "new drive" in result.stdout
    page = output.read_text()
    assert "4 runs are from a catalog, which has no single I/Os" in page


def comparisons(catalog, *new_runs):
    """(by stored entries, worked out from the partials) of the same runs: document and sections."""
    new = measure_fleet(new_runs).measured if new_runs else []
    return tuple(document.comparison([*new, *join(catalog, workloads=["game"]).runs],
                                     entry_of=entry_of) for entry_of in (stored.entry, document.entry))


def assert_digits_of_the_partials(catalog):
    """The document by stored entries."""
    (by_stored, _), (worked_out, _) = comparisons(catalog)
    assert by_stored == worked_out
    return by_stored


def test_stored_entries_have_the_digits_of_the_partials(catalog, new_run, monkeypatch):
    for _ in ("made", "stored"):
        (by_stored, sections), (worked_out, others) = comparisons(catalog, new_run)
        assert by_stored == worked_out
        for section, other in zip(sections, others, strict=True):
            for entry, same in zip(section.entries, other.entries, strict=True):
                assert dump_partial(entry.partial) == dump_partial(same.partial)
    drives = sum(len(section.entries) for section in sections) - 1  # without the new one
    assert len(list((catalog.directory / stored.ENTRIES).iterdir())) == drives
    loaded, original = [], Catalog.partial
    monkeypatch.setattr(Catalog, "partial", lambda self, result: loaded.append(result["id"]) or original(self, result))
    document.comparison(join(catalog, workloads=["game"]).runs, entry_of=stored.entry)
    assert len(set(loaded)) <= 1  # the first, for the gap between bursts


def forged(content):
    """Another label, with the checksum of the real one."""
    checksum, _, shown = content.partition(b"\n")
    return checksum + b"\n" + zlib.compress(zlib.decompress(shown).replace(b'"label": "', b'"label": "better ', 1))


@pytest.mark.parametrize("spoil", [
    lambda content: b"", lambda content: content[:80], lambda content: b"0" * 64 + content[64:],
    lambda content: content[:65] + b"x" * 50, forged])
def test_a_spoiled_entry_is_made_again(catalog, spoil):
    comparisons(catalog)
    paths = sorted((catalog.directory / stored.ENTRIES).iterdir())
    before = [path.read_bytes() for path in paths]
    for path, content in zip(paths, before, strict=True):
        path.write_bytes(spoil(content))
    assert_digits_of_the_partials(catalog)
    assert [path.read_bytes() for path in paths] == before


def test_an_entry_of_somebody_else_is_not_used(catalog, tmp_path, monkeypatch):
    """It came with a catalog that was copied, and nobody can say whether its figures are those of the partials."""
    monkeypatch.setenv("BLKREEL_STATE_DIR", str(tmp_path / "theirs"))
    comparisons(catalog)
    theirs = {path: path.read_bytes() for path in (catalog.directory / stored.ENTRIES).iterdir()}
    monkeypatch.setenv("BLKREEL_STATE_DIR", str(tmp_path / "ours"))
    assert_digits_of_the_partials(catalog)
    assert theirs and all(path.read_bytes() != content for path, content in theirs.items())


def test_an_entry_of_other_results_is_not_used(catalog):
    comparisons(catalog)
    path = next(path for path in catalog.results.iterdir() if '"slow"' in path.read_text())
    result = catalog.entry(path.stem)
    temperature = {"start": 41, "max": 41, "end": 41}
    run = {**result["metadata"]["run"], "label": "slow", "telemetry": {"temperature_c": temperature}}
    changed = {**result, "metadata": {**result["metadata"], "run": run}}
    path.write_bytes(dump({**changed, "checksum": checksum_of(changed)}))
    assert '"start": 41' in json.dumps(assert_digits_of_the_partials(catalog))
    path.unlink()
    assert_digits_of_the_partials(catalog)


def test_a_catalog_that_cannot_be_written_is_compared(catalog, monkeypatch):
    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(stored, "write_file", refuse)
    assert_digits_of_the_partials(catalog)
    assert not (catalog.directory / stored.ENTRIES).exists()


def test_only_comparable_results_join(catalog, new_run):
    joined = join(catalog, measure_fleet([new_run]).measured)
    assert {run.account.label for run in joined.runs} == {"fast", "slow"} and len(joined.runs) == 4
    assert {each.reason: each.label for each in joined.left_out} == {
        reason: reason for reason in ("workload", "pace", "state", "condition", "drive_kind", "fidelity_limits")}
    text = compare(new_run, "--catalog", catalog.directory).stdout.splitlines()[-1]
    assert "4 results joined; left out: 1 of another workload, 1 at another pace, 1 in another state" in text
    assert "(--why)" in text
    why = compare(new_run, "--catalog", catalog.directory, "--why").stdout
    assert "state: in another state (client)" in why


def test_drive_and_workload_select(catalog, new_run):
    joined = join(catalog, measure_fleet([new_run]).measured, drives=["SLOW"])
    assert {run.account.label for run in joined.runs} == {"slow"}
    with pytest.raises(UsageError, match="matches --drive and --workload"):
        join(catalog, drives=["none of these"])
    assert {run.account.label for run in join(catalog, workloads=["other.parquet"]).runs} == {"workload"}


def test_without_runs_the_largest_group_is_compared(catalog):
    joined = join(catalog, workloads=["game"])
    labels = {run.account.label for run in joined.runs}
    assert {"fast", "slow"} <= labels and not {"state", "drive_kind"} & labels
    assert {each.reason for each in joined.left_out} == {"state", "condition", "drive_kind"}


def test_the_oldest_result_of_a_catalog_alone_is_of_the_base(tmp_path):
    opened = Catalog.open(tmp_path / "catalog", create=True)
    labels = ["old", "newer", "new", "newest"]
    for day, label in enumerate(labels, 1):
        opened.add(run_of(tmp_path / label, label, seed=day, started_at=f"2026-11-0{day}T00:00:00+00:00"))
    compared = json.loads(compare("--catalog", opened.directory, "--json", "--fail-if", "read_wait > +10%").stdout)
    assert [entry["label"] for entry in compared["sections"][0]["entries"]] == labels
    assert {outcome["base"] for outcome in compared["fail_if"]} == {"old"}


def test_what_was_written_since_keeps_repetitions_together(tmp_path):
    """Each run of a prepared drive but the first had a state of its own. One result is of an earlier version."""
    opened = Catalog.open(tmp_path / "catalog", create=True)
    for number in range(3):
        state = {"name": "client", "written_since_bytes": number * 10**9}
        result, _ = opened.add(run_of(tmp_path / f"r{number}", "a drive", seed=number, state=state))
    earlier = {**result, "state": "client, 2.00 GB written since"}
    opened.path_of(result["id"]).write_bytes(dump({**earlier, "checksum": checksum_of(earlier)}))
    assert set(opened.entries().state) == {"client"} and not opened.damaged
    assert len(join(opened).runs) == 3 and len(join(opened, measure_fleet([tmp_path / "r1"]).measured).runs) == 2
    assert opened.add(tmp_path / "r2")[1] == "unchanged"


def test_a_result_that_is_named_too_counts_once(catalog, small_runs, tmp_path):
    copied = shutil.copytree(small_runs[0], tmp_path / "copied")
    compared = valid_document("compare", compare(copied, "--catalog", catalog.directory, "--json").stdout)
    assert {entry["label"]: entry["n"] for entry in compared["sections"][0]["entries"]}["fast"] == 2
    assert compared["catalog"]["joined"] >= 3


def test_steps_of_a_benchmark_with_other_streams_are_other_workloads(tmp_path, catalog):
    """Their traces have no checksum, and their name is that of the benchmark."""
    for number, (directory, op) in enumerate([("r1", "read"), ("r2", "read"), ("w", "write")]):
        stream = {"op": op, "access": "random", "block_bytes": 4096, "span_bytes": 1 << 30, "seed": number}
        catalog.add(run_of(tmp_path / directory, "a drive", seed=60 + number,
                           source={"path": "qd1", "sha256": None, "streams": [stream]}))
    rows = [row for row in catalog.result_table().to_pylist() if row["workload_name"] == "qd1"]
    assert sorted(row["workload_title"] for row in rows) == ["qd1: random read 4 KiB"] * 2 + ["qd1: random write 4 KiB"]
    assert len({row["workload"] for row in rows}) == 2
    compared = valid_document("compare", compare(tmp_path / "r1", "--catalog", catalog.directory, "--json").stdout)
    assert [[entry["n"] for entry in section["entries"]] for section in compared["sections"]] == [[2]]
    both = valid_document("compare", compare(tmp_path / "r1", tmp_path / "w", "--json").stdout)
    assert len(both["sections"]) == 2 and both["notes"] == []


def test_tests_join_by_their_parameters(catalog, a_test, tmp_path):
    copied = shutil.copytree(a_test, tmp_path / "copied")
    assert join(catalog, new_tests=read_tests([copied])).tests == []
    only = join(catalog, workloads=["trace"])
    assert [results["test"] for _, results in only.tests] == ["trace"]
    compared = valid_document("compare", compare("--catalog", catalog.directory, "--workload", "trace of trace",
                                                 "--json").stdout)
    assert compared["kind"] == "test comparison" and compared["catalog"]["joined"] == 1


def test_a_missing_partial_is_left_out_and_named(catalog, new_run):
    run = next(catalog.entry(path.stem) for path in catalog.results.iterdir() if '"slow"' in path.read_text())
    catalog.partial_path(run).unlink()
    joined = join(catalog, measure_fleet([new_run]).measured)
    (left_out,) = (each for each in joined.left_out if each.reason == "unreadable")
    assert left_out.id == run["id"] and "add the run again: blkreel results add" in left_out.text
    result = compare(new_run, "--catalog", catalog.directory)
    assert result.return_value == 3 and f"left out: {left_out.text}" in result.stderr
    always = compare(new_run, "--catalog", catalog.directory, "--fail-if", "throughput < 9000000MB/s")
    assert always.return_value == 4


def test_a_run_that_the_catalog_is_compared_with_is_named(catalog, new_run, small_runs):
    """Its own regression would be an improvement of all others."""
    words = "the catalog with new drive, the first drive named"
    arguments = new_run, "--catalog", catalog.directory, "--fail-if", "throughput < -5%"
    assert words in compare(*arguments).stderr
    assert words not in compare(*arguments, "--base", "fast").stderr
    assert words not in compare(small_runs[0], *arguments).stderr


def test_a_damaged_result_is_left_out_with_exit_code_3(catalog, new_run):
    assert compare(new_run, "--catalog", catalog.directory).return_value == 0
    path = next(path for path in catalog.results.iterdir() if '"slow"' in path.read_text())
    path.write_text("{")
    result = compare(new_run, "--catalog", catalog.directory)
    assert result.return_value == 3 and f"left out: {path} is damaged" in result.stderr


def test_a_unit_with_two_labels_is_noted(catalog, new_run, small_runs):
    result, partial = collected(small_runs[0])
    run = {**result["metadata"]["run"], "label": "renamed"}
    numbers = count(1)
    catalog.put(variant(result, next(numbers), metadata={**result["metadata"], "run": run}, label="renamed"), partial)
    notes = join(catalog, measure_fleet([new_run]).measured).notes
    assert len(notes) == 1 and "2 labels" in notes[0] and "fast" in notes[0] and "renamed" in notes[0]


def test_add_keeps_the_new_run(catalog, new_run, tmp_path):
    compare(new_run, "--catalog", catalog.directory, "--add", "-q")
    assert "new drive" in catalog.entries().label.tolist()
    fresh = tmp_path / "fresh"
    compare(new_run, "--catalog", fresh, "--add")
    assert Catalog.open(fresh).entries().label.tolist() == ["new drive"]


def test_add_keeps_each_repetition_of_a_directory(new_run, small_runs, tmp_path):
    for number, run in enumerate((new_run, small_runs[0])):
        shutil.copytree(run, tmp_path / f"repetitions/{number}")
    compare(tmp_path / "repetitions", "--catalog", tmp_path / "catalog", "--add")
    assert len(Catalog.open(tmp_path / "catalog").entries()) == 2


@pytest.mark.parametrize("words, message", [
    ([], "no runs given"), (["run", "--add"], "--add: no catalog given"),
    (["--drive", "x"], "--drive: no catalog given"), (["--catalog", "none", "--gap", "1s"], "--gap: results of a")])
def test_options_that_need_each_other(words, message):
    with pytest.raises(UsageError, match=message):
        compare(*words)
