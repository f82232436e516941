"""Replays without the writes, and load times without latency, on simulated drives whose times are known exactly."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from documented import run_blkreel
from empty_image import empty_image
from fake_engine import replay
from quiet import progress
from small_trace import new_trace
from tree import GAME_DOWNLOAD

from blkreel.analysis.compare import paired
from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.report import present
from blkreel.analysis.scale import ReadOptions, partial_cache
from blkreel.common.errors import UsageError
from blkreel.common.verdict import judged, reason
from blkreel.replay.drive.state import start_fresh
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import run_engine
from blkreel.replay.engine.untimed_io import Interrupted
from blkreel.replay.plan import survey_cache
from blkreel.replay.plan.pace import ALL_IDLE, DEPENDENT, ORIGINAL, Pace, parse_idle
from blkreel.replay.plan.plan import Sharding
from blkreel.replay.plan.planner import plan_trace
from blkreel.replay.run import zero_latency as zero_latency_module
from blkreel.replay.run.account import WITHOUT, baseline_account
from blkreel.replay.run.baseline import has_background_writes, run_with_baseline
from blkreel.replay.run.directory import RunDirectory
from blkreel.replay.run.run import Replay, ReplayOptions
from blkreel.replay.run.zero_latency import _measured, engine_version, plan_key, zero_latency
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS, TRACE_SCHEMA

US, MS = 1_000, 1_000_000
READ, WRITE, FLUSH = OPS["read"], OPS["write"], OPS["flush"]
OWN = FLAGS["own"]
DRIVE = "nil:1GiB,clock=virtual,read_latency=100us,read_bandwidth=4096GB/s,write_latency=700us,write_bandwidth=4096GB/s"
READ_NS = 100 * US + 1  # 4 KiB at that bandwidth take 1 ns
WRITE_NS = 700 * US + 1
BLOCKED_SCHEMA = TRACE_SCHEMA.append(pa.field("blocked_ns", pa.int64(), nullable=False))
BLOCKED = {"blocked_ns": np.array([0, 4]) * MS}  # of the thread, since its start


@pytest.fixture(autouse=True)
def directories(tmp_path, monkeypatch):
    monkeypatch.setenv("BLKREEL_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def trace(tmp_path):
    def make(threads=None, devices=1, **columns):
        metadata = {"devices": [{"name": str(i)} for i in range(devices)], "threads": threads or {}}
        return open_trace(new_trace(tmp_path / "t.parquet", metadata,
                                    schema=BLOCKED_SCHEMA if "blocked_ns" in columns else TRACE_SCHEMA,
                                    **{"latency_ns": 500 * US, "flags": OWN} | columns))

    return make


@pytest.fixture
def chain(trace):
    """A read, a write that waited for it, a flush that waited for that, and a read that waited for the flush.

    Think times: 1, 2 and 3 ms.
    """
    submit_ms = [0, 1.5, 4, 7.5]
    return trace(submit_ns=np.array(submit_ms) * MS, latency_ns=np.array([500, 500, 500, 500]) * US,
                 op=[READ, WRITE, FLUSH, READ], length_bytes=[4096, 4096, 0, 4096], tid=7, waited_on=[-1, 0, 1, 2],
                 think_ns=np.array([0, 1, 2, 3]) * MS, threads={"7": {"comm": "game", "pid": 7}})


def replayed(tmp_path, trace, pace=DEPENDENT, targets=None, name="run", **options):
    plan = plan_trace(trace, targets or find_target(DRIVE), pace=pace, idle=options.pop("idle", ALL_IDLE), **options)
    start_fresh(plan.targets)
    account = replay(plan, tmp_path / name, last_use=True)
    return account, open_trace(tmp_path / name).table().to_pandas().sort_values("source_row")


def test_what_waited_for_a_write_follows_what_the_write_waited_for(chain, tmp_path):
    whole, rows = replayed(tmp_path, chain)
    assert rows["source_row"].tolist() == [0, 1, 2, 3]
    account, reads = replayed(tmp_path, chain, without=("writes",), name="reads")
    assert reads["source_row"].tolist() == [0, 3]
    first_complete_ns = reads["submit_ns"].iloc[0] + READ_NS
    assert reads["submit_ns"].iloc[1] == first_complete_ns + 6 * MS, "the think times of all three"
    assert account["without"] == ["writes"] and whole["without"] == []
    assert account["as_planned"] and account["planned_ops"] == account["completed_ops"] == 2
    assert account["own_wall_ns"] == 2 * READ_NS + 6 * MS
    assert whole["own_wall_ns"] > account["own_wall_ns"] + WRITE_NS


@pytest.mark.parametrize("pace", [DEPENDENT, ORIGINAL, Pace("depth", 2)])
def test_reads_remain_as_they_were(trace, tmp_path, pace):
    random = np.random.default_rng(5)
    count = 3000
    opened = trace(submit_ns=np.sort(random.integers(0, 10**9, count)), op=random.integers(0, 2, count),
                   offset_bytes=random.integers(0, 9000, count) * 4096, latency_ns=random.integers(1, 10**6, count),
                   tid=random.integers(1, 4, count))
    table = opened.table().to_pandas()
    account, rows = replayed(tmp_path, opened, pace, without=("writes",))
    kept = table[table["op"] == READ]
    assert rows["source_row"].tolist() == kept.index.tolist()
    assert rows["offset_bytes"].tolist() == kept["offset_bytes"].tolist()
    assert rows["tid"].tolist() == kept["tid"].tolist()
    assert account["as_planned"] and not account["unwritten_bytes"]
    assert account["prefill"]["bytes"] == 4096 * kept["offset_bytes"].nunique(), "all that is read, also after writes"
    if pace == ORIGINAL:
        whole, _ = replayed(tmp_path, opened, pace, name="whole")
        assert len(np.unique(rows["due_ns"].to_numpy() - kept["submit_ns"].to_numpy())) == 1
        assert whole["prefill"]["bytes"] < account["prefill"]["bytes"]


@pytest.mark.parametrize(("column", "offset_bytes", "idle"), [
    ("due_ns", 0, parse_idle("cap=1ms")), ("offset_bytes", np.array([0, 1 << 40, 1 << 41]), ALL_IDLE)])
def test_idle_time_and_maps_are_as_with_the_writes(trace, tmp_path, column, offset_bytes, idle):
    opened = trace(submit_ns=np.array([0, 10, 20]) * MS, op=[READ, WRITE, READ], offset_bytes=offset_bytes)
    _, whole = replayed(tmp_path, opened, ORIGINAL, idle=idle)
    _, reads = replayed(tmp_path, opened, ORIGINAL, idle=idle, without=("writes",), name="reads")
    assert reads[column].tolist() == whole[column].iloc[[0, 2]].tolist()


def test_a_plan_of_reads_needs_no_write_permission(chain, tmp_path):
    image = empty_image(tmp_path / "image", 1 << 20)
    plan = plan_trace(chain, find_target(image), pace=DEPENDENT, idle=ALL_IDLE, prefill=False, without=("writes",))
    assert not plan.writes and not plan.changes_a_drive
    account = replay(plan, tmp_path / "run")
    assert account["as_planned"] and account["completed_ops"] == 2


def test_a_trace_without_reads_has_nothing_left(trace):
    with pytest.raises(UsageError, match="no reads of device 0"):
        plan_trace(trace(submit_ns=np.arange(3), op=WRITE), find_target(DRIVE), pace=ORIGINAL, idle=ALL_IDLE,
                   without=("writes",))


def test_the_load_time_without_latency_is_the_think_time(chain, tmp_path):
    account, _ = replayed(tmp_path, chain)
    assert account["zero_latency"]["load_time_ns"] == 6 * MS
    account, _ = replayed(tmp_path, chain, without=("writes",), name="reads")
    assert account["zero_latency"]["load_time_ns"] == 6 * MS
    account, _ = replayed(tmp_path, chain, ORIGINAL, name="original")
    assert account["zero_latency"] is None


def test_load_time_is_that_of_the_workload_only(trace, tmp_path):
    """The I/O of another program goes on after the workload's last I/O."""
    opened = trace(submit_ns=np.array([0, 2, 50]) * MS, tid=[7, 7, 8], waited_on=[-1, 0, -1], flags=[OWN, OWN, 0],
                   think_ns=np.array([0, 1500, 0]) * US)
    account, _ = replayed(tmp_path, opened)
    assert account["zero_latency"]["load_time_ns"] == 1500 * US
    assert account["own_wall_ns"] == 1500 * US + 2 * READ_NS
    assert account["wall_ns"] > 40 * MS


