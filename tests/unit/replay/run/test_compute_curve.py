"""Load time over compute speed, on a simulated drive whose times are known exactly."""

import json

import numpy as np
import pytest
from small_trace import new_trace

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS

MS = 1_000_000
READS, THINK_NS = 4, 16 * MS
DRIVE = "nil:1GiB,clock=virtual,read_latency=1ms,read_bandwidth=4096GB/s"
READ_NS = 1 * MS + 1  # 4 KiB at that bandwidth take 1 ns


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """A thread that reads, computes and reads again."""
    monkeypatch.setenv("BLKREEL_CACHE_DIR", str(tmp_path / "cache"))
    number = np.arange(READS)
    return new_trace(tmp_path / "t.parquet", {"threads": {"7": {"comm": "game", "pid": 7}}, "title": "Game"},
                     submit_ns=number * (THINK_NS + 500_000), latency_ns=500_000, flags=FLAGS["own"], tid=7,
                     waited_on=number - 1, think_ns=np.minimum(number, 1) * THINK_NS)


def load_time_ns(compute):
    return READS * READ_NS + (READS - 1) * THINK_NS // compute if compute else READS * READ_NS


@pytest.fixture
def replay(blkreel, trace, tmp_path):
    def run(*options, drive=DRIVE, name="run"):
        blkreel("replay", trace, "--on", drive, "-o", tmp_path / name, *options, code=(0, 3))
        return open_trace(tmp_path / name).metadata["run"]

    return run


def test_the_curve_has_the_load_time_at_each_compute_speed_and_without_computing(replay):
    for name in ("first", "cached"):
        curve = replay("--pace", "dependent", name=name)["compute_curve"]
        assert [(point["compute"], point["load_time_ns"]) for point in curve] == [
            *((speed, load_time_ns(speed)) for speed in (1, 2, 4, 8, 16)), ("none", load_time_ns(None))]


def test_beside_a_background_the_curve_is_that_of_the_load_alone(replay):
    run = replay("--pace", "dependent", "--background", "writes=1400MB/s", "--background-lead", "1s",
                 drive=DRIVE + ",read_slowdown=5")
    assert run["compute_curve"][0]["load_time_ns"] == load_time_ns(1) < run["own_wall_ns"]


@pytest.mark.parametrize(("options", "drive"), [
    (("--pace", "original"), DRIVE), (("--pace", "dependent", "--compute", "x4"), DRIVE),
    (("--pace", "dependent"), "nil:1GiB")])
def test_no_curve_at_other_paces_and_speeds_and_on_the_real_clock(replay, options, drive):
    assert replay(*options, drive=drive)["compute_curve"] is None


def test_a_replay_without_computing(replay, blkreel, tmp_path):
    run = replay("--pace", "dependent", "--compute", "none")
    assert run["own_wall_ns"] == load_time_ns(None)
    assert json.loads(json.dumps(run["pace"], allow_nan=False))["compute"] == "none"
    assert "computing time left out" in str(run["verdict"])
    shown = blkreel("report", tmp_path / "run", check=False).stdout
    assert "dependent pace, no computing" in shown
