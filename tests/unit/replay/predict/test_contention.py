"""Drives that are fitted to runs beside a background: what writes cost a trace that was not fitted."""

import json
import tomllib
from contextlib import nullcontext

import numpy as np
import pytest
from click.testing import CliRunner
from documented import run_blkreel

from blkreel.cli.main import cli
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
CAUSES = {"link": "write_bandwidth=450MB/s,link=500MB/s", "program": "write_bandwidth=300MB/s,program=4ms"}


def quiet(step, total=None):
    return nullcontext(ProgressTask())


@pytest.fixture(autouse=True)
def few_simulations(monkeypatch):
    monkeypatch.setattr(contention, "_SIMULATIONS", 30)


@pytest.fixture(scope="module")
def replayed(tmp_path_factory, command_server):
    """replayed(cause, load): the directory of a replay beside the background, made once."""
    place = tmp_path_factory.mktemp("contention")

    def replay(cause, load):
        trace, run = place / f"{load}.parquet", place / f"{load}-{cause.partition('=')[0]}"
        if not run.exists():
            run_blkreel(command_server, place, "replay", trace if trace.exists() else write_load(trace, *LOADS[load]),
                        "--on", f"{ALONE},{CAUSES[cause]}", "-o", run, *BACKGROUND)
        return run

    return replay


@pytest.mark.parametrize(("cause", "error"), [("link", 0.05), ("program", 0.25)])
def test_the_slowdown_of_a_trace_that_was_not_fitted_is_predicted(replayed, cause, error):
    beside, alone = runs = with_baselines([str(replayed(cause, "mixed"))])
    assert beside.has_background and not alone.has_background
    drive = fit_drive(runs, quiet).drive()
    for load in ("large", "small"):
        predicted, measured = error_of(with_baselines([str(replayed(cause, load))])[0], drive, quiet).slowdown
        assert predicted == pytest.approx(measured, rel=error), load
        assert measured > 1.15


def test_the_command_states_the_predicted_slowdown_beside_the_measured_one(replayed, tmp_path):
    told = CliRunner().invoke(cli, ["model-drive", str(replayed("link", "large")), "-o", str(tmp_path / "drive.toml"),
                                    "--json"])
    document = json.loads(told.stdout)
    beside, alone = document["runs"]
    slowdown = beside["slowdown_by_writes"]
    assert alone["slowdown_by_writes"] is None and slowdown["predicted"] == pytest.approx(slowdown["measured"], rel=0.1)
    assert document["largest_error"]["slowdown_by_writes"] == pytest.approx(
        abs(slowdown["predicted"] / slowdown["measured"] - 1))
    facts = tomllib.loads((tmp_path / "drive.toml").read_text())["fitted"]
    assert facts["slowdown_by_writes_error"] < 0.1 and abs(beside["load_time_error"]) < 0.1
