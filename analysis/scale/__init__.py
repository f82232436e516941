"""Metrics of many traces, measured in this process, in others, or on a cluster."""

from .fleet import Fleet, ReadOptions, measure_fleet

__all__ = ["Fleet", "ReadOptions", "measure_fleet"]
