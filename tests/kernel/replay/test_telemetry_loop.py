"""What is measured beside a replay on a loop device: its clock, its rate, what a kill leaves, what others did."""

import time

import numpy as np
import pandas as pd
import pytest
from small_trace import new_trace

from blkreel.traces.format.reader import open_trace
from blkreel.traces.telemetry.file import FILE
from blkreel.traces.telemetry.reader import read_telemetry

pytestmark = pytest.mark.kernel

MIB, S = 1 << 20, 10**9
DRIVE_BYTES = 32 * MIB
METER = "while :; do date '+%s.%N 4.5'; sleep 0.1; done"


def test_samples_come_at_the_rate_and_on_the_clock_of_the_records(blkreel, loop_drive, tmp_path):
    """A trace of writes, so that nothing is written first."""
    number = np.arange(1200)
    trace = new_trace(tmp_path / "t.parquet", drive_bytes=DRIVE_BYTES, submit_ns=number * 2_500_000, latency_ns=1000,
                      offset_bytes=number * 4096, op=1)
    began_ns = time.monotonic_ns()
    result = blkreel("replay", trace, "--on", loop_drive(DRIVE_BYTES), "-o", tmp_path / "run", "-v", "--why",
                     "--power-command", METER, "--sample", "5Hz", check=False)
    ended_ns = time.monotonic_ns()
    assert result.returncode in (0, 3), result.stderr  # other work on this machine may make I/Os late
    records, found = open_trace(tmp_path / "run"), read_telemetry(tmp_path / "run")
    run = records.metadata["run"]
    assert found.epoch_ns == records.metadata["epoch_ns"]
    for name in ("power_w", "foreign_ios"):
        time_ns, _ = found.series(name)
        assert began_ns < found.epoch_ns + time_ns[0] and found.epoch_ns + time_ns[-1] < ended_ns
        assert time_ns[0] < 0, f"{name} before the first I/O"
        assert np.all(np.diff(time_ns) > 0)
    time_ns, value = found.series("foreign_ios")
    assert time_ns[-1] >= run["wall_ns"] - S // 5, "after the last I/O"
    assert value.max() == 0 == run["foreign_ios"]
    # Deadlines: none is missed for good, and a late one does not shift those after it.
    gaps = found.sensors["foreign_ios"]["gaps"]
    assert len(time_ns) + sum((end - begin) // (S // 5) for begin, end in gaps) >= run["wall_ns"] // (S // 5)
    power = run["telemetry"]["power"]
    assert power["average_w"] == 4.5 and power["meter"].startswith("command:")
    assert 0 < power["covered_ns"] <= run["wall_ns"]
    assert power["energy_j"] == pytest.approx(4.5 * power["covered_ns"] / S, rel=1e-3)
    assert "4.5 W on average" in result.stdout and "power not measured\n" not in result.stdout
    rows = pd.read_parquet(tmp_path / "run" / FILE)
    assert (rows[rows.sensor == "power_w"].value == 4.5).all()
    assert "temperature_c" in run["telemetry"]["missing"] and run["telemetry"]["temperature_c"] is None
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["records.parquet", FILE]
