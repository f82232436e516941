"""Catalogs for sites."""

from synthetic_catalog import run_of, variant

from blkreel.benchmarks.catalog import Catalog, collected
from blkreel.benchmarks.catalog.result import dump

HOSTILE = '<script>alert("x")</script> & Söhne'
DRIVES = {"Fast": 1.0, HOSTILE: 0.5, "Slow": 0.25}
WORKLOADS = ("Game load", "Photo import")
# Of the two results of a drive under a condition.
SPREAD = (0.99, 1.01)


def result_of(run, number, label, workload, factor, workloads=WORKLOADS, **changed):
    """A result whose headline metric is that of the run times the factor."""
    headline = run["headline"]
    metrics = {**run["metrics"], headline: {**run["metrics"][headline],
                                            "value": run["metrics"][headline]["value"] * factor}}
    changed = {"started_at": f"2026-02-{number % 27 + 1:02d}T20:00:00Z", **changed}
    return variant(run, number, label=label, metrics=metrics, drive={**run["drive"], "model": f"Model of {label}"},
                   workload={"checksum": f"{workloads.index(workload) + 1:x}".ljust(64, "0"), "title": workload,
                             "name": "t.parquet"}, **changed)


def fill(directory, drives=None, workloads=WORKLOADS):
    """A catalog with two results of each drive and workload; returns it and the result that they were made of."""
    catalog = Catalog.open(directory / "catalog", create=True)
    run, partial = collected(run_of(directory / "run"))
    catalog.remove(catalog.put(run, partial)[0])
    number = 0
    for label, factor in (drives or DRIVES).items():
        for workload in workloads:
            for spread in SPREAD:
                number += 1
                put(catalog, result_of(run, number, label, workload, factor * spread, workloads))
    return catalog, run


def put(catalog, result):
    catalog.path_of(result["id"]).write_bytes(dump(result))
