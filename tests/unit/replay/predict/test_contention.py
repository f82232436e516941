"""Drives that are fitted to runs beside a background: what writes cost a trace that was not fitted."""

import json
import tomllib

import numpy as np
import pytest
from click.testing import CliRunner
from documented import run_blkreel
from quiet import progress
from small_trace import new_trace

from blkreel.cli.main import cli
from blkreel.common.errors import UsageError
from blkreel.replay.fidelity.queue_metrics import WRITE
from blkreel.replay.predict import contention
from blkreel.replay.predict.fit import fit_drives
from blkreel.replay.predict.measured_run import same_drive, with_baselines
from blkreel.replay.predict.prediction import CheckedErrors, error_of, file_text
from blkreel.replay.simulated import spec
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS

ALONE = "nil:8GiB,clock=virtual,read_latency=100us,write_latency=50us,channels=8,read_bandwidth=500MB/s"
BACKGROUND = ("--pace", "dependent", "--background", "writes=150MB/s", "--background-lead", "1s", "--baseline")


def write_load(path, seed, length_bytes, think_ns, depth=1, writes=0.0):
    """Each I/O follows the one that is `depth` I/Os before. writes: their share."""
    rows = 400
    op = (np.random.default_rng(seed).random(rows) < writes).astype("i8")
    lengths = np.random.default_rng(seed).choice(length_bytes, rows)
    submit_ns = np.arange(rows) * (think_ns + 100_000)
    waited_on = np.maximum(np.arange(rows) - depth, -1)
    return new_trace(path, {"title": f"load {seed}"}, submit_ns=submit_ns, latency_ns=100_000, flags=FLAGS["own"],
                     op=op, offset_bytes=np.cumsum(lengths) - lengths, length_bytes=lengths, waited_on=waited_on,
                     think_ns=np.where(waited_on < 0, 0, think_ns))


LOADS = {"large": (1, [1 << 20, 512 << 10], 100_000), "mixed": (2, [4096, 131072, 1 << 20], 50_000),
         "small": (3, [65536, 131072], 20_000), "megabytes": (4, [1 << 20], 20_000, 4),
         "single": (5, [1 << 20], 100_000), "writing": (7, [65536, 131072], 50_000, 1, 0.1),
         "a few": (8, [4096, 131072], 50_000, 1, 0.04),
         "flood": (9, [4096, 65536, 131072], 50_000, 8, 0.4)}
DRIVES = {"link": f"{ALONE},write_bandwidth=450MB/s,link=500MB/s",
          "program": f"{ALONE},write_bandwidth=300MB/s,program=4ms", "sata-qlc": "nil:sata-qlc,cache=0",
          "cache": f"{ALONE},write_bandwidth=100MB/s,program=4ms,cache=180MB,cache_bandwidth=500MB/s,"
                   "cache_program=200us,cache_fold=30MB/s,cache_drain=50MB/s"}


@pytest.fixture(autouse=True)
def few_simulations(monkeypatch):
    """And half of the starts of a search, of which it follows the best alone."""
    for name, value in (("_SIMULATIONS", 8), ("_CACHE_SIMULATIONS", 8), ("_POLISHED", 1), ("_DIES", (32,))):
        monkeypatch.setattr(contention, name, value)


@pytest.fixture(scope="module")
def replayed(tmp_path_factory, command_server):
    """replayed(drive, load): the directory of a replay beside the background, made once."""
    place = tmp_path_factory.mktemp("contention")

    def replay(drive, load):
        trace, run = place / f"{load}.parquet", place / f"{load}-{drive}"
        if not run.exists():
            run_blkreel(command_server, place, "replay", trace if trace.exists() else write_load(trace, *LOADS[load]),
                        "--on", DRIVES[drive], "-o", run, *BACKGROUND)
        return str(run)

    return replay


@pytest.mark.parametrize(("drive", "fitted", "other", "error"), [
    ("link", ["mixed"], "small", 0.05), ("program", ["mixed"], "large", 0.15),
    # One size of reads, of which most is the time of the link: they wait for programs as long as short reads do.
    ("sata-qlc", ["single", "megabytes"], "small", 0.1)])
