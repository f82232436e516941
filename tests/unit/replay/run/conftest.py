"""A plan of ROWS random I/Os on an image file of 8 MiB."""

import numpy as np
import pytest
from empty_image import empty_image
from small_trace import new_trace

from blkreel.replay.drive.target import find_target
from blkreel.replay.plan.pace import ALL_IDLE, ORIGINAL
from blkreel.replay.plan.planner import plan_trace
from blkreel.traces.format.reader import open_trace

ROWS = 600


@pytest.fixture
def target(tmp_path):
    return find_target(empty_image(tmp_path / "image", 8 << 20))


@pytest.fixture
def plan(tmp_path, target):
    random = np.random.default_rng(2)
    new_trace(tmp_path / "t.parquet", {"devices": [{"name": "src"}], "lost": {"total": 0}},
              submit_ns=np.arange(ROWS) * 10_000, latency_ns=900, offset_bytes=random.integers(0, 2048, ROWS) * 4096,
              op=random.integers(0, 2, ROWS))
    return plan_trace(open_trace(tmp_path / "t.parquet"), target, pace=ORIGINAL, idle=ALL_IDLE)
