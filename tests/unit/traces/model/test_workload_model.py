"""Workload models: what is fitted to rows of known distributions, and what is made of a model."""

import json
import subprocess

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from small_trace import new_trace
from tree import COMPILE, GAME_DOWNLOAD, GAME_LOAD

from blkreel.common.errors import UsageError
from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS
from blkreel.traces.model import (
    compared,
    fio_job,
    generated,
    measured,
    model_text,
    modeled_trace,
    properties,
    read_model,
    write_generated,
)
from blkreel.traces.model.fit import fit_model
from blkreel.traces.model.measurement import COLUMNS

MIB, GIB = 1 << 20, 1 << 30
BURST_IOS, PAUSE_NS, GAP_NS = 200, 500_000_000, 50_000
ROWS = 20_000


def bursty_rows(seed=3):
    """Bursts of 200 I/Os every 50 us with pauses of 500 ms: 70 % reads, half of them in sequential pairs; 90 % of the
    jumps in the first 64 MiB of 4 GiB; reads of 4K and 16K as 3:1, writes of 64K; each takes 1 ms."""
    random = np.random.default_rng(seed)
    op = np.where(random.random(ROWS) < 0.7, OPS["read"], OPS["write"]).astype(np.int8)
    length = np.where(op == OPS["write"], 65_536, np.where(random.random(ROWS) < 0.75, 4096, 16_384))
    hot = random.random(ROWS) < 0.9
    offset = np.where(hot, random.integers(0, 64 * MIB // 65_536, ROWS), random.integers(0, 4 * GIB // 65_536, ROWS))
    offset = offset * 65_536
    reads = np.flatnonzero(op == OPS["read"])
    offset[reads[1::2]] = (offset + length)[reads[:-1:2]][:len(reads[1::2])]
    gaps = np.where(np.arange(ROWS) % BURST_IOS, GAP_NS, PAUSE_NS)
    gaps[0] = 0
    return {"submit_ns": np.cumsum(gaps), "op": op, "offset_bytes": offset, "length_bytes": length,
            "latency_ns": np.full(ROWS, 1_000_000)}


def end_of(rows):
    return int((rows["offset_bytes"] + rows["length_bytes"]).max())


def played(model):
    """Columns of the I/Os made of a model."""
    parts = list(generated(model, 1))
    return {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}


@pytest.fixture(scope="module")
def bursty():
    """The model of bursty_rows, and the I/Os made of it."""
    rows = bursty_rows()
    model = fit_model(measured([rows], end_of(rows), ROWS))
    return rows, model, played(model)


def test_operations_and_sizes_are_those_of_the_trace(bursty):
    rows, _, made = bursty
    for code in (OPS["read"], OPS["write"]):
        assert (made["op"] == code).sum() == (rows["op"] == code).sum()
        for length in np.unique(rows["length_bytes"][rows["op"] == code]):
            before, after = (((each["op"] == code) & (each["length_bytes"] == length)).sum() for each in (rows, made))
            assert after == pytest.approx(before, abs=20), (code, length)


def test_bursts_and_pauses_are_those_of_the_trace(bursty):
    rows, _, made = bursty
    gaps_ns = np.diff(made["submit_ns"])
    assert (gaps_ns == PAUSE_NS).sum() == (np.diff(rows["submit_ns"]) == PAUSE_NS).sum()
    assert set(np.unique(gaps_ns)) == {GAP_NS, PAUSE_NS}
    assert made["submit_ns"][-1] == rows["submit_ns"][-1]


def test_sequential_reads_reuse_and_hot_spots_are_those_of_the_trace(bursty):
    rows, model, made = bursty
    before, after = model.properties, properties(measured([made], model.capacity_bytes, ROWS))
    assert after["read_sequential_share"] == pytest.approx(before["read_sequential_share"], abs=0.02)
    assert after["reuse_share"] == pytest.approx(before["reuse_share"], abs=0.1)
    assert after["hot_share"] == pytest.approx(before["hot_share"], abs=0.05)
    hot_shares = [(each["offset_bytes"] < 65 * MIB).mean() for each in (rows, made)]
    assert hot_shares[1] == pytest.approx(hot_shares[0], abs=0.05)
    assert made["offset_bytes"].min() >= 0 and end_of(made) <= end_of(rows)


def test_depth_is_that_of_the_trace(bursty):
    _, model, made = bursty
    # 1 ms of latency at one I/O each 50 us, from 1 to 20 in flight at the beginning of a burst.
    assert model.properties["depth_p99"] == 20
    assert model.properties["depth_mean"] == pytest.approx(20 - 190 / BURST_IOS, rel=0.01)
    assert properties(measured([made], model.capacity_bytes, ROWS))["depth_p99"] == 20


def test_fano_factor_of_a_periodic_and_of_a_bursty_workload():
    periodic = bursty_rows() | {"submit_ns": np.arange(ROWS) * 1_000_000}
    measurement = measured([periodic], end_of(periodic), ROWS)
    assert properties(measurement)["fano_100ms"] == pytest.approx(0, abs=1e-9)
    # A window of 10 s holds 19 or 20 bursts, one of 10 ms 200 I/Os or none.
    rows = bursty_rows()
    values = properties(measured([rows], end_of(rows), ROWS))
    counts = np.bincount((rows["submit_ns"] // 10_000_000).astype(int))[:rows["submit_ns"][-1] // 10_000_000]
    assert values["fano_10ms"] == pytest.approx(counts.var() / counts.mean())


def test_interleaved_sequential_streams_are_recognized_and_made():
    """Four readers, each sequential in its own file."""
    stream = np.arange(ROWS) % 4
    rows = {"submit_ns": np.arange(ROWS) * 1000, "op": np.zeros(ROWS, np.int8), "latency_ns": np.full(ROWS, -1),
            "offset_bytes": stream * GIB + np.arange(ROWS) // 4 * 4096, "length_bytes": np.full(ROWS, 4096)}
    measurement = measured([rows], end_of(rows), ROWS)
    model = fit_model(measurement)
    assert model.properties["read_sequential_share"] == (ROWS - 4) / ROWS
    assert not model.has_latency() and "depth_mean" not in model.properties
    made = list(generated(model, 5))
    assert sum(len(np.unique(part["offset_bytes"])) for part in made) == ROWS  # no two streams follow one I/O
    assert all((part["latency_ns"] == -1).all() for part in made)


def test_runs_do_not_overlap_and_long_ones_stay_long():
    """A journal of 4 KiB writes beside 2000 files of 8 writes of 64 KiB, each at its own place in 10 GiB."""
    random = np.random.default_rng(7)
    begins = random.permutation(8192)[:2000] * 5 * MIB // 4 + 32 * MIB
    files = np.repeat(begins, 8) + np.tile(np.arange(8) * 65_536, 2000)
    journal = np.arange(4000) * 4096
    at = np.sort(random.permutation(20_000)[:4000])
    offset, length = np.zeros(20_000, np.int64), np.full(20_000, 65_536)
    offset[at], length[at] = journal, 4096
    offset[np.setdiff1d(np.arange(20_000), at)] = files
    rows = {"submit_ns": np.arange(20_000) * 1000, "op": np.ones(20_000, np.int8), "offset_bytes": offset,
            "length_bytes": length, "latency_ns": np.full(20_000, -1)}
    model = fit_model(measured([rows], end_of(rows), 20_000))
    made = played(model)
    before, after = model.properties, properties(measured([made], end_of(rows), 20_000))
    assert before["reuse_share"] == 0 and after["reuse_share"] < 0.001
    assert after["write_sequential_share"] == pytest.approx(before["write_sequential_share"], abs=0.002)
    assert after["footprint_bytes"] == pytest.approx(before["footprint_bytes"], rel=0.2)
    small = made["offset_bytes"][made["length_bytes"] == 4096]
    assert len(small) == 4000 and len(np.unique(small // MIB)) < 500


@pytest.mark.parametrize("trace", [GAME_LOAD, GAME_DOWNLOAD, COMPILE])
def test_places_of_a_trace_are_near(trace):
    model, _ = modeled_trace(open_trace(trace))
    after = properties(measured(generated(model, 1), model.capacity_bytes, model.ios))
    for key, tolerance in (("read_sequential_share", 0.01), ("write_sequential_share", 0.01),
                           ("footprint_bytes", 0.15), ("hot_share", 0.2)):
        assert after[key] == pytest.approx(model.properties[key], rel=tolerance), key
    assert after["reuse_share"] == pytest.approx(model.properties["reuse_share"], abs=0.01)


def test_ios_in_flight_forever_are_bounded():
    count = 150_000
    rows = bursty_rows() | {"submit_ns": np.arange(count), "latency_ns": np.full(count, 1 << 60),
                            "op": np.zeros(count, np.int8), "offset_bytes": np.zeros(count, np.int64),
                            "length_bytes": np.full(count, 4096)}
    measurement = measured([rows], GIB, count)
    assert properties(measurement)["depth_p99"] == 1 << 16
    assert len(measurement._pending_ns) <= 1 << 16


def test_phases_keep_their_order_of_magnitude():
    """A long phase of reads before one of writes: the number of each stays."""
    rows = bursty_rows() | {"op": (np.arange(ROWS) >= ROWS // 2).astype(np.int8)}
    model = fit_model(measured([rows], end_of(rows), ROWS))
    op = np.concatenate([part["op"] for part in generated(model, 2)])
    assert (op == 0).sum() == ROWS // 2
    assert (np.diff(op) != 0).sum() == 1


def test_more_and_fewer_ios_and_seeds(bursty):
    _, model, made = bursty
    for ios in (1, 2, ROWS * 3 + 1):
        parts = list(generated(model, 1, ios))
        assert sum(len(part["op"]) for part in parts) == ios
    more = np.concatenate([part["op"] for part in parts])
    assert (more == 0).mean() == pytest.approx((made["op"] == 0).mean(), abs=0.01)
    again, other = (np.concatenate([part["offset_bytes"] for part in generated(model, seed)]) for seed in (1, 2))
    assert (again == made["offset_bytes"]).all() and (other != made["offset_bytes"]).any()


rows_of_any_kind = st.lists(
    st.tuples(st.integers(0, 5_000_000_000) | st.integers(0, 2000), st.sampled_from(sorted(OPS.values())),
              st.integers(0, 1 << 45) | st.integers(0, 64).map(lambda n: n * 4096),
              st.sampled_from([0, 1, 512, 4096, 65_536, 5 << 30]), st.integers(-1, 10**10)), min_size=2, max_size=50)


@cases(16)
@given(rows_of_any_kind, st.integers(0, 1 << 40))
def test_any_trace_has_a_model_that_can_be_played(tmp_path_factory, rows, seed):
    gaps, op, offset, length, latency = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    columns = {"submit_ns": np.cumsum(gaps), "op": op.astype(np.int8), "offset_bytes": offset * (op != OPS["flush"]),
               "length_bytes": length * (op != OPS["flush"]), "latency_ns": latency}
    if not columns["length_bytes"].any():
        return
    end = end_of(columns)
    model = fit_model(measured([columns], end, len(rows)))
    path = tmp_path_factory.mktemp("any") / "model.toml"
    path.write_text(model_text(model))
    assert read_model(path) == model
    made = next(generated(model, seed))
    assert np.bincount(made["op"], minlength=5).tolist() == np.bincount(op, minlength=5).tolist()
    assert (made["offset_bytes"] >= 0).all() and (np.diff(made["submit_ns"]) >= 0).all()
    assert end_of(made) <= max(end, int(columns["length_bytes"].max()))
    assert made["length_bytes"].sum() == pytest.approx(columns["length_bytes"].sum(), rel=0.05)
    assert compared(model.properties, properties(measured([made], end, len(rows))))


def test_the_trace_of_a_model_is_valid(bursty, tmp_path):
    _, model, made = bursty
    write_generated(model, tmp_path / "made.parquet", seed=1)
    trace = open_trace(tmp_path / "made.parquet")
    assert check(trace).errors == [] and trace.rows == ROWS
    assert trace.metadata["history"][-1]["options"] == {"seed": 1, "ios": ROWS}
    assert (trace.table(["offset_bytes"])["offset_bytes"].to_numpy() == made["offset_bytes"]).all()


def test_a_write_of_0_bytes_is_modeled_as_the_flush_that_it_is(tmp_path):
    """As bios of a volume have it. Made of a write, it had no flag, and its trace was invalid."""
    source = new_trace(tmp_path / "t.parquet", {}, submit_ns=np.arange(100) * 1000, latency_ns=500, op=OPS["write"],
                       length_bytes=np.arange(100) % 2 * 4096, flags=np.arange(1, 101) % 2 * FLAGS["preflush"])
    assert not check(open_trace(source)).errors
    model, _ = modeled_trace(open_trace(source))
    write_generated(model, tmp_path / "made.parquet", seed=1)
    assert model.properties["write_size_mean_bytes"] == 4096 and model.properties["flush_share"] == 0.5
    assert not check(open_trace(tmp_path / "made.parquet")).errors


@pytest.mark.parametrize("columns, device, message", [
    ({"op": []}, None, "has 0 I/Os"), ({"op": [0]}, None, "has 1 I/O,"),
    ({"op": [2, 2, 2], "length_bytes": 0}, None, "only flushes"), ({"device": [0, 1, 1]}, None, "--device 0"),
    ({"device": [0, 1, 1]}, 2, "no I/O of device 2")])
def test_traces_without_a_model(tmp_path, columns, device, message):
    with pytest.raises(UsageError, match=message):
        modeled_trace(open_trace(new_trace(tmp_path / "t.parquet", {}, **columns)), device)


def test_one_of_several_devices_and_no_latencies(tmp_path):
    path = new_trace(tmp_path / "t.parquet", {}, device=[0, 1, 1, 1], op=[0, 1, 1, 0], latency_ns=-1)
    model, notes = modeled_trace(open_trace(path), 1)
    assert model.ios == 3 and model.properties["write_share"] == pytest.approx(2 / 3)
    assert len(notes) == 1 and "no latencies" in notes[0]


def test_errors_and_missing_completions_are_counted(tmp_path):
    path = new_trace(tmp_path / "t.parquet", {}, latency_ns=np.array([-1, 5, 5, 5]), status=np.array([0, -5, -5, 0]))
    _, notes = modeled_trace(open_trace(path))
    assert [note.split(":")[0] for note in notes] == [
        "2 I/Os of the trace failed", "1 I/O of the trace without a recorded completion"]


def test_ios_beyond_the_times_of_a_trace_are_refused(tmp_path):
    """A trace of them was written, and was invalid."""
    model, _ = modeled_trace(open_trace(new_trace(tmp_path / "t.parquet", submit_ns=np.arange(100) * 26 * 10**12)))
    with pytest.raises(UsageError, match="73 years") as refused:
        write_generated(model, tmp_path / "made.parquet", seed=1, ios=100_000)
    assert not (tmp_path / "made.parquet").exists()
    write_generated(model, tmp_path / "made.parquet", seed=1, ios=int(refused.value.remedy.split()[-1]))
    assert not check(open_trace(tmp_path / "made.parquet")).errors


@pytest.mark.parametrize("clock", [{"clock_resolution_ns": 10**9}, {"clock_resolution_ns": 1, "times_step_ns": 10**9}])
def test_coarse_times_stay_coarse(tmp_path, clock):
    """Else a replay would repeat gaps that no one knows."""
    trace = open_trace(new_trace(tmp_path / "t.parquet", {"devices": [{"name": "a"}], **clock},
                                 submit_ns=np.repeat(np.arange(4) * 10**9, 50)))
    model, notes = modeled_trace(trace)
    assert "steps of 1.00 s" in notes[0]
    (tmp_path / "m.toml").write_text(model_text(model))
    write_generated(read_model(tmp_path / "m.toml"), tmp_path / "made.parquet", seed=1, ios=None)
    made = open_trace(tmp_path / "made.parquet").metadata
    assert {key: made[key] for key in clock} == clock
    (tmp_path / "m.toml").write_text(model_text(model).replace("= 1000000000", "= 0"))
    with pytest.raises(UsageError, match="clock_resolution_ns, times_step_ns has a value out of range"):
        read_model(tmp_path / "m.toml")


@pytest.mark.parametrize("change, message", [
    (("blkreel_model = 1", "blkreel_model = 9"), "version 9"), (("blkreel_model = 1", ""), "no key blkreel_model"),
    (("ios = ", "ios = -"), "ios has a value"), (("first = 0", "first = 999999"), "chain.first"),
    (("reuse_share = ", "reuse_share = 7"), "reuse_share"), (('"read"', '"readd"'), "chain.states"),
    (("[chain]", "[chain"), "not TOML"), (("transitions = [", "transitions = [[0, 0],"), "chain.transitions"),
    (("region_bytes = ", "region_bytes = 3"), "region"), (("capacity_bytes = ", "capacity_bytes = 0 # "), "capacity"),
    (("first = 0", 'first = "0"'), "first is not an integer")])
def test_models_that_cannot_be_played(bursty, tmp_path, change, message):
    text = model_text(bursty[1])
    assert change[0] in text
    (tmp_path / "m.toml").write_text(text.replace(*change))
    with pytest.raises(UsageError, match=message):
        read_model(tmp_path / "m.toml")


def test_fio_plays_the_job_with_the_mix_of_the_model(bursty, tmp_path, program):
    fio = program("fio")
    rows, model, _ = bursty
    (tmp_path / "job.fio").write_text(fio_job(model).text)
    parsed = subprocess.run([fio, "--parse-only", "job.fio"], cwd=tmp_path, capture_output=True, text=True)
    assert (parsed.returncode, parsed.stderr) == (0, "")
    text = "\n".join(line for line in fio_job(model).text.splitlines() if not line.startswith(("rate", "thinktime")))
    text = text.replace("ioengine=libaio\ndirect=1", "ioengine=null")
    for name in ("reads", "writes"):
        text = text.replace(f"[{name}]", f"[{name}]\nwrite_iolog={name}")
    (tmp_path / "null.fio").write_text(text)
    subprocess.run([fio, "null.fio"], cwd=tmp_path, check=True, capture_output=True)
    ios = [line.split()[-3:] for name in ("reads", "writes")
           for line in (tmp_path / name).read_text().splitlines()]
    ios = [(name, int(offset), int(length)) for name, offset, length in ios if name in ("read", "write")]
    reads = [(offset, length) for name, offset, length in ios if name == "read"]
    assert len(reads) / len(ios) == pytest.approx((rows["op"] == 0).mean(), abs=0.02)
    assert np.mean([length == 4096 for _, length in reads]) == pytest.approx(0.75, abs=0.02)
    assert {length for name, _, length in ios if name == "write"} == {65_536}


def test_fio_plays_all_ios_of_a_job_with_rates_pauses_and_flushes(tmp_path, program):
    """Of a trace that reads and writes its 16 MiB several times, with a pause of 200 ms after each 800 I/Os."""
    fio, count, random = program("fio"), 2400, np.random.default_rng(1)
    op = np.resize([OPS[name] for name in ("read", "write", "read", "flush", "read", "read")], count).astype(np.int8)
    length = np.where(op == OPS["flush"], 0, np.where(random.random(count) < 0.5, 4096, 65_536))
    rows = {"submit_ns": np.cumsum(np.where(np.arange(count) % 800, 100_000, 200_000_000)), "op": op,
            "length_bytes": length, "latency_ns": np.full(count, 50_000),
            "offset_bytes": np.where(op == OPS["flush"], 0, random.integers(0, 256, count) * 65_536)}
    job = fio_job(fit_model(measured([rows], end_of(rows), count)))
    (tmp_path / "job.fio").write_text(job.text.replace("ioengine=libaio\ndirect=1", "ioengine=null"))
    result = subprocess.run([fio, "--output-format=json", "job.fio"], cwd=tmp_path, capture_output=True, text=True)
    assert "signal" not in result.stderr and result.returncode == 0
    reads, writes = json.loads(result.stdout)["jobs"]
    assert (reads["read"]["total_ios"], reads["write"]["total_ios"]) == (count * 4 // 6, 0)
    assert (writes["read"]["total_ios"], writes["write"]["total_ios"]) == (0, count // 6)
    assert reads["sync"]["total_ios"] == 0
    assert writes["sync"]["total_ios"] == pytest.approx(count // 6, abs=1)
    # A job that makes up for its pauses plays the bursts at once; those of the trace take 240 ms beside 400 ms.
    for job, kind in ((reads, "read"), (writes, "write")):
        assert job[kind]["runtime"] > 550


def test_what_a_fio_job_cannot_express():
    rows = bursty_rows() | {"op": np.tile(np.array([1, 2, 3, 1], np.int8), ROWS // 4)}
    rows["length_bytes"] = np.where(rows["op"] == 2, 0, rows["length_bytes"])
    job = fio_job(fit_model(measured([rows], end_of(rows), ROWS)))
    assert "rw=randwrite\n" in job.text and "fsync=2\n" in job.text
    assert f"discard ({ROWS // 4:,} I/Os)" in job.not_expressed
    discards = rows | {"op": np.full(ROWS, 3, np.int8)}
    with pytest.raises(UsageError, match="neither reads nor writes"):
        fio_job(fit_model(measured([discards], end_of(discards), ROWS)))


def test_the_command_writes_a_model_and_a_trace_of_it(blkreel, tmp_path):
    first = blkreel("model", "sample:app-start", "-o", "m.toml", "--make-trace", "a.parquet", cwd=tmp_path)
    assert "read share of I/Os" in first.stdout and "next: " in first.stdout
    blkreel("model", "m.toml", "--make-trace", "b.parquet", cwd=tmp_path)
    assert open_trace(str(tmp_path / "a.parquet")).table() == open_trace(str(tmp_path / "b.parquet")).table()
    assert blkreel("model", "sample:app-start", cwd=tmp_path, check=False).returncode == 2
    assert "exists" in blkreel("model", "m.toml", "-o", "m.toml", cwd=tmp_path, code=1).stderr