def test_the_slowdown_of_a_trace_that_was_not_fitted_is_predicted(replayed, drive, fitted, other, error):
    runs = with_baselines([replayed(drive, load) for load in fitted])
    assert [run.has_background for run in runs] == [True, False] * len(fitted)
    drives = [model.drive() for model in fit_drives(runs, progress)]
    slowdown = error_of(with_baselines([replayed(drive, other)])[0], drives, progress).slowdown
    assert slowdown.predicted == pytest.approx(slowdown.measured, rel=error)
    assert slowdown.is_decided and slowdown.measured > 1.15


def test_a_trace_with_writes_of_its_own_shows_what_a_background_costs(replayed, monkeypatch):
    """Without another run, what its reads take alone is fitted to its baseline."""
    monkeypatch.setattr(contention, "_SIMULATIONS", 4)
    runs = with_baselines([replayed("program", "writing")])
    assert all(run.has_contention for run in runs)
    drives = [model.drive() for model in fit_drives(runs, progress)]
    assert drives[0]["program_ns"] == pytest.approx(4e6, rel=0.3)
    assert abs(error_of(runs[0], drives, progress).load_time) < 0.1


def test_a_write_that_waits_for_reads_has_no_longer_latency(command_server, tmp_path):
    """On a drive of one command writes wait for reads that wait for programs: 2.0 ms were fitted for 0.6 ms."""
    for name in ("a few", "flood"):
        trace = write_load(tmp_path / f"{name}.parquet", *LOADS[name])
        run_blkreel(command_server, tmp_path, "replay", trace, "--on", "nil:usb,clock=virtual", "-o", tmp_path / name,
                    "--pace", "dependent")
    model = fit_drives(with_baselines([str(tmp_path / "a few"), str(tmp_path / "flood")]), progress)[0]
    assert model.latency_ns[WRITE] == pytest.approx(600e3, rel=0.1)
    assert fit_drives(with_baselines([str(tmp_path / "flood")]), progress)[0].program_ns, "also from this run alone"


def test_a_write_cache_that_fills_up_is_fitted(replayed, monkeypatch):
    """Without it the p99 of the reads, of which most are beside writes past the cache, was 18 % too long."""
    for name, value in (("_CACHE_SIMULATIONS", 60), ("_POLISHED", 2), ("_DIES", (4, 32))):
        monkeypatch.setattr(contention, name, value)
    runs = with_baselines([replayed("cache", "large")])
    model = fit_drives(runs, progress)[0]
    assert model.cache["cache"] == pytest.approx(180e6, rel=0.1)
    error = error_of(runs[0], [model.drive()], progress)
    assert abs(error.read_p99) < 0.05 and abs(error.load_time) < 0.05
    facts = tomllib.loads(file_text(runs, model.words(), same_drive(runs), CheckedErrors((error,), True), "1"))
    assert "written_bytes" not in facts["fitted"] and facts["cache"]


def test_long_programs_are_found_where_the_background_waits_for_them(command_server, tmp_path):
    """From the rate that it reaches, programs of 2 ms on a slower drive fit nearly as well as those of 4 ms."""
    for name, options in (("game-small", ("--background", "writes=110MB/s", "--background-lead", "1s", "--baseline")),
                          ("package-install", ())):
        run_blkreel(command_server, tmp_path, "replay", f"sample:{name}", "--on", "nil:usb,clock=virtual", "-o",
                    tmp_path / name, "--pace", "dependent", *options)
    runs = with_baselines([str(tmp_path / name) for name in ("game-small", "package-install")])
    assert fit_drives(runs, progress)[0].program_ns == pytest.approx(4e6, rel=0.1)


def test_what_writes_cost_leaves_reads_alone_as_they_were(command_server, tmp_path):
    """Waits for programs on a single die would explain the few reads beside writes, and let all others wait in turn."""
    for name, options in (("game-small", ("--background", "writes=110MB/s", "--baseline")), ("app-start", ())):
        run_blkreel(command_server, tmp_path, "replay", f"sample:{name}", "--on", "nil:nvme-mid", "-o", tmp_path / name,
                    "--pace", "dependent", *options)
    drives = [model.drive() for model in fit_drives(with_baselines([str(tmp_path / "game-small")]), progress)]
    error = error_of(with_baselines([str(tmp_path / "app-start")])[0], drives, progress)
    assert abs(error.read_p99) < 0.2 and abs(error.load_time) < 0.01


