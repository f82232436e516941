"""Runs and results for catalogs."""

import numpy as np
from made_once import made_once
from synthetic_tests import DRIVE, closed_loop, write_step

from blkreel.benchmarks.catalog.result import checksum_of, id_of

SOURCE = {"path": "game.parquet", "sha256": "5e" * 32, "title": "Game load"}
PACE = {"name": "asap", "depth": None}


@made_once
def run_of(directory, label="fast drive", cost_us=100, seed=0, drive=None, **run):
    """A small run: 1500 reads by one server."""
    random = np.random.default_rng(seed)
    costs_ns = (cost_us * 1000 * random.lognormal(0, 0.2, 1500)).astype(np.int64)
    return write_step(directory, closed_loop(1500, costs_ns, 4), **{
        "label": label, "source": SOURCE, "pace": PACE, "started_at": f"2026-01-{seed % 27 + 1:02d}T20:00:00Z",
        "environment": {"blkreel": "0.1.0", "kernel": "6.12"},
        "drive": {**DRIVE, "model": f"Example {label}", "serial_hash": f"hash of {label}", **(drive or {})}, **run})


def variant(result, number, **changed):
    """Another result with the same metrics: that of a run with other records."""
    measured = {"kind": "run", "records": f"{number:064x}"}
    made = {**result, "measured": measured, "id": id_of(measured), "label": f"drive {number}", **changed}
    return {**made, "checksum": checksum_of(made)}
