"""Load time and reads of a replay, alone and beside writes, are those of the program, in a guest whose clock counts
instructions.

So a busy machine changes nothing. The whole table is that of `make lab`.
"""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
# Through the page cache; on Linux 6.12, with the uses of pages.
PROGRAMS = ("python imports", "tar", "grep")
REPLAYS = ("dependent", "simulated")

if "BLKREEL_TEST_RIG" not in os.environ:
    pytest.skip("boots a guest: make test-vm", allow_module_level=True)
if not list(CHECKOUT.glob(".vm/linux-image-6.12*/initramfs.gz")):
    pytest.skip("needs Linux 6.12 for the guest: make test-vm", allow_module_level=True)


@pytest.mark.timeout(1800)
def test_load_times_and_slowdowns_on_the_other_drive_are_within_five_percent(tmp_path):
    results = tmp_path / "results.json"
    done = subprocess.run(
        [sys.executable, "-m", "measurements.laboratory.table", "--kernel", "6.12", "--pairs", "usb", "--beside", "110",
         "--instruction-ns", "1", "--replays", *REPLAYS, "--only", *PROGRAMS, "--json", results],
        cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = json.loads(results.read_text())["results"]
    off = {(row["program"], row["direction"], row["beside"], row["replay"]):
           row["predicted"]["load_s"] / row["actual"]["load_s"] - 1 for row in rows}
    cases = [("to fast", False), ("to slow", False), ("to slow", True)]
    assert set(off) == {(program, *case, replay) for program, case, replay in product(PROGRAMS, cases, REPLAYS)}
    # An emulated drive answers earlier by the way back to the program, which is much of the latency of a fast one. A
    # program that computes for as long as a write takes falls in step with the writes, and by how much is chance.
    asserted = {case: error for case, error in off.items()
                if (case[1], case[3]) != ("to fast", "simulated") and (case[0], case[2]) != ("python imports", True)}
    assert all(abs(error) < 0.05 for error in asserted.values()), off
    for row in rows:
        if row["direction"] == "to slow" and row["replay"] == "simulated" and not row["beside"]:
            reads = {key: row["predicted"]["reads"][key] / row["actual"]["reads"][key] - 1
                     for key in ("p50_us", "p99_us", "mean_depth")}
            assert all(abs(error) < 0.1 for error in reads.values()), (row["program"], reads)
