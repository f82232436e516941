"""From many traces to their figures, whoever does the work: this process, others, or a cluster."""

from .fleet import Fleet, Way, measure_all, measure_fleet

__all__ = ["Fleet", "Way", "measure_all", "measure_fleet"]
