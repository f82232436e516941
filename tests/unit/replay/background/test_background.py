"""Replays beside a background, on simulated drives whose times are known exactly."""

import json
from dataclasses import replace

import numpy as np
import pytest
from fake_engine import replay
from small_trace import new_trace
from tree import APP_START
from waiting import wait_until

from blkreel.analysis.metrics.definitions.registry import figures
from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.report import present
from blkreel.analysis.report.beside import beside_sentence
from blkreel.analysis.report.charts.beside import beside as beside_chart
from blkreel.analysis.report.charts.efficiency import efficiency
from blkreel.analysis.report.charts.over_time import temperature
from blkreel.analysis.report.document import comparison
from blkreel.common.errors import BlkreelError, TraceError, UsageError
from blkreel.replay.background import plan as background_plan
from blkreel.replay.background.plan import plan_beside
from blkreel.replay.background.spec import BackgroundSpec, parse_background, parse_rate
from blkreel.replay.drive.target import find_target
from blkreel.replay.plan.pace import ALL_IDLE, DEPENDENT, ORIGINAL, InFlightLimits, Pace, parse_pace
from blkreel.replay.plan.plan import LEAD_NS
from blkreel.replay.plan.planner import plan_trace
from blkreel.replay.simulated import state as simulated_state
from blkreel.traces.format.exposure import Exposure
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS
from blkreel.traces.telemetry.reader import read_telemetry

US, MS, S = 1_000, 1_000_000, 10**9
READ, WRITE = OPS["read"], OPS["write"]
OWN, ROLE = FLAGS["own"], FLAGS["role_background"]
MIB = 1 << 20
# Each I/O takes 100 us, whatever else is in flight.
DRIVE = ("nil:64MiB,clock=virtual,read_latency=100us,read_bandwidth=4096GB/s,write_latency=100us,"
         "write_bandwidth=4096GB/s")
SLOW_WRITES = DRIVE.replace("write_latency=100us", "write_latency=10ms,channels=64")