def test_a_slowdown_that_the_fitted_runs_leave_open_is_not_stated(replayed, monkeypatch):
    """Single reads of one size do not show how much of them is latency, and so not what shorter reads take."""
    monkeypatch.setattr(contention, "_SIMULATIONS", 4)
    runs = with_baselines([replayed("sata-qlc", "single")])
    models = fit_drives(runs, progress)
    error = error_of(with_baselines([replayed("sata-qlc", "small")])[0], [model.drive() for model in models], progress)
    assert not error.slowdown.is_decided and error.slowdown_by_writes is None
    assert error.slowdown.low < error.slowdown.measured * 1.1 and error.slowdown.high > 2 * error.slowdown.low
    text = file_text(runs, models[0].words(), same_drive(runs), CheckedErrors((error,), True), "1")
    facts = tomllib.loads(text)["fitted"]
    assert facts["slowdown_by_writes_open"] == 1 and "slowdown_by_writes_error" not in facts
    assert facts["reads_from_bytes"] == facts["reads_to_bytes"] == 1 << 20


def test_the_command_states_the_predicted_slowdown_beside_the_measured_one(replayed, tmp_path):
    told = CliRunner().invoke(cli, ["model-drive", replayed("link", "large"), "-o", str(tmp_path / "drive.toml"),
                                    "--json"])
    document = json.loads(told.stdout)
    beside, alone = document["runs"]
    slowdown = beside["slowdown_by_writes"]
    assert alone["slowdown_by_writes"] is None and slowdown["predicted"] == pytest.approx(slowdown["measured"], rel=0.1)
    assert slowdown["is_decided"] and slowdown["low"] <= slowdown["predicted"] <= slowdown["high"]
    assert document["largest_error"]["slowdown_by_writes"] == pytest.approx(
        abs(slowdown["predicted"] / slowdown["measured"] - 1))
    facts = tomllib.loads((tmp_path / "drive.toml").read_text())["fitted"]
    assert facts["slowdown_by_writes_error"] < 0.1 and abs(beside["load_time_error"]) < 0.1


@pytest.mark.parametrize(("writes", "facts", "said"), [
    ("beside", "reads_from_bytes = 4096\nreads_to_bytes = 131072", "99.1 % of the bytes are in reads of other sizes"),
    ("none", "reads_from_bytes = 4096\nreads_to_bytes = 131072", None),
    ("beside", "reads_from_bytes = 4096\nreads_to_bytes = 1048576", None),
    ("beside", "reads_from_bytes = 4096\nreads_to_bytes = 1048576\nslowdown_by_writes_open = 1", "several models"),
    ("beside", "reads_from_bytes = 4096\nreads_to_bytes = 1048576\nwritten_bytes = 1000000", "at most 1.00 MB"),
    ("beside", "reads_from_bytes = 4096\nreads_to_bytes = 1048576\nwritten_bytes = 1000000000", None),
    ("beside", "runs = 2", "with few writes"),
    ("none", "runs = 2", None),
    ("own", "runs = 2", "with few writes"),
    ("own", "reads_from_bytes = 4096\nreads_to_bytes = 131072", "of other sizes"),
    ("own", "reads_from_bytes = 4096\nreads_to_bytes = 1048576", None)])
def test_a_replay_beside_writes_says_if_the_drive_was_not_fitted_to_such_reads(
        command_server, tmp_path, writes, facts, said):
    load = write_load(tmp_path / "load.parquet", 6, [1 << 20] * 15 + [131072], 50_000,
                      writes=0.2 if writes == "own" else 0.0)
    (tmp_path / "drive.toml").write_text('size = "8GiB"\nclock = "virtual"\nread_bandwidth = "500MB/s"\n'
                                         f"[fitted]\n{facts}\n")
    run_blkreel(command_server, tmp_path, "replay", load, "--on", f"nil:{tmp_path}/drive.toml", "-o", "run",
                *(BACKGROUND if writes == "beside" else BACKGROUND[:2]))
    reasons = {reason["code"]: reason["text"]
               for reason in open_trace(tmp_path / "run").metadata["run"]["verdict"]["reasons"]}
    assert said in reasons["slowdown_not_fitted"] if said else "slowdown_not_fitted" not in reasons


def test_facts_of_other_types_are_refused(tmp_path):
    (tmp_path / "drive.toml").write_text('size = "8GiB"\n[fitted]\nreads_from_bytes = "4 KiB"\n')
    with pytest.raises(UsageError, match="reads_from_bytes"):
        spec.parse(f"nil:{tmp_path}/drive.toml")