def test_load_time_without_marks_or_dependencies_is_that_of_all(trace, tmp_path):
    opened = trace(submit_ns=np.array([0, 2, 5]) * MS, tid=7, flags=0)
    account, _ = replayed(tmp_path, opened)
    assert account["pace"]["dependencies"] == "inferred" and account["own_wall_ns"] is None
    assert account["zero_latency"]["load_time_ns"] == 2 * 1500 * US + 1000 * US


def test_several_drives_and_streams_have_one_load_time(trace, tmp_path):
    opened = trace(submit_ns=np.array([0, 2, 4]) * MS, device=[0, 1, 0], devices=2, tid=7, waited_on=[-1, 0, 1],
                   think_ns=np.array([0, 1500, 1500]) * US)
    targets = {0: find_target(f"{DRIVE},name=a"), 1: find_target(f"{DRIVE},name=b")}
    account, _ = replayed(tmp_path, opened, targets=targets)
    assert account["zero_latency"]["load_time_ns"] == 3 * MS
    assert account["own_wall_ns"] == 3 * MS + 3 * READ_NS


def engine_that_fails(*arguments):
    pytest.fail("the plan was run")


def test_it_is_computed_once_for_each_plan(chain):
    def planned(**options):
        return plan_trace(chain, find_target(DRIVE), pace=DEPENDENT, idle=options.pop("idle", ALL_IDLE), **options)

    first = zero_latency(planned(), "a" * 64, progress)
    assert zero_latency(planned(), "a" * 64, progress, engine_that_fails) == first
    for plan, sha256 in ((planned(), "b" * 64), (planned(idle=parse_idle("cap=1ms")), "a" * 64),
                         (planned(without=("writes",)), "a" * 64),
                         (replace(planned(), sharding=Sharding(2, by="threads")), "a" * 64)):
        with pytest.raises(pytest.fail.Exception):
            zero_latency(plan, sha256, progress, engine_that_fails)