@pytest.fixture(autouse=True)
def directories(tmp_path, monkeypatch):
    monkeypatch.setenv("BLKREEL_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def trace(tmp_path):
    """trace(name, submit_ns=[...], ...) is an open trace."""
    def make(name="load", **columns):
        return open_trace(new_trace(tmp_path / f"{name}.parquet", **{"latency_ns": 500 * US, "flags": OWN} | columns))

    return make


@pytest.fixture
def load(trace):
    """100 reads of 4 KiB, one each 10 ms."""
    return trace(submit_ns=np.arange(100) * 10 * MS)


def beside(load, texts, target=DRIVE, pace=ORIGINAL, map_name=None, lead_ns=S, prefill=True):
    target = find_target(target) if isinstance(target, str) else target

    def foreground(part, name):
        return plan_trace(load, target, pace=pace, idle=ALL_IDLE, map_name=name, part=part, prefill=prefill)

    return plan_beside(foreground, target, [parse_background(text) for text in texts], lead_ns=lead_ns,
                       map_name=map_name, prefill=prefill, seed=1)


def replayed(tmp_path, plan, name="run"):
    """(account, rows of the foreground, rows of the background)"""
    account = replay(plan, tmp_path / name)
    rows = open_trace(tmp_path / name).table().to_pandas()
    is_background = (rows["flags"] & ROLE) != 0
    return account, rows[~is_background], rows[is_background]


@pytest.mark.parametrize(("text", "expected"), [
    ("writes=110MB/s", {"written_bytes": 110_000_000, "every_ns": None, "block_bytes": MIB, "access": "sequential",
                        "depth": 1}),
    ("writes=40MB/2s", {"written_bytes": 40_000_000, "every_ns": 2 * S, "block_bytes": 16384, "access": "random",
                        "depth": 2}),
    ("writes=200MB/s,block=128KiB,random,depth=4,span=1GiB", {
        "written_bytes": 200_000_000, "block_bytes": 128 << 10, "access": "random", "depth": 4, "span_bytes": 1 << 30}),
    ("sample:download,rate=1Gbit", {"trace": "sample:download", "rate_bytes_s": 125e6}),
    ("a,b.parquet,device=1", {"trace": "a,b.parquet", "device": 1})])
def test_backgrounds_as_given(text, expected):
    assert parse_background(text) == BackgroundSpec(text, **{"trace": None, **expected})


def test_rates():
    assert [parse_rate(text) for text in ("110MB/s", "1Gbit", "300Mbit/s", "16KiB/s")] == [110e6, 125e6, 37.5e6, 16384]


@pytest.mark.parametrize("text", [
    "writes=0MB/s", "writes=110MB", "writes=40MB/0s", "writes=1MB/s,depth=0", "writes=1MB/s,size=4K", ",rate=1Gbit",
    "download.parquet,rate=fast", "download.parquet,device=x", "download.parquet,speed=3"])
def test_wrong_backgrounds_are_refused(text):
    with pytest.raises(UsageError) as error:
        parse_background(text)
    assert error.value.remedy


def test_the_foreground_is_that_of_the_run_alone(load, tmp_path):
    """On a drive where nothing waits for anything else: the same times after the lead, the same metrics."""
    plan = beside(load, ["writes=10MB/s,block=64KiB"], lead_ns=2 * S)
    account, rows, _ = replayed(tmp_path, plan)
    alone, alone_rows, none = replayed(tmp_path, plan.foreground, "alone")
    assert len(none) == 0 and account["as_planned"] and account["verdict"]["level"] == alone["verdict"]["level"]
    assert (rows["submit_ns"].to_numpy() - alone_rows["submit_ns"].to_numpy() == 2 * S).all()
    for name in ("latency_ns", "offset_bytes", "source_row"):
        assert (rows[name].to_numpy() == alone_rows[name].to_numpy()).all()
    assert (account["planned_ops"], account["completed_ops"]) == (100, 100)
    assert account["reads"] == alone["reads"] and account["own_wall_ns"] == alone["own_wall_ns"]
    metrics = [figures(measure(tmp_path / name).partial) for name in ("run", "alone")]
    assert metrics[0]["read"] == metrics[1]["read"] and metrics[0]["write"]["ops"] == 0


@pytest.mark.parametrize("pace", [DEPENDENT, Pace("depth", 4)])
def test_a_foreground_without_fixed_times_starts_after_the_lead(load, tmp_path, pace):
    _, rows, background = replayed(tmp_path, beside(load, ["writes=10MB/s"], pace=pace))
    assert int(rows["submit_ns"].min()) == S + LEAD_NS
    assert int(background["submit_ns"].min()) == LEAD_NS


def test_the_background_runs_until_the_foreground_ends_on_its_own_part(load, tmp_path):
    account, rows, background = replayed(tmp_path, beside(load, ["writes=10MB/s,block=100KiB"]))
    end_ns = int((rows["submit_ns"] + rows["latency_ns"]).max())
    assert int(background["submit_ns"].max()) <= end_ns < int(background["submit_ns"].max()) + 20 * MS
    gaps = np.diff(background["submit_ns"].to_numpy())
    assert abs(gaps - 10.24 * MS).max() < 2, "one write of 102,400 bytes each 10.24 ms"
    assert int(background["offset_bytes"].min()) >= int((rows["offset_bytes"] + rows["length_bytes"]).max())
    assert set(background["stream"]) == {1} and set(rows["stream"]) == {0}
    assert ((background["flags"] & OWN) == 0).all()
    (written,) = account["background"]
    during = background[(background["submit_ns"] + background["latency_ns"] >= LEAD_NS + S)
                        & (background["submit_ns"] + background["latency_ns"] < end_ns)]
    duration_ns = end_ns - S - LEAD_NS
    assert written["bytes"] == background["length_bytes"].sum()
    assert written["reached_bytes_s"] == pytest.approx(during["length_bytes"].sum() * 1e9 / duration_ns)
    assert written["reached_share"] == 1 and written["asked_bytes_s"] == 10e6
    assert (written["latency_p50_ns"], written["latency_p99_ns"]) == (100 * US + 25, None), "of 98 writes"
    assert written["outstanding_share"] == pytest.approx(0.01, rel=0.05)


def test_power_and_temperature_are_those_of_the_foreground(load, tmp_path):
    """They were those of the lead and of the part of the run before as much time had passed as the foreground took.
    The bytes of the background are in no figure, so that no efficiency is stated."""
    account, rows, _ = replayed(tmp_path, beside(load, ["writes=40MB/s"]))
    samples = read_telemetry(tmp_path / "run").samples
    time_ns, watts = samples["power_w"]
    during_ns = np.arange(rows["submit_ns"].min(), (rows["submit_ns"] + rows["latency_ns"]).max(), MS)
    power = account["telemetry"]["power"]
    assert power["average_w"] == pytest.approx(np.interp(during_ns, time_ns, watts).mean(), rel=0.01)
    assert power["average_w"] != pytest.approx(np.interp(during_ns - S, time_ns, watts).mean(), rel=0.02)
    assert account["telemetry"]["temperature_c"]["end"] == samples["temperature_c"][1][-1]
    drawn = temperature(measure(tmp_path / "run"))
    assert drawn[0][0] == 0 and drawn[-1][0] == pytest.approx(samples["temperature_c"][0][-1] / S - 1, abs=1e-3)
    (row,) = efficiency(comparison([measure(tmp_path / "run")])[1][0].entries, "efficiency", []).table.rows
    assert row.values["efficiency_mb_per_j"] is None and row.values["average_w"]


def test_a_recorded_background_is_repeated_without_a_seam(load, trace, tmp_path):
    """Of ten writes each 5 ms, the eleventh follows 5 ms after the tenth. All blocks of its reads are prefilled."""
    trace("update", submit_ns=np.arange(10) * 5 * MS, op=[READ, WRITE] * 5, offset_bytes=np.arange(10) * MIB * 100,
          length_bytes=8192)
    plan = beside(load, [str(tmp_path / "update.parquet")])
    account, rows, background = replayed(tmp_path, plan)
    assert len(background) > 350
    assert (np.diff(background["submit_ns"].to_numpy()) == 5 * MS).all()
    assert (background["op"].to_numpy() == np.arange(len(background)) % 2).all()
    assert len(set(background["source_row"])) == len(background), "each I/O has a row of its own"
    assert account["unwritten_bytes"] == 0 and account["hazards"] == 0
    assert sum(blocks.bytes for blocks in plan.drives[0].background_prefill) == 5 * 8192
    assert ((background["flags"] & OWN) == 0).all(), "unlike those of the trace"
    assert account["background"][0]["asked_bytes_s"] == pytest.approx(5 * 8192 / 0.05)
    assert account["background"][0]["reached_share"] == 1, "of the writes; the reads do not count"


def test_the_rate_of_a_recording_that_hardly_writes_is_that_of_its_reads(load, trace, tmp_path):
    """A program that loads 4 GB writes a log: its rate is not that of the log."""
    trace("other", submit_ns=np.arange(100) * MS, op=[WRITE] + [READ] * 99, offset_bytes=np.arange(100) * MIB // 8,
          length_bytes=[512] + [65536] * 99)
    plan = beside(load, [str(tmp_path / "other.parquet")])
    account, _, _ = replayed(tmp_path, plan)
    (other,) = account["background"]
    assert other["words"].endswith("at 64.9 MB/s") and other["reached_share"] == 1 and plan.drives[0].background_writes


def test_a_rate_of_a_recording_scales_its_times(load, trace, tmp_path):
    trace("copy", submit_ns=np.arange(10) * 5 * MS, op=WRITE, length_bytes=65536, latency_ns=US)
    _, _, background = replayed(tmp_path, beside(load, [f"{tmp_path}/copy.parquet,rate=6553600B/s"]))
    assert (np.diff(background["submit_ns"].to_numpy()) == 10 * MS).all()


def test_each_repetition_starts_at_another_phase(load, trace, tmp_path):
    trace("copy", submit_ns=np.arange(10) * 5 * MS, op=WRITE)
    plan = beside(load, [str(tmp_path / "copy.parquet"), "writes=1MB/100ms"])
    first = [next(background.batches()) for number in (1, 2) for background in plan.repetition(number).backgrounds]
    assert [batch["source_row"][0] for batch in first] == [0, 0, 7, 0], "0.618 of ten rows of 5 ms"
    assert [batch["due_ns"][0] - LEAD_NS for batch in first] == [0, 0, 4_098_301, 38_196_601]


def test_a_writer_keeps_its_limit_of_writes_in_flight(load, trace, tmp_path):
    """Two writes in flight on the captured drive, 1 ms apart. The drive takes 10 ms: at original pace more than ten are
    in flight, paced never more than two, and the background says how far it came."""
    writes = trace("writes", submit_ns=np.arange(200) * MS, latency_ns=1500 * US, op=WRITE)

    def most_in_flight(rows):
        ends = (rows["submit_ns"] + rows["latency_ns"]).to_numpy()
        return max(int((rows["submit_ns"] <= at).sum() - (ends <= at).sum()) for at in rows["submit_ns"])

    account, _, background = replayed(tmp_path, beside(load, [str(tmp_path / "writes.parquet")], SLOW_WRITES))
    assert most_in_flight(background) == 2
    (written,) = account["background"]
    assert written["reached_share"] == pytest.approx(0.2, abs=0.01)
    assert "reached 20" in next(each["text"] for each in account["verdict"]["reasons"]
                                if each["code"] == "background_slow")
    for pace, most in (("paced", 2), ("original", 11)):
        plan = plan_trace(writes, find_target(SLOW_WRITES), pace=parse_pace(pace, find_target(SLOW_WRITES).drive),
                          idle=ALL_IDLE)
        assert most_in_flight(replayed(tmp_path, plan, pace)[1]) == most


def test_the_rate_of_bursts_is_that_of_the_bytes_due_beside_the_load(load, tmp_path):
    account, _, _ = replayed(tmp_path, beside(load, ["writes=8MB/800ms"], SLOW_WRITES), "burst")
    slow = next(each["text"] for each in account["verdict"]["reasons"] if each["code"] == "background_slow")
    (written,) = account["background"]
    assert written["asked_bytes_s"] == 10**7 and "of 8.09 MB/s that were due" in slow, "one burst of 8 MB in 0.989 s"


def test_bursts_that_the_drive_writes_at_once_reach_their_rate_at_each_phase(load, tmp_path):
    """A burst may end just before the reads begin, or begin just before they end: neither is a slow background."""
    plan = beside(load, ["writes=8MB/400ms"])
    for number in range(10):
        account, _, _ = replayed(tmp_path, plan.at_phase(number / 10), f"phase-{number}")
        assert account["background"][0]["reached_share"] == 1, number


def test_a_background_with_nothing_due_beside_the_load_is_no_background(load, tmp_path):
    account, foreground, background = replayed(tmp_path, beside(load, ["writes=500KB/s"], SLOW_WRITES))
    end_ns = (foreground["submit_ns"] + foreground["latency_ns"]).max()
    assert not background["submit_ns"].between(foreground["submit_ns"].min(), end_ns).any()
    assert "had nothing due" in next(each["text"] for each in account["verdict"]["reasons"]
                                     if each["code"] == "background_slow")


def test_the_limits_are_those_of_a_plain_count_in_any_batches():
    random = np.random.default_rng(5)
    submit_ns = np.sort(random.integers(0, 1000, 300))
    latency_ns = random.integers(1, 60, 300)
    expected = [sum(submit_ns[j] + latency_ns[j] > submit_ns[i] for j in range(i)) + 1 for i in range(300)]
    for rows in (1, 7, 300):
        limits = InFlightLimits()
        assert [limit for begin in range(0, 300, rows) for limit in
                limits.of(submit_ns[begin:begin + rows], latency_ns[begin:begin + rows])] == expected


def test_the_exposure_of_a_run_is_that_of_its_background(load, tmp_path):
    replayed(tmp_path, beside(load, ["writes=50MB/s,block=1MiB"]))
    exposure = Exposure.of_metadata(open_trace(tmp_path / "run").metadata)
    assert exposure.beside_share == 1 and exposure.write_bytes_s == pytest.approx(50e6, rel=0.05)


def test_the_region_that_the_state_client_overwrote_is_the_background_s(load, monkeypatch):
    class Client:
        name = "client"

    monkeypatch.setattr(background_plan.drive_state, "load", lambda target: Client)
    plan = beside(load, ["writes=10MB/s,block=64KiB"])
    assert plan.backgrounds[0].part.start_bytes == 0 and plan.backgrounds[0].part.size_bytes == 2 * MIB
    assert plan.foreground.mapping.start_bytes == 2 * MIB
    assert min(batch["offset_bytes"].min() for batch in plan.foreground.batches()) == 2 * MIB
    plan = beside(load, ["writes=10MB/s,block=64KiB,span=16MiB"])
    assert plan.foreground.mapping.start_bytes == 0 and plan.backgrounds[0].part.start_bytes >= 100 * 4096


def test_a_trace_that_reaches_to_the_end_of_the_drive_is_packed_to_make_room(trace):
    load = trace(submit_ns=np.arange(2) * MS, offset_bytes=[0, 64 * MIB - 4096])
    plan = beside(load, ["writes=10MB/s"])
    assert plan.mapping.name == "compact" and plan.backgrounds[0].part.end_bytes <= 64 * MIB
    with pytest.raises(BlkreelError, match="free beside"):
        beside(load, ["writes=10MB/s"], map_name="identity")


def test_backgrounds_side_by_side_stay_in_the_free_part(load, monkeypatch):
    texts = ["writes=1MB/2s,span=80KiB", "writes=1MB/2s,span=80KiB", "writes=1MB/2s", "writes=1MB/s,block=96KiB"]

    def parts():
        each = [background.part for background in beside(load, texts).backgrounds]
        assert all(before.end_bytes <= behind.start_bytes for before, behind in zip(each, each[1:], strict=False))
        assert each[0].size_bytes == 80 << 10
        return each

    assert parts()[-1].end_bytes <= find_target(DRIVE).size_bytes
    monkeypatch.setattr(background_plan, "overwritten_bytes", lambda *args: 5 * MIB + 4096)
    assert parts()[-1].end_bytes <= 5 * MIB + 4096


def test_backgrounds_that_cannot_be_replayed_are_refused_before_anything_is_written(load, trace, tmp_path):
    writes = trace("writes", submit_ns=np.arange(3) * MS, op=WRITE)
    trace("reads", submit_ns=np.arange(3) * MS)
    trace("flushes", submit_ns=np.arange(3) * MS, op=OPS["flush"], length_bytes=0)
    trace("empty", submit_ns=np.arange(0))
    trace("once", submit_ns=np.zeros(2, int), op=WRITE)
    trace("both", submit_ns=np.arange(2), op=WRITE, device=np.arange(2))
    zoned = find_target(DRIVE)
    zoned = replace(zoned, drive=replace(zoned.drive, zoned="host-managed", zone_bytes=MIB))
    for foreground, text, message, options in (
            (load, "writes=10MB/s,span=1GiB", "needs 1.07 GB", {}),
            (load, f"{tmp_path}/reads.parquet,rate=1MB/s", "it writes nothing", {}),
            (load, f"{tmp_path}/reads.parquet", "that nothing has written", {"prefill": False}),
            (load, f"{tmp_path}/flushes.parquet", "neither reads nor writes", {}),
            (load, f"{tmp_path}/empty.parquet", "holds no I/O", {}),
            (load, f"{tmp_path}/once.parquet", "one submit time", {}),
            (load, f"{tmp_path}/both.parquet", "choose one with --background .*both.parquet,device=0", {}),
            (load, "writes=10MB/s,block=1000B", "not whole blocks", {}),
            (load, "writes=10MB/s", "is zoned", {"target": zoned}),
            (writes, "writes=10MB/s", "reads nothing", {})):
        with pytest.raises((BlkreelError, UsageError, TraceError), match=message):
            beside(foreground, [text], **options)


@pytest.mark.parametrize(("pace", "words", "headline"), [("original", "(read wait +", 2),
                                                         ("dependent", "(+30 %)", 1.3)])
def test_the_command_gives_both_times_and_the_slowdown(blkreel, tmp_path, trace, pace, words, headline):
    """A drive whose reads take twice as long with a write in flight, and a writer that always has one in flight."""
    trace(submit_ns=np.arange(100) * 10 * MS)
    drive = "nil:64MiB,clock=virtual,read_latency=4ms,read_slowdown=2,write_latency=10ms,channels=64"
    result = blkreel("replay", tmp_path / "load.parquet", "--on", drive, "--pace", pace, "--background",
                     "writes=200MB/s,block=1MiB,depth=4", "--background-lead", "1s", "--baseline", "-o",
                     "runs", "--repeat", "2", check=False, cwd=tmp_path, env={"COLUMNS": "80"})
    assert f"beside writes of 200 MB/s {words}" in " ".join(result.stdout.split()), result.stdout + result.stderr
    assert [line for line in result.stdout.splitlines() if len(line) > 80] == []
    for number, order in ((1, ["baseline", "."]), (2, [".", "baseline"])):
        directory = tmp_path / "runs" / str(number)
        accounts = {name: open_trace(directory / name).metadata["run"] for name in order}
        assert accounts["."]["baseline"]["without"] == ["background"] and not accounts["baseline"]["background"]
        slowdown = accounts["."]["baseline"]["slowdown"]
        assert slowdown["read_wait"] == pytest.approx(2, rel=0.1)
        assert (slowdown["load_time"] is not None) == (pace == "dependent")
        times = [(directory / name / "records.parquet").stat().st_mtime_ns for name in order]
        assert times == sorted(times), "the order alternates"
    document = present.compare([tmp_path / "runs"])
    (entry,) = document["sections"][0]["entries"]
    assert entry["n"] == 2 and entry["headline"]["slowdown_by_writes"]["value"] == pytest.approx(headline, rel=0.1)
    assert "beside writes of 200 MB/s" in document["answer"]["sentence"]
    (row,) = beside_chart([entry], "beside").table.rows
    assert row.why["low"] == row.why["high"] == "n=2: too few runs"
    entry["runs"][1]["run"]["baseline"] = None
    assert "; no slowdown: no baseline of 1 of 2 runs" in beside_sentence(entry)


def test_repetitions_without_a_slowdown_give_the_reason(blkreel, tmp_path, trace):
    trace(submit_ns=np.arange(100) * 10 * MS)
    result = blkreel("replay", tmp_path / "load.parquet", "--on", DRIVE, "--background", "writes=500KB/s",
                     "--background-lead", "1s", "--baseline", "-o", tmp_path / "runs", "--repeat", "2", check=False)
    text = " ".join(result.stdout.split())
    why = "of the reads: no slowdown can be measured; use a background that writes more"
    assert text.count(why) == 2, text
    compared = blkreel("compare", tmp_path / "runs", "--json", env={"COLUMNS": "1000"})
    (entry,) = json.loads(compared.stdout)["sections"][0]["entries"]
    chart = beside_chart([entry], "beside")
    assert any(why in note for note in chart.notes) and why in chart.table.rows[0].why["slowdown"]
    assert why in blkreel("compare", tmp_path / "runs", env={"COLUMNS": "1000"}).stdout


def test_a_simulated_drive_is_replayed_at_five_phases(blkreel, tmp_path, trace):
    """Reads for 0.2 s beside a burst each second that takes 0.4 s: a single replay meets all of it, or nothing."""
    trace(submit_ns=np.arange(20) * 10 * MS)
    drive = "nil:64MiB,clock=virtual,read_latency=4ms,read_slowdown=2,write_bandwidth=100MB/s,channels=64"
    result = blkreel("replay", tmp_path / "load.parquet", "--on", drive, "--background", "writes=40MB/1s",
                     "--background-lead", "2s", "--baseline", "-o", tmp_path / "run", check=False)
    account = open_trace(tmp_path / "run").metadata["run"]
    phases = account["baseline"]["phases"]
    assert len(phases) == 5 and min(phases) == 1 and max(phases) > 1.5
    assert [round(each["phase"], 6) for each in account["other_phases"]] == [0.2, 0.4, 0.6, 0.8]
    mean = np.exp(np.log(phases).mean())
    assert account["baseline"]["slowdown"]["read_wait"] == pytest.approx(mean)
    assert "over 5 phases of the background" in " ".join(result.stdout.split())
    (entry,) = present.compare([tmp_path / "run"])["sections"][0]["entries"]
    assert entry["headline"]["slowdown_by_writes"]["value"] == pytest.approx(mean, rel=1e-6)
    chart = beside_chart([entry], "beside")
    (row,) = chart.table.rows
    assert row.values["beside"] == pytest.approx(row.values["alone"] * mean, rel=1e-6)
    assert any("Times elsewhere are of the first phase." in note for note in chart.notes)
    figures_of_none = {**entry["figures"], "run": {**entry["figures"]["run"], "background_reached": 0}}
    assert "the background reached 0 % of its rate" in beside_sentence({**entry, "figures": figures_of_none})
    withheld = {**entry["verdict"], "withheld": ["read_wait"]}
    assert not beside_sentence({**entry, "verdict": withheld}), "a withheld time is not printed"


def test_each_phase_starts_from_the_state_before_the_run_and_leaves_that_after_it(load, tmp_path):
    """A drive whose cache holds the writes of one run."""
    drive = ("nil:64MiB,clock=virtual,state=keep,read_latency=1ms,read_slowdown=2,write_bandwidth=20MB/s,channels=64,"
             "cache=16MiB,cache_bandwidth=4GB/s,cache_drain=1B/s")
    plan = beside(load, ["writes=6MB/1s"], drive).at_phase(0.1)
    simulated = plan.targets[0].simulated
    account, _, _ = replayed(tmp_path, plan)
    after = simulated_state.load(simulated)
    assert 10e6 < after["cache_fill_bytes"] < 13e6, "the writes of one run"
    others = account["other_phases"]
    assert [round(each["phase"], 6) for each in others] == [0.3, 0.5, 0.7, 0.9]
    simulated_state.erase(simulated)
    account, _, _ = replayed(tmp_path, plan.at_phase(others[0]["phase"]), "other phase")
    assert others[0] == {"phase": others[0]["phase"], "load_time_ns": account["own_wall_ns"],
                         "read_wait_ns": account["reads"]["wait_ns"]}
    account, _, _ = replayed(tmp_path, plan.at_phase(others[0]["phase"]), "with a full cache")
    assert account["reads"]["wait_ns"] > others[0]["read_wait_ns"]


def test_a_merged_background_is_replayed_as_one(blkreel, tmp_path):
    """Its rows are those of the plan, and no metric is of them."""
    for force in ((), ("--force",)):
        blkreel("merge", APP_START, "sample:download", "-o", tmp_path / "t.parquet", "--align", "start",
                "--offset", "0=2s", "--as-background", "1", "--onto", "one", *force)
    blkreel("replay", tmp_path / "t.parquet", "--on", "nil:8GiB,clock=virtual", "--pace", "1:paced", "--pace",
            "dependent", "-o", tmp_path / "run", check=False)
    account = open_trace(tmp_path / "run").metadata["run"]
    assert account["planned_ops"] == account["completed_ops"] and account["as_planned"]
    assert account["wall_ns"] < 20 * S, "of the start of the application, not of the download"
    assert "bytes read beside writes" in blkreel("info", tmp_path / "t.parquet").stdout
    assert blkreel("merge", "sample:app-start", "sample:update-unpack", "-o", tmp_path / "u.parquet", "--offset", "2s",
                   check=False).returncode == 2


def test_a_killed_replay_leaves_what_was_recorded(blkreel, load, tmp_path):
    """In real time, without a drive, in the lead: the run does not end before it is killed."""
    words = ["replay", str(load.path), "--on", "nil:1GiB", "--background", "writes=10MB/s", "--background-lead", "60s",
             "-o", str(tmp_path / "run")]
    with blkreel.start(*words) as process:
        note = tmp_path / "run/.records.parquet.spool/metadata.json"
        wait_until(lambda: note.is_file() and (json.loads(note.read_text()).get("run") or {}).get("background"))
        wait_until(lambda: json.loads(note.read_text())["run"]["background"][0]["ios"])
        process.kill()
    blkreel("recover", tmp_path / "run", check=False)
    account = open_trace(tmp_path / "run").metadata["run"]
    assert "killed" in account["partial"]
    (written,) = account["background"]
    assert written["bytes"] and written["reached_share"] is None
