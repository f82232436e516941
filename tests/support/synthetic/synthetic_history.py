"""A catalog with a result each night, of which the later ones are slower."""

from datetime import date, timedelta

import numpy as np
from synthetic_catalog import run_of, variant

from blkreel.benchmarks.catalog import Catalog, collected

NIGHTS, STEP = 30, 20
START = date(2026, 9, 1)
QUERY = ("game load", "--drive", "fast")


def fill_nights(root):
    """The directory of the catalog. Reads take 20 % longer from the 21st night on."""
    run, partial = collected(run_of(root / "run"), host="lab")
    random = np.random.default_rng(4)
    opened = Catalog.open(root / "catalog", create=True)
    for night in range(NIGHTS):
        slower = random.lognormal(0, 0.02) * (1.2 if night >= STEP else 1)
        metrics = {key: {**metric, "value": metric["value"] * (slower if metric["better"] == "lower" else 1 / slower)}
                   for key, metric in run["metrics"].items()}
        opened.put(variant(run, night, label="fast drive", metrics=metrics,
                           started_at=f"{START + timedelta(night)}T20:00:00Z"), partial)
    return opened.directory