def test_a_map_has_no_effect_beside_its_copies(trace):
    """Maps that fold let I/Os overlap that did not in the source; the cache holds one load time for all of them."""
    count = 400
    random = np.random.default_rng(5)
    made = trace(submit_ns=np.arange(count) * 100 * US, latency_ns=1000 * US, op=np.arange(count) % 2,
                 offset_bytes=random.integers(0, 1 << 15, count) * 4096, length_bytes=64 * 1024,
                 tid=np.arange(count) % 4, waited_on=np.where(np.arange(count) < 4, -1, np.arange(count) - 4),
                 think_ns=random.integers(0, 300 * US, count),
                 threads={str(tid): {"comm": "game", "pid": 7} for tid in range(4)})
    times_ns, keys = {}, set()
    for name in ("identity", "compact", "wrap", "scale"):
        size = "256MiB" if name == "identity" else "64MiB" if name == "compact" else "1MiB"
        plan = plan_trace(made, find_target(f"nil:{size},read_latency=1us"), pace=DEPENDENT, idle=ALL_IDLE,
                          map_name=name)
        times_ns[name] = _measured(plan, progress, run_engine)
        keys.add(json.dumps(plan_key(plan, "a" * 64)))
    assert times_ns["identity"] and len(set(times_ns.values())) == 1 and len(keys) == 1


@pytest.mark.parametrize("facts", [{"load_time_ns": -1}, {"load_time_ns": "6"}, {"load_time_ns": True}, {}])
def test_an_entry_with_impossible_content_is_not_used(chain, facts, monkeypatch):
    plan = plan_trace(chain, find_target(DRIVE), pace=DEPENDENT, idle=ALL_IDLE)
    stored = []
    monkeypatch.setattr(survey_cache, "store_facts", lambda key, content: stored.append(content))
    expected = zero_latency(plan, "a" * 64, progress)
    monkeypatch.setattr(survey_cache, "load_facts", lambda key: {**stored[0], "load_time_ns": None, **facts})
    assert zero_latency(plan, "a" * 64, progress) == expected


