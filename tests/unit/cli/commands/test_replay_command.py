"""What `replay` and `report` print about a run, and repetitions that the same command continues."""

import itertools
import json
import os
import re
import signal
from functools import partial

import click
import numpy as np
import pyarrow as pa
import pytest
from small_trace import new_trace
from waiting import wait_until

from blkreel.cli.command_table import find_command
from blkreel.replay.plan.history import THREAD_TIMES
from blkreel.traces.format.condition import Condition
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS, TRACE_SCHEMA

DRIVE = "nil:64GiB,clock=virtual"
MS = 1_000_000


@pytest.fixture
def replay(blkreel, tmp_path):
    """replay(*options) replays a sample on a simulated drive into `run`."""
    def run(*options, sample="game-small", drive=DRIVE, columns=80):
        return blkreel("replay", f"sample:{sample}", "--on", drive, "-o", tmp_path / "run", *options, check=False,
                       env={"COLUMNS": str(columns)})
    return run


@pytest.mark.parametrize("options", [(), ("--pace", "dependent"), ("--idle", "cap=25ms"), ("--pace", "depth=4"),
                                     ("--label", "A drive whose name is long enough to take two lines, " * 2)])
def test_a_run_is_summed_up_in_eight_lines(replay, blkreel, tmp_path, options):
    result = replay(*options)
    lines = result.stdout.splitlines()
    assert len(lines) <= 8, result.stdout
    assert lines[0].startswith(f"{tmp_path / 'run'}:") and "0 errors" in "".join(lines[:4])
    assert lines[-1] == f"next: {blkreel.command} report {tmp_path / 'run'}"
    assert blkreel("report", tmp_path / "run", env={"COLUMNS": "80"}).stdout.splitlines() == lines[:-1]


def test_more_is_printed_when_asked_for(replay):
    qualified = ("--idle", "cap=1ms", "--pace", "x2")
    brief = " ".join(replay(*qualified).stdout.split())
    assert re.search(r"1 more reason: --why|more reasons: --why", brief) and "stalls of the issuing thread" not in brief
    verbose = replay("-v", "--force", *qualified).stdout
    assert "stalls of the issuing thread: none" in verbose and "drive temperature" in verbose
    reasons = replay("--why", "--force", *qualified).stdout
    assert reasons.count("qualified: ") >= 2 and "more reasons" not in reasons


