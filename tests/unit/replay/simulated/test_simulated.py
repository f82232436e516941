"""Simulated drives as a user meets them: the words that describe them, what they remember, replays on them."""

import json
import os
import re
import signal
import threading
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers import helpers_of
from quiet import progress
from tree import GAME_DOWNLOAD, GAME_LOAD, TREE
from waiting import wait_until

from blkreel.common.errors import BlkreelError, SafetyError, UsageError
from blkreel.common.files.output_lock import spool_of
from blkreel.common.installation import state_directory
from blkreel.replay.drive.target import engine_options, find_target
from blkreel.replay.engine.engine import Lane
from blkreel.replay.prepare.precondition import rest
from blkreel.replay.simulated import state as simulated
from blkreel.replay.simulated.spec import KEYS, OTHER_KEYS, typical_drives
from blkreel.traces.format.schema import OPS

S, MS, US = 10**9, 10**6, 10**3
MIB = 1 << 20
SLC = "nil:1GiB,clock=virtual,cache=64MiB,cache_bandwidth=2GB/s,write_bandwidth=200MB/s,cache_drain=1MiB/s"


@pytest.fixture(autouse=True)
def states(tmp_path):
    return tmp_path / "state/simulated"


@pytest.fixture
def fast_bytes(on_drive, a_plan):
    """fast_bytes(spec): how much of 100 sequential writes of 1 MiB was as fast as the cache."""
    def measure(spec):
        _, rows = on_drive(spec, a_plan(np.arange(100) * MIB, op=OPS["write"], length_bytes=MIB))
        return int((rows["complete_ns"] - rows["submit_ns"] < 20 * US + MIB).sum()) * MIB

    return measure


def test_the_whole_drive_is_in_its_name():
    target = find_target("nil:64GiB,cache=8GiB,write_bandwidth=500MB/s,throttle_at=80C,throttle_factor=30%,name=a")
    drive = target.simulated
    assert target.is_nil and target.is_simulated
    assert target.drive.kind == "nil"
    assert target.drive.model == "simulated drive"
    assert target.size_bytes == 64 << 30
    assert drive["cache_bytes"] == 8 << 30
    assert drive["write_bandwidth"] == drive["random_write_bandwidth"] == drive["cache_drain"] == 500e6
    assert drive["throttle_at_c"] == 80 and drive["throttle_until_c"] == 75 and drive["throttle_factor"] == 0.3
    assert find_target(drive.spec).simulated.identity == drive.identity
    assert find_target("nil:64GiB,name=a").simulated.identity != find_target("nil:64GiB,name=b").simulated.identity
    plain = find_target("nil:1GiB")
    assert plain.is_nil and not plain.is_simulated and plain.drive.model == "no drive"


