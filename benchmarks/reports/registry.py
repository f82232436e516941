"""The reports of benchmarks, by the key `report` of a recipe."""

from . import consistency, depth_sweep, mixed, mixed_burst, qd1, slc_cache, steady_write, trace, trace_passes, trim
from .report import Report

REPORTS: dict[str, Report] = {
    "mixed-burst": mixed_burst.REPORT,
    "mixes": mixed.REPORT,
    "consistency": consistency.REPORT,
    "depths": depth_sweep.REPORT,
    "qd1": qd1.REPORT,
    "rounds": steady_write.REPORT,
    "trim": trim.REPORT,
    "cache": slc_cache.REPORT,
    "trace": trace.REPORT,
    "trace-passes": trace_passes.REPORT,
}
