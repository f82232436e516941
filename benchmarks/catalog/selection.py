"""Which results of a catalog a user means, and which of them are comparable."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

_OF_DRIVE = ("label", "model", "firmware", "unit")
_OF_WORKLOAD = ("workload_title", "workload_name")


def matching(results: pa.Table, drives: Sequence[str] = (), workloads: Sequence[str] = ()) -> pa.Table:
    """The rows of tables.RESULT_SCHEMA with one of the texts of each kind; all of a kind without texts."""
    for texts, columns, checksum in ((drives, _OF_DRIVE, False), (workloads, _OF_WORKLOAD, True)):
        if not texts:
            continue
        keep = pa.array([False] * results.num_rows, pa.bool_())
        for text in texts:
            for name in columns:
                keep = pc.or_(keep, pc.match_substring(results[name].cast(pa.string()), text, ignore_case=True))
            if checksum:
                keep = pc.or_(keep, pc.starts_with(results["workload"].cast(pa.string()), text.lower()))
        results = results.filter(keep)
    return results