def test_every_key_and_its_default_is_documented():
    text = (TREE / "docs/replay.md").read_text().partition("## Simulated drive")[2]
    table = [line.split("|") for line in text.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    documented = {}
    for _, keys, defaults, *_ in table:
        names = re.findall(r"`(\w+)`", keys)
        documented |= dict(zip(names, (word.strip() for word in [*defaults.split(","), *[""] * len(names)]),
                               strict=False))
    assert documented.keys() == KEYS.keys() | set(OTHER_KEYS)
    assert all(documented[name] == key.default for name, key in KEYS.items() if key.default is not None)


def test_a_typical_drive_takes_the_given_keys():
    target = find_target("nil:sata-qlc,cache=0,size=2TB,clock=real")
    assert target.simulated["cache_bytes"] == 0 and target.simulated["program_ns"] == 5e6
    assert target.size_bytes == 2 * 10**12 and target.simulated.clock == "real"
    assert target.drive.name == "nil:sata-qlc,cache=0,clock=real,size=2TB"
    assert find_target(target.drive.name).simulated == target.simulated
    assert target.drive.model == "SATA QLC (typical)"


@pytest.mark.parametrize("name", typical_drives())
def test_a_typical_drive_is_documented_and_needs_no_time(name):
    target = find_target(f"nil:{name}")
    assert f"`{name}`" in (TREE / "docs/replay.md").read_text()
    assert target.simulated.is_virtual and target.size_bytes >= 10**11


def test_a_file_describes_the_same_drive(tmp_path):
    file = tmp_path / "drive.toml"
    file.write_text('size = "64GiB"\ncache = "8GiB"\nchannels = 16\nread_slowdown = 2.0\nclock = "virtual"\n')
    target = find_target(f"nil:{file}")
    words = "nil:64GiB,cache=8GiB,channels=16,read_slowdown=2,clock=virtual"
    assert target.simulated.identity == find_target(words).simulated.identity
    assert "cache=8GiB" in target.drive.name, "what is remembered of it must not outlive a change of the file"


@pytest.mark.parametrize(("spec", "says"), [
    ("nil:64GiB,flavour=3", "unknown key 'flavour'"),
    ("nil:64GiB,cache", "not key=value"),
    ("nil:64GiB,", "not key=value"),
    ("nil:64GiB,cache=8GiB,cache=9GiB", "twice"),
    ("nil:64GiB,cache=lots", "cache: 'lots' is not a size"),
    ("nil:64GiB,read_latency=80", "read_latency: no unit"),
    ("nil:64GiB,read_latency=0ns", "out of range"),
    ("nil:64GiB,write_bandwidth=500MB", "invalid rate"),
    ("nil:64GiB,write_bandwidth=0MB/s", "out of range"),
    ("nil:64GiB,channels=0", "out of range"),
    ("nil:64GiB,channels=1.5", "whole number"),
    ("nil:64GiB,clock=fast", "invalid clock"),
    ("nil:64GiB,state=old", "invalid state"),
    ("nil:64GiB,throttle_factor=nan", "out of range"),
    ("nil:64GiB,throttle_factor=150%", "out of range"),
    ("nil:64GiB,throttle_until=70C", "needs a throttle_at"),
    ("nil:64GiB,throttle_at=70C,throttle_until=80C", "needs a throttle_at"),
    ("nil:64GiB,stall_every=1s", "need each other"),
    ("nil:64GiB,stall_every=1s,stall_for=1s", "not shorter than stall_every"),
    ("nil:64GiB,random_write_bandwidth=2GB/s", "above write_bandwidth"),
    ("nil:0,clock=virtual", "no size"),
    ("nil:/nowhere/drive.toml", "cannot read /nowhere/drive.toml: No such file"),
    ("nil:read_latency=90us", "no size before read_latency=90us; .*nil:64GiB,read_latency=90us"),
    ("nil:sata-tcl", "no typical drive 'sata-tcl'; .*sata-tlc"),
])
def test_nonsense_is_a_usage_error_that_names_it(spec, says):
    with pytest.raises(UsageError) as error:
        find_target(spec)
    assert error.value.remedy and re.search(says, f"{error.value.message}; {error.value.remedy}")


@pytest.mark.parametrize("others", ["nil:1GiB", "nil:1GiB,clock=real"])
def test_drives_on_two_clocks_do_not_go_together(others):
    with pytest.raises(UsageError, match="same clock"):
        engine_options([find_target("nil:1GiB,clock=virtual"), find_target(others)])


def test_two_drives_share_a_virtual_clock(on_drive, a_plan):
    specs = ["nil:1GiB,clock=virtual,read_latency=100us", "nil:1GiB,clock=virtual,read_latency=1ms"]
    _, rows = on_drive(specs, {**a_plan(np.zeros(100, "i8")), "target": np.arange(100) % 2}, depth=2)
    for target, least_ns in ((0, 100 * US), (1, MS)):
        took = (rows["complete_ns"] - rows["submit_ns"])[rows["target"] == target]
        assert len(took) == 50
        assert took.min() == least_ns + 1170
    assert all(simulated.load(find_target(spec).simulated)["ios"] == 50 for spec in specs)


def test_one_drive_is_not_run_twice_at_once(on_drive, a_plan):
    """Each would forget what the other did to it."""
    def meanwhile(rows):
        with pytest.raises(SafetyError, match="in use by another run"):
            on_drive(SLC, a_plan([0]))
        on_drive(f"{SLC},name=another", a_plan([0]))
        seen.append(rows)

    seen = []
    on_drive(SLC, a_plan([0]), on_rows=meanwhile)
    assert seen
    on_drive(SLC, a_plan([0]))


def test_a_plan_that_breaks_off_has_changed_the_drive(on_drive, a_plan):
    seen = threading.Event()

    def plan():
        for _ in range(12):
            yield a_plan(np.arange(1000) * MIB, op=OPS["write"], length_bytes=MIB)
        seen.wait(300)
        raise ValueError("the trace is torn")

    with pytest.raises(ValueError, match="torn"):
        on_drive(SLC, Lane(plan(), 1), on_rows=lambda rows: seen.set())
    assert simulated.load(find_target(SLC).simulated)["cache_fill_bytes"] == 64 * MIB


def test_the_cache_is_still_full_in_the_next_run_and_rests_empty_it(fast_bytes):
    target = find_target(SLC)
    assert fast_bytes(SLC) == 64 * MIB
    assert fast_bytes(SLC) == 0
    for seconds, fast in ((10, 10), (30, 30), (3600, 64)):
        rest(target, seconds * S, what="resting", progress=progress)
        assert fast_bytes(SLC) == fast * MIB, f"after {seconds} s"
    simulated.erase(target.simulated)
    assert fast_bytes(SLC) == 64 * MIB
    simulated.erase(target.simulated)
    simulated.erase(target.simulated)


def test_its_clock_and_its_heat_go_on(on_drive, a_plan):
    spec = "nil:1GiB,clock=virtual,ambient=20C,heating=10C/W,idle_power=1W,read_power=5W,thermal_time=10s"
    target = find_target(spec)
    totals, _ = on_drive(spec, a_plan(np.zeros(200_000, "i8")))
    hot = simulated.load(target.simulated)
    assert hot["clock_ns"] == totals["wall_ns"] > 10 * S
    assert 40 < hot["temperature_c"] < 70
    totals, _ = on_drive(spec, a_plan([0]))
    assert totals["simulated"]["samples"][0][1] == pytest.approx(hot["temperature_c"])
    rest(target, 10 * S, what="resting", progress=progress)
    cooler = simulated.load(target.simulated)["temperature_c"]
    assert cooler - 30 == pytest.approx((hot["temperature_c"] - 30) * np.exp(-1), rel=0.01)


def test_on_the_real_clock_the_time_between_runs_counts():
    target = find_target(SLC.replace("virtual", "real"))
    state = {**simulated.fresh(target.simulated), "cache_fill_bytes": 64.0 * MIB}
    simulated.save(target.simulated, state, now_ns=lambda: 100 * S)
    later = simulated.load(target.simulated, now_ns=lambda: 116 * S)
    assert later["cache_fill_bytes"] == 48 * MIB
    assert later["clock_ns"] == 16 * S
    simulated.save(target.simulated, state)
    start = time.monotonic()
    rest(target, 300 * MS, what="resting", progress=progress)
    assert time.monotonic() - start >= 0.3, "it sleeps"
    stored = json.loads(next((state_directory() / "simulated").glob("*.json")).read_text())
    assert stored["state"]["cache_fill_bytes"] <= 63.7 * MIB


def test_a_killed_run_leaves_the_state_from_before(on_drive, a_plan, states):
    on_drive(SLC, a_plan(np.arange(8) * MIB, op=OPS["write"], length_bytes=MIB))
    before = simulated.load(find_target(SLC).simulated)

    def kill(rows):
        for helper in helpers_of(os.getpid()):
            os.kill(helper, signal.SIGKILL)

    def endless():
        while True:
            yield a_plan(np.zeros(30_000, "i8"), op=OPS["write"])

    with pytest.raises(BlkreelError, match="killed by signal 9"):
        on_drive(SLC, Lane(endless(), 1), on_rows=kill)
    assert simulated.load(find_target(SLC).simulated) == before
    assert sorted(path.suffix for path in states.iterdir()) == [".json", ".lock"], "nothing half written"


def test_a_state_that_cannot_be_kept_stops_the_run_before_it(on_drive, a_plan, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BLKREEL_STATE_DIR", str(tmp_path / "file"))
    with pytest.raises(BlkreelError, match="cannot save"):
        on_drive(SLC, a_plan([0]), on_rows=lambda rows: pytest.fail("a row was issued"))


def test_several_threads_are_refused(blkreel, tmp_path):
    result = blkreel("replay", GAME_LOAD, "--on", "nil:8GiB,clock=virtual", "-o", tmp_path / "run",
                     "--threads", "2", code=2)
    assert "--threads 1" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("arguments", [("--pace", "original"), ("--pace", "dependent"), ("--pace", "depth=4")])
def test_a_replay_takes_a_moment_and_tells_the_drives_time(blkreel, tmp_path, arguments):
    spec = "nil:8GiB,clock=virtual"
    result = blkreel("replay", GAME_LOAD, "--on", spec, "-o", tmp_path / "run", "--json", "--threads", "auto",
                     *arguments, code=0)
    run = json.loads(result.stdout)["run"]
    assert run["as_planned"] and run["completed_ops"] == run["planned_ops"]
    assert run["simulated"] and run["verdict"]["level"] != "invalid"
    assert not run["underruns"] and not run["record_stalls"]
    if "depth=4" not in arguments:
        assert run["lateness"]["max_ns"] == run["drift_ns"] == 0
    if "original" in arguments:
        assert run["wall_ns"] == pytest.approx(46.1 * S, rel=0.01)
    records = pq.read_table(tmp_path / "run/records.parquet", columns=["latency_ns"]).column(0).to_numpy()
    assert len(records) == run["planned_ops"] and records.min() > 20 * US


def test_it_can_be_prepared(blkreel, tmp_path):
    spec = "nil:256MiB,clock=virtual,cache=8MiB,random_write_bandwidth=50MB/s,state=keep"
    result = blkreel("precondition", spec, "--state", "enterprise")
    assert "enterprise" in result.stdout
    stored = json.loads(next((tmp_path / "state/simulated").glob("*.json")).read_text())["state"]
    assert stored["random_written_bytes"] >= 256 << 20
    assert set(stored["mapped"]) == {"f"}
    started = time.monotonic()
    blkreel("precondition", spec, "--state", "client", "--rest", "2h")
    assert time.monotonic() - started < 600, "it really rested"
    again = json.loads(next((tmp_path / "state/simulated").glob("*.json")).read_text())["state"]
    assert again["clock_ns"] >= 7200 * S
    assert again["random_written_bytes"] < 256 << 20, "the erase took the decline along"


def replayed(blkreel, spec, output):
    blkreel("replay", GAME_DOWNLOAD, "--on", spec, "-o", output, "--json", "--idle", "cap=1ms", code=0)
    return pq.read_table(output / "records.parquet", columns=["source_row", "submit_ns", "latency_ns"]).to_pandas()


def test_each_command_starts_with_a_fresh_drive_unless_its_state_is_kept(blkreel, tmp_path):
    """The cache holds what the first replay writes, and is full in the second if the state is kept."""
    spec = "nil:8GiB,clock=virtual,cache=400MiB,cache_bandwidth=3GB/s,write_bandwidth=100MB/s,cache_drain=1KB/s"
    first, again = (replayed(blkreel, spec, tmp_path / name) for name in ("first", "again"))
    assert first.equals(again)
    kept = [replayed(blkreel, f"{spec},state=keep", tmp_path / name)["latency_ns"].sum() for name in ("a", "b")]
    assert kept[0] == first["latency_ns"].sum()
    assert kept[1] > 1.5 * kept[0]
    assert replayed(blkreel, spec, tmp_path / "last").equals(first), "a fresh drive has nothing of its kept twin"


def test_a_state_that_would_be_lost_is_not_prepared(blkreel, tmp_path):
    result = blkreel("precondition", "nil:256MiB,clock=virtual", "--state", "full", code=2)
    assert "starts fresh with each command" in result.stderr and "clock=virtual,state=keep" in result.stderr
    assert not (tmp_path / "state/simulated").exists()
    assert blkreel("precondition", "nil:256MiB,clock=virtual", "--state", "full", "--dry-run").returncode == 0


def test_ctrl_c_ends_it_in_order(blkreel, tmp_path):
    """An endless wait on the real clock is ended like any other run."""
    process = blkreel.start("replay", GAME_LOAD, "--on", "nil:8GiB,clock=real", "-o", tmp_path / "run",
                            "--json", start_new_session=True)
    rows = spool_of(tmp_path / "run/records.parquet") / "rows.blocks"
    wait_until(lambda: rows.exists() and rows.stat().st_size > 10_000, process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 3, err
    run = json.loads(out)["run"]
    assert run["partial"] == "interrupted"
    assert 0 < run["completed_ops"] < run["planned_ops"]
    assert list((tmp_path / "state/simulated").glob("*.json"))