def test_the_load_time_of_another_planner_is_not_used(tmp_path, monkeypatch):
    """Within one release it would be taken for that of this one."""
    versions = []
    monkeypatch.setattr(zero_latency_module, "_PLANNER", tmp_path)
    for content in ("first", "second", "second"):
        (tmp_path / "plan.py").write_text(content)
        engine_version.cache_clear()
        versions.append(engine_version())
    engine_version.cache_clear()
    assert versions[0] != versions[1] == versions[2]


def test_a_run_leaves_no_state_of_the_drive_without_latency(chain, tmp_path):
    replayed(tmp_path, chain)
    assert len(list((tmp_path / "state/simulated").glob("*.json"))) == 1


def test_the_threads_of_the_trace_are_in_the_run(chain, tmp_path):
    _, rows = replayed(tmp_path, chain, ORIGINAL)
    assert rows["tid"].tolist() == [7] * 4
    assert open_trace(tmp_path / "run").metadata["threads"] == {"7": {"comm": "game", "pid": 7}}


BUSY = "nil:16GiB,clock=virtual,read_latency=100us,channels=1,write_latency=900us,read_bandwidth=4GB/s"


@pytest.fixture(scope="module")
def busy_run(tmp_path_factory, command_server):
    """A run beside its baseline."""
    directory = tmp_path_factory.mktemp("busy")
    run_blkreel(command_server, directory, "replay", GAME_DOWNLOAD, "--on", BUSY, "-o", "run", "--baseline", "--idle",
                "cap=1ms")
    return directory / "run"


def test_the_baseline_is_replayed_first_and_named_in_the_run(blkreel, busy_run, tmp_path):
    run = open_trace(busy_run).metadata["run"]
    baseline = run["baseline"]
    alone = open_trace(busy_run / baseline["path"]).metadata["run"]
    assert alone["without"] == baseline["without"] == ["writes"] and run["without"] == []
    assert alone["started_at"] <= run["started_at"]
    assert baseline["read_wait_ns"] == alone["reads"]["wait_ns"]
    assert baseline["load_time_ns"] == alone["reads"]["load_time_ns"]
    assert baseline["slowdown"]["read_wait"] == run["reads"]["wait_ns"] / alone["reads"]["wait_ns"] > 1.5
    assert (baseline["verdict"], baseline["withheld"]) == (alone["verdict"]["level"], alone["verdict"]["withheld"])
    assert baseline["slowdown"]["load_time"] is None, "it is the plan's at original pace"
    assert alone["baseline"] is None
    # The baseline leaves nothing behind that changes the run: each starts with a fresh drive.
    blkreel("replay", GAME_DOWNLOAD, "--on", BUSY, "-o", tmp_path / "again", "--idle", "cap=1ms", check=False)
    again = open_trace(tmp_path / "again").metadata["run"]
    assert again["reads"] == run["reads"] and again["baseline"] is None


def test_the_entry_of_a_baseline_has_what_is_against_it():
    alone = {"reads": {"load_time_ns": 10, "wait_ns": 5}, "wall_ns": 12, "own_wall_ns": None,
             "verdict": judged([reason("hazards", "qualified", "b"), reason("io_errors", "invalid", "a")],
                               withheld=["read_wait"])}
    reads = {"load_time_ns": 20, "wait_ns": 20}
    entry = baseline_account(alone, reads, True)
    assert entry == {"path": "baseline", "without": ["writes"], "load_time_ns": 10, "read_wait_ns": 5,
                     "verdict": "invalid", "reason": "a", "withheld": ["read_wait"], "phases": None,
                     "slowdown": pytest.approx({"load_time": 2, "read_wait": 4})}
    assert baseline_account(alone, reads, False)["slowdown"]["load_time"] is None
    assert baseline_account({**alone, "reads": None}, reads, True) is baseline_account(alone, None, True) is None
    # Beside a background, all workload I/O is compared. The drive was simulated at two phases.
    phases = [{"phase": 0.5, "load_time_ns": 96, "read_wait_ns": 5}]
    entry = baseline_account(alone, reads, True, 24, phases)
    assert (entry["without"], entry["load_time_ns"]) == (["background"], 12)
    assert (entry["slowdown"], entry["phases"]) == (pytest.approx({"load_time": 4, "read_wait": 2}), [2, 8])
    assert baseline_account(alone, reads, False, 24, phases)["phases"] == [4, 1]