def test_a_dependent_run_tells_how_long_threads_slept_when_asked_for_more(blkreel, tmp_path):
    trace = new_trace(tmp_path / "t.parquet", submit_ns=np.arange(3) * MS, tid=5, waited_on=np.array([-1, 0, 1]),
                      blocked_ns=0, slept_ns=np.array([0, MS // 4, MS]), runnable_ns=0,
                      schema=pa.schema([*TRACE_SCHEMA, *((name, pa.int64()) for name in THREAD_TIMES)]))
    result = blkreel("replay", trace, "--on", DRIVE, "-o", tmp_path / "run", "--pace", "dependent", "-v", check=False,
                     env={"COLUMNS": "80"})
    assert "  sleep of threads: 50.0 % of the time between their I/Os, kept as captured\n" in result.stdout
    assert "turnaround" not in result.stdout, "of a simulated drive"


@pytest.fixture
def make_trace(tmp_path):
    """make_trace(**columns) writes a trace and returns its path; columns of one value are repeated."""
    def make(**columns):
        return new_trace(tmp_path / "t.parquet", drive_bytes=1 << 30, latency_ns=MS // 10, **columns)

    return make


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "drive.img"
    path.touch()
    os.truncate(path, 32 << 20)
    return path


@pytest.fixture
def trace(make_trace):
    """Writes and reads of 100 ms."""
    count = 100
    return make_trace(submit_ns=np.arange(count) * MS, offset_bytes=np.arange(count) * 65536 % (16 << 20),
                      length_bytes=4096, op=np.where(np.arange(count) % 2, OPS["read"], OPS["write"]))


@pytest.fixture
def repeated(blkreel, image, trace, tmp_path):
    """repeated(*options) replays the trace on the image into `runs`."""
    return partial(blkreel, "replay", trace, "--on", image, "-o", tmp_path / "runs", check=False)


def test_reads_and_flushes_without_a_write_are_replayed(blkreel, image, make_trace, tmp_path):
    """A flush changes no data: the drive of such a trace is not written to after the prefill."""
    trace = make_trace(submit_ns=np.arange(20) * MS, offset_bytes=np.arange(20) * 4096, length_bytes=4096,
                       op=np.where(np.arange(20) % 2, OPS["read"], OPS["flush"]))
    for name, options in (("prefilled", ()), ("not prefilled", ("--no-prefill",))):
        blkreel("replay", trace, "--on", image, "-o", tmp_path / name, *options, code=(0, 3))
        assert account(tmp_path / name)["completed_ops"] == 20 and account(tmp_path / name)["error_ops"] == 0


def account(run):
    return open_trace(run).metadata["run"]


def test_each_repetition_starts_from_the_state_of_the_first(blkreel, repeated, image, tmp_path):
    blkreel("precondition", image, "--state", "client", "--rest", "1ms", "--seed", "5")
    runs, result = tmp_path / "runs", repeated("--repeat", "2", "--json")
    document = json.loads(result.stdout)
    assert [each["path"] for each in document["repetitions"]] == [str(runs / "1"), str(runs / "2")]
    assert document["complete"]
    invalid = [each for each in document["repetitions"] if each["run"]["verdict"]["level"] == "invalid"]
    assert result.returncode == (3 if invalid else 0)
    for number in (1, 2):
        run = account(runs / str(number))
        assert run["state"]["name"] == "client" and run["state"]["written_since_bytes"] == 0
        assert run["seed"] == number
    assert account(runs / "2")["state"]["prepared_at"] is not None
    assert f"{image} is in the state client again" in result.stderr
    assert result.stderr.count("again") == 1, "the first run found the state as it was prepared"


def test_runs_that_differ_in_an_input_are_no_repetitions(blkreel, make_trace, tmp_path):
    """The map, the device, and the arguments of a map. A comparison states what differs, and decides no condition."""
    trace = make_trace(submit_ns=np.arange(2000) * MS // 10, offset_bytes=np.arange(2000) * 65536 % (16 << 20),
                       length_bytes=4096, op=OPS["read"], device=np.arange(2000) % 2)
    drive = "nil:256MiB,read_latency=200us,channels=1,clock=virtual"
    for name, options in {"a": (), "b": ("--map", "tile=2"), "c": ("--map", "tile=4")}.items():
        blkreel("replay", trace, "--device", "0", "--on", drive, "-o", tmp_path / name, "--label", "A", *options)
    blkreel("replay", trace, "--device", "1", "--on", drive, "-o", tmp_path / "d", "--label", "A")
    runs = [tmp_path / name for name in "abcd"]
    document = json.loads(blkreel("compare", *runs, "--json").stdout)
    assert [[entry["n"] for entry in section["entries"]] for section in document["sections"]] == [[1, 1, 1], [1]]
    assert any(note.startswith("map is not the same: ") and "tile, copies 2" in note for note in document["notes"])
    decided = blkreel("compare", *runs[:2], "--fail-if", "read_wait > +10%", "--allow-simulated", check=False)
    assert decided.returncode == 3 and "map is not the same" in decided.stderr


BESIDE = ("--background", "writes=1MB/s")
# Each option of `replay` -> option sets that differ from the usual one in it; without any it is no input of a result.
# Threads and polling are none of a simulated drive (tests/unit/traces/format/test_condition.py).
OPTION_SETS = {
    "--pace": [("x2",), ("x2.0000001",), ("paced",), ("dependent",), ("depth=4",)],
    "--compute": [("x4", "--pace", "dependent")], "--idle": [("none",), ("cap=25ms",)],
    "--map": [("compact",), ("tile=2",)], "--prefill": [()], "--without": [("writes",)],
    "--background": [("writes=2MB/s",), ("writes=1MB/s",)], "--background-lead": [("1ms", *BESIDE)],
    "--device": [("1",)], "--compressible": [("50",)], "--duplicates": [("50",)],
    **dict.fromkeys(["--on", "--output", "--threads", "--polled", "--passthrough", "--destroy", "--baseline", "--label",
                     "--seed", "--power-command", "--power-log", "--power-sensor", "--sample", "--ocp-log",
                     "--effect-limits", "--repeat", "--until-valid", "--dry-run", "--why", "--no-live", "--force",
                     "--json", "--quiet",
                     "--verbose"], [])}


def test_any_two_option_sets_that_differ_in_one_input_are_two_conditions(blkreel, make_trace, tmp_path):
    """And no repetitions of each other: --repeat does not continue one with the other."""
    assert set(OPTION_SETS) == {max(each.opts, key=len) for each in find_command("replay").params
                                if isinstance(each, click.Option)}
    count = 60
    trace = make_trace(submit_ns=np.arange(count) * MS, offset_bytes=np.arange(count) * 65536, length_bytes=4096,
                       op=np.where(np.arange(count) % 3, OPS["read"], OPS["write"]), device=np.arange(count) % 2)
    usual = ("replay", trace, "--on", "nil:1GiB,read_latency=200us,clock=virtual", "--device", "0")
    named = {f"{option} {' '.join(words)}": ("--no-prefill" if option == "--prefill" else option, *words)
             for option, sets in OPTION_SETS.items() for words in sets}
    words_of_option = {options[0]: options[1:] for options in named.values()}  # one set of each option
    repetitions = tmp_path / "runs"
    blkreel(*usual, "-o", repetitions, "--repeat", "1", check=False)
    conditions = {}
    for number, (name, options) in enumerate([("usual", ()), *named.items()]):
        blkreel(*usual, "-o", tmp_path / f"{number}", *options, code=(0, 3))
        conditions[name] = Condition.of(open_trace(tmp_path / f"{number}").metadata)
        if options and words_of_option[options[0]] == options[1:]:
            continued = blkreel(*usual, "-o", repetitions, "--repeat", "2", *options, check=False)
            assert continued.returncode == 1 and "another replay: " in continued.stderr, (name, continued.stderr)
    for one, other in itertools.combinations(conditions, 2):
        assert conditions[one] != conditions[other], (one, other)


def test_too_little_data_for_duplicates_is_a_warning(repeated):
    """Copies repeat 256 blocks: of the 50 written and 50 prefilled ones none is a copy."""
    assert "--duplicates 90: 0 % of the" in repeated("--duplicates", "90").stderr
    assert "--duplicates" not in repeated("--force").stderr


def test_the_same_command_continues(blkreel, repeated, image, trace, tmp_path):
    runs = tmp_path / "runs"
    begun = repeated("--repeat", "1")
    assert f"the state of {image} is unknown" in begun.stderr and "precondition" in begun.stderr
    first = (runs / "1/records.parquet").stat().st_mtime_ns
    result = repeated("--repeat", "2")
    assert f"{runs / '1'} is finished" in result.stderr
    assert (runs / "1/records.parquet").stat().st_mtime_ns == first and (runs / "2/records.parquet").exists()
    assert f"next: {blkreel.command} compare {runs}" in result.stdout
    limits = repeated("--repeat", "3", "--effect-limits", "1%:5%")
    assert limits.returncode == 1 and "another replay: effect_limits differ" in limits.stderr
    other = repeated("--repeat", "2", "--idle", "none")
    assert other.returncode == 1 and "another replay: idle differ" in other.stderr
    new_trace(trace, drive_bytes=1 << 30, submit_ns=[0], op=OPS["write"])
    changed = repeated("--repeat", "3")
    assert changed.returncode == 1 and "another replay: trace_content differ" in changed.stderr
    image.rename(image.with_name("first.img"))
    image.touch()
    os.truncate(image, 64 << 20)
    drive = repeated("--repeat", "3")
    assert drive.returncode == 1 and "another replay: trace_content, drive differ" in drive.stderr
    replaced = repeated("--repeat", "1", "--idle", "none", "--force")
    assert replaced.returncode in (0, 3) and not (runs / "2").exists()
    assert account(runs / "1")["idle"]["name"] == "none"


def test_repetitions_beside_another_background_of_the_same_name_are_others(blkreel, trace, tmp_path):
    beside = trace.with_name("beside.parquet")
    words = ("replay", trace, "--on", DRIVE, "-o", tmp_path / "runs", "--background", beside, "--background-lead",
             "1ms")
    for number, count in enumerate((20, 30), 1):
        new_trace(beside, drive_bytes=1 << 30, submit_ns=np.arange(count) * 10 * MS, op=OPS["write"])
        result = blkreel(*words, "--repeat", str(number), check=False)
    assert result.returncode == 1 and "another replay: background_content differ" in result.stderr


def test_a_dry_run_counts_all_copies_of_a_tiled_trace(blkreel, make_trace, tmp_path):
    trace = make_trace(submit_ns=np.arange(20) * MS, offset_bytes=np.arange(20) * 8192, length_bytes=4096,
                       op=np.where(np.arange(20) < 15, OPS["read"], OPS["write"]))
    words = ["replay", trace, "--on", DRIVE, "-o", tmp_path / "run", "--map", "tile=3"]
    planned = json.loads(blkreel(*words, "--dry-run", "--json").stdout)
    assert planned["ops"] == {"read": 45, "write": 15} and planned["bytes"] == {"read": 45 * 4096, "write": 15 * 4096}
    assert planned["touched"] == {"extents": 60, "bytes": 60 * 4096}
    assert planned["prefill"]["bytes"] == 45 * 4096 and planned["changed_by_trace_bytes"] == 15 * 4096
    assert "would replay 60 I/Os" in blkreel(*words, "--dry-run").stdout


def test_after_ctrl_c_the_interrupted_repetition_is_replayed_again(blkreel, image, make_trace, tmp_path):
    runs = tmp_path / "runs"
    slow = make_trace(submit_ns=np.arange(60) * 100 * MS, offset_bytes=np.arange(60) * 4096, length_bytes=4096,
                      op=np.full(60, OPS["write"]))
    words = ["replay", slow, "--on", image, "-o", runs, "--repeat", "2"]
    process = blkreel.start(*words)
    rows = runs / "1/.records.parquet.spool/rows.blocks"
    wait_until(lambda: rows.exists() and rows.stat().st_size, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "interrupted after 0 of 2 repetitions; run the same command again to continue" in errors
    blkreel(*words, code=(0, 3))
    assert all(account(runs / name)["partial"] is None for name in "12")


@pytest.mark.parametrize("words", [("replay", "TRACE", "--on"), ("precondition", "--state", "full"),
                                   ("test", "qd1", "--quick", "--fit", "--on")], ids=lambda words: words[0])
def test_a_dry_run_touches_nothing_and_says_what_would_be_refused(blkreel, trace, tmp_path, words):
    (tmp_path / "photos.img").write_bytes(b"precious" * (8 << 20))
    before = set(tmp_path.rglob("*"))
    drive = [str(tmp_path / "photos.img")]
    command = [str(trace) if word == "TRACE" else word for word in words]
    result = blkreel(*command[:1], *(drive if command[0] == "precondition" else []), *command[1:],
                     *(drive if command[0] != "precondition" else []), "--dry-run")
    said = " ".join(result.stderr.split())
    assert "without --dry-run this is refused" in said and "has data, and this overwrites it" in said
    assert "--dry-run" not in said.partition("to confirm: ")[2] and "--destroy" in said
    made = {path.name for path in set(tmp_path.rglob("*")) - before}
    assert made <= {"state", "processes-not-checked"}
    assert (tmp_path / "photos.img").read_bytes() == b"precious" * (8 << 20)


def test_until_valid_is_bounded(repeated, tmp_path):
    """Without the prefill a drive is read that holds nothing: no run is valid."""
    runs, words = tmp_path / "runs", ("--repeat", "2", "--until-valid", "--no-prefill")
    result = repeated(*words)
    assert result.returncode == 3
    assert sorted(path.name for path in runs.iterdir() if path.is_dir()) == ["1", "2", "3", "4", "5", "6"]
    assert f"{runs}: 6 runs, 6 invalid" in result.stdout
    assert repeated(*words).returncode == 3 and not (runs / "7").exists()
    without_number = repeated("--until-valid")
    assert without_number.returncode == 2 and "add --repeat" in without_number.stderr


def test_a_directory_of_other_files_is_not_replaced(repeated, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "thesis.tex").write_text("mine")
    for options in ((), ("--force",)):
        result = repeated("--repeat", "1", *options)
        assert result.returncode == 1, result.stderr
    assert [path.name for path in runs.iterdir()] == ["thesis.tex"]


def test_a_file_with_data_is_overwritten_only_if_the_command_names_it(blkreel, trace, tmp_path):
    document, other = tmp_path / "documents.tar", tmp_path / "copy.parquet"
    document.write_bytes(b"precious" * (4 << 20))
    other.write_bytes(trace.read_bytes() + b"PAR1" * (8 << 20))
    before = document.read_bytes()

    def replay(target, *options):
        return blkreel("replay", trace, "--on", target, "-o", tmp_path / "run", "--pace", "asap", "--force", *options,
                       check=False)

    refused = replay(document)
    assert refused.returncode == 5 and f"--destroy {document}" in refused.stderr
    for words in ((), ("--destroy", other)):
        result = replay(other, *words)
        assert result.returncode == 5 and "is a trace or another output of blkreel" in result.stderr
    wrong = replay(document, "--destroy", "WRONG")
    assert wrong.returncode == 5 and "--destroy 'WRONG' does not name" in wrong.stderr
    assert document.read_bytes() == before and other.read_bytes().startswith(trace.read_bytes())
    assert replay(document, "--destroy", document).returncode in (0, 3)
    assert document.read_bytes() != before
    assert replay(document).returncode in (0, 3)  # a drive of blkreel from now on
