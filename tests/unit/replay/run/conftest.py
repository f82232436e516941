"""A plan of ROWS random I/Os on an image file of 8 MiB."""

import numpy as np
import pytest

from blkreel.replay.drive.target import find_target
from blkreel.replay.plan.idle import ORIGINAL as ALL_IDLE
from blkreel.replay.plan.pace import ORIGINAL
from blkreel.replay.plan.planner import plan_trace
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.writer import TraceWriter

ROWS = 600


@pytest.fixture(autouse=True)
def state_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("BLKREEL_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def target(tmp_path):
    with open(tmp_path / "image", "wb") as file:
        file.truncate(8 << 20)
    return find_target(tmp_path / "image")


@pytest.fixture
def plan(tmp_path, target):
    random = np.random.default_rng(2)
    with TraceWriter(tmp_path / "t.parquet") as out:
        out.write({"submit_ns": np.arange(ROWS) * 10_000, "latency_ns": np.full(ROWS, 900),
                   "offset_bytes": random.integers(0, 2048, ROWS) * 4096, "length_bytes": np.full(ROWS, 4096),
                   "op": random.integers(0, 2, ROWS)})
        out.close({"devices": [{"name": "src"}], "lost": {"total": 0}})
    return plan_trace(open_trace(tmp_path / "t.parquet"), target, pace=ORIGINAL, idle=ALL_IDLE)