@pytest.mark.parametrize(("trace_name", "words", "message"), [
    ("reads", ["--baseline"], "holds no writes"),
    ("writes", ["--baseline"], "holds no reads"),
    ("both", ["--baseline", "--without", "writes"], "with and without the writes")])
def test_a_baseline_that_would_say_nothing_is_refused(blkreel, trace, tmp_path, trace_name, words, message):
    op = {"reads": READ, "writes": WRITE, "both": [READ, WRITE]}[trace_name]
    trace(submit_ns=np.array([0, 1]) * MS, op=op)
    result = blkreel("replay", tmp_path / "t.parquet", "--on", DRIVE, "-o", tmp_path / "run", *words, check=False)
    assert result.returncode == 2 and message in result.stderr
    assert not (tmp_path / "run").exists()


def test_force_replaces_a_run_with_its_baseline(blkreel, trace, tmp_path):
    trace(submit_ns=np.array([0, 1]) * MS, op=[READ, WRITE])
    words = ["replay", tmp_path / "t.parquet", "--on", DRIVE, "-o", tmp_path / "run", "--baseline"]
    assert blkreel(*words, check=False).returncode == 0
    assert "exists" in blkreel(*words, code=1).stderr
    assert blkreel(*words, "--force", check=False).returncode == 0
    assert (tmp_path / "run" / "baseline").is_dir()
    assert blkreel(*words[:-1], "--force", check=False).returncode == 0
    assert not (tmp_path / "run" / "baseline").exists(), "the baseline of the run that was replaced"


def test_an_interrupted_baseline_leaves_nothing(chain, tmp_path):
    def interrupted(options, plan, on_rows, on_note):
        totals = run_engine(options, plan, on_rows, on_note)
        return {**totals, "stopped": "interrupted"} if options.realtime else totals

    target = find_target(DRIVE)
    plans = [plan_trace(chain, target, pace=DEPENDENT, idle=ALL_IDLE, without=without) for without in ((), WITHOUT)]
    run = Replay(plans[0], RunDirectory(tmp_path / "run", False), ReplayOptions("x", 1, engine=interrupted), progress)
    with pytest.raises(Interrupted, match="during the baseline"):
        run_with_baseline(run, plans[1])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("op", "flags", "length_bytes", "expected"), [
    ([READ, WRITE], [OWN, 0], 4096, True),
    ([READ, WRITE], [OWN, OWN], 4096, False),  # its own write is no background
    ([READ, WRITE], [0, 0], 4096, True),       # nothing is marked
    ([READ, WRITE], [OWN, 0], [1 << 20, 4096], False),
    ([READ, READ], [OWN, 0], 4096, False),
    ([READ, OPS["zone_append"]], [OWN, 0], 4096, True),
    ([WRITE, WRITE], [OWN, 0], 4096, False)])
def test_what_counts_as_background_writes(trace, op, flags, length_bytes, expected):
    opened = trace(submit_ns=np.array([0, 1]), op=op, flags=flags, length_bytes=length_bytes)
    assert has_background_writes(opened, [0]) is expected


def test_repetitions_restore_the_state_for_the_baseline_and_for_the_run(blkreel, trace, tmp_path):
    trace(submit_ns=np.array([0, 1, 2]) * MS, op=[READ, WRITE, READ])
    drive = "nil:16MiB,clock=virtual,state=keep"
    blkreel("precondition", drive, "--state", "full")
    blkreel("replay", tmp_path / "t.parquet", "--on", drive, "-o", tmp_path / "runs", "--baseline", "--repeat", "2",
            check=False)
    for number in ("1", "2"):
        run = open_trace(tmp_path / "runs" / number).metadata["run"]
        alone = open_trace(tmp_path / "runs" / number / "baseline").metadata["run"]
        assert alone["without"] == ["writes"] and run["baseline"]["slowdown"]["read_wait"] == pytest.approx(1)
        for account in (alone, run):
            assert account["state"]["name"] == "full" and not account["state"]["written_since_bytes"]


