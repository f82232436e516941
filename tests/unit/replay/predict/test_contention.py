"""Drives that are fitted to runs beside a background: what writes cost a trace that was not fitted."""

import json
import tomllib
from contextlib import nullcontext

import numpy as np
import pytest

from blkreel.common.progress import ProgressTask
from blkreel.replay.predict import contention
from blkreel.replay.predict.fit import fit_drive
from blkreel.replay.predict.prediction import error_of, with_baselines
from blkreel.traces.format.schema import FLAGS
from blkreel.traces.format.writer import TraceWriter

ALONE = "nil:8GiB,clock=virtual,read_latency=100us,write_latency=50us,channels=8,read_bandwidth=500MB/s"
BACKGROUND = ("--pace", "dependent", "--background", "writes=150MB/s", "--background-lead", "1s", "--baseline")


def write_load(path, seed, length_bytes, think_ns):
    """Each read follows the one before."""
    rows = 400
    lengths = np.random.default_rng(seed).choice(length_bytes, rows)
    submit_ns = np.arange(rows) * (think_ns + 100_000)
    waited_on = np.arange(rows) - 1
    with TraceWriter(path) as out:
        out.write({"submit_ns": submit_ns, "latency_ns": np.full(rows, 100_000), "op": np.zeros(rows, "i8"),
                   "offset_bytes": np.cumsum(lengths) - lengths, "length_bytes": lengths,
                   "flags": np.full(rows, FLAGS["own"]), "waited_on": waited_on,
                   "think_ns": np.where(waited_on < 0, 0, think_ns)})
        out.close({"title": f"load {seed}"})
    return path


LOADS = {"large": (1, [1 << 20, 512 << 10], 100_000), "mixed": (2, [4096, 131072, 1 << 20], 50_000),
         "small": (3, [65536, 131072], 20_000)}


def quiet(step, total=None):
    return nullcontext(ProgressTask())


@pytest.mark.parametrize(("cause", "error"), [("write_bandwidth=450MB/s,link=500MB/s", 0.05),
                                              ("write_bandwidth=300MB/s,program=4ms", 0.25)], ids=["link", "program"])
def test_the_slowdown_of_a_trace_that_was_not_fitted_is_predicted(tmp_path, blkreel, monkeypatch, cause, error):
    monkeypatch.setattr(contention, "_SIMULATIONS", 30)
    runs = {}
    for name, load in LOADS.items():
        blkreel("replay", write_load(tmp_path / f"{name}.parquet", *load), "--on", f"{ALONE},{cause}", "-o",
                tmp_path / name, *BACKGROUND, check=False)
        runs[name] = with_baselines([str(tmp_path / name)])
    beside, alone = runs["mixed"]
    assert beside.has_background and not alone.has_background
    drive = fit_drive(runs["mixed"], quiet).drive()
    for name in ("large", "small"):
        predicted, measured = error_of(runs[name][0], drive, quiet).slowdown
        assert predicted == pytest.approx(measured, rel=error), name
        assert measured > 1.15


def test_the_command_states_the_predicted_slowdown_beside_the_measured_one(tmp_path, blkreel):
    trace = write_load(tmp_path / "t.parquet", *LOADS["large"])
    drive = f"{ALONE},write_bandwidth=450MB/s,link=500MB/s"
    blkreel("replay", trace, "--on", drive, "-o", tmp_path / "run", *BACKGROUND, check=False)
    document = json.loads(blkreel("model-drive", tmp_path / "run", "-o", tmp_path / "drive.toml", "--json").stdout)
    beside, alone = document["runs"]
    slowdown = beside["slowdown_by_writes"]
    assert alone["slowdown_by_writes"] is None and slowdown["predicted"] == pytest.approx(slowdown["measured"], rel=0.1)
    assert document["largest_error"]["slowdown_by_writes"] == pytest.approx(
        abs(slowdown["predicted"] / slowdown["measured"] - 1))
    facts = tomllib.loads((tmp_path / "drive.toml").read_text())["fitted"]
    assert facts["slowdown_by_writes_error"] < 0.1 and abs(beside["load_time_error"]) < 0.1