def test_computing_time_is_divided_and_time_blocked_by_io_stays(trace, tmp_path):
    """Two reads of a thread, the second 11.5 ms after the first has completed. Of these the thread was blocked by I/O
    for 3.5 ms, which a faster processor does not shorten; in all for 4 ms, with the first read."""
    reads = trace(submit_ns=np.array([0, 12]) * MS, tid=7, waited_on=[-1, 0], think_ns=np.array([0, 11.5]) * MS,
                  threads={"7": {"comm": "game", "pid": 7}}, **BLOCKED)
    for factor, expected_ns in ((1, 11_500_000), (4, 3_500_000 + 8_000_000 // 4)):
        account, rows = replayed(tmp_path, reads, Pace("dependent", compute=factor), name=f"x{factor}")
        assert int(rows["submit_ns"].iloc[1] - rows["submit_ns"].iloc[0]) == READ_NS + expected_ns
        assert account["pace"].get("compute") == (None if factor == 1 else factor)
        assert account["zero_latency"]["load_time_ns"] == expected_ns, "of the same plan"
    assert [each["text"] for each in account["verdict"]["reasons"] if each["code"] == "compute_scaled"] == [
        "computing time divided by 4; waits for timers, frames or the network count as computing"]


def test_inferred_dependencies_compute_faster_too(trace, tmp_path):
    reads = trace(submit_ns=np.array([0, 12]) * MS, tid=7)
    _, rows = replayed(tmp_path, reads, Pace("dependent", compute=4))
    assert int(rows["submit_ns"].iloc[1] - rows["submit_ns"].iloc[0]) == READ_NS + 11_500_000 // 4


def test_compute_needs_a_dependent_pace(blkreel, chain, tmp_path):
    result = blkreel("replay", chain.path, "--on", DRIVE, "-o", tmp_path / "run", "--compute", "x4", check=False)
    assert result.returncode == 2 and "add --pace dependent" in result.stderr and not (tmp_path / "run").exists()
    result = blkreel("replay", chain.path, "--on", DRIVE, "-o", tmp_path / "run", "--compute", "x0", "--pace",
                     "dependent", check=False)
    assert result.returncode == 2 and "invalid --compute" in result.stderr


def test_a_comparison_keeps_runs_without_the_writes_apart(trace, tmp_path):
    """They are another workload, and no repetitions of the run with the writes."""
    opened = trace(submit_ns=np.arange(40) * MS, op=[READ, WRITE] * 20)
    replayed(tmp_path, opened, ORIGINAL, name="whole")
    replayed(tmp_path, opened, ORIGINAL, name="reads", without=("writes",))
    compared = present.compare([tmp_path / "whole", tmp_path / "reads"])
    assert [(section["title"], len(section["entries"])) for section in compared["sections"]] == [
        ("Original timing", 1), ("Original timing, without writes", 1)]


def test_a_page_compares_a_run_with_its_baseline_once(busy_run, tmp_path, monkeypatch):
    monkeypatch.setattr(partial_cache, "MIN_ROWS", 0)

    def slowdown():
        document = present.report(busy_run, tmp_path / "page.json", force=True,
                                  read_options=ReadOptions(jobs=1, keep=True))
        return document["entry"]["slowdown_by_writes"]

    first = slowdown()
    assert first["paired"]["read_wait"]["value"] > 1.5
    assert first["paired"]["reads"]["latency"]["n"] == 2795, "all reads of the trace"
    monkeypatch.setattr(paired, "open_trace", lambda path: pytest.fail("the rows were read again"))
    assert slowdown() == first


def test_the_read_wait_of_the_account_is_that_of_the_report(trace, tmp_path):
    random = np.random.default_rng(9)
    count = 2000
    opened = trace(submit_ns=np.sort(random.integers(0, 10**8, count)), op=random.integers(0, 2, count),
                   length_bytes=random.choice([4096, 1 << 20], count))
    account, _ = replayed(tmp_path, opened, ORIGINAL, find_target("nil:8GiB,clock=virtual,channels=2"))
    assert measure(tmp_path / "run").partial.read.wait_ns == account["reads"]["wait_ns"] > 0
