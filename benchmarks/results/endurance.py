"""Write amplification of each step of a test and of all of them, by the drive's own counters."""

from functools import reduce
from operator import add

from blkreel.analysis.metrics.definitions.headline import WRITE_AMPLIFICATION
from blkreel.analysis.metrics.write_amplification import WriteCounts, why_unknown, write_amplification
from blkreel.benchmarks import metric
from blkreel.common.units import digits
from blkreel.traces.format.metadata_types import Run

from .directory import Runs
from .document import Figures, FigureTable, figure_table

_COLUMNS = [metric.text("of", ""),
            metric.number(WRITE_AMPLIFICATION.key, WRITE_AMPLIFICATION.title, "", WRITE_AMPLIFICATION.formula,
                          WRITE_AMPLIFICATION.better),
            metric.text("interval", "Interval"), metric.size("host_bytes", "Written to the drive"),
            metric.size("media_bytes", "Written to its media")]


def endurance_tables(runs: Runs) -> list[FigureTable]:
    """No table of a drive without a counter of media writes."""
    counts = {step.id: write_counts for step in runs.test.steps
              if step.id in runs.metadata and (write_counts := WriteCounts.of(Run.of(runs.metadata[step.id])))}
    if not counts:
        return []
    rows = [_row(step.title, counts[step.id]) for step in runs.test.steps if step.id in counts]
    if len(counts) > 1:
        rows.append(_row("all steps", reduce(add, counts.values())))
    return [figure_table(WRITE_AMPLIFICATION.title, _COLUMNS, rows)]


def _row(title: str, counts: WriteCounts) -> Figures:
    factor, reason = write_amplification(counts), why_unknown(counts)
    in_bytes = counts.unit == "B"
    return {"of": title, WRITE_AMPLIFICATION.key: factor.value if factor else None,
            "interval": f"{digits(factor.low)} to {digits(factor.high)}" if factor else None,
            "host_bytes": counts.host if in_bytes else None, "media_bytes": counts.media if in_bytes else None,
            "why": {WRITE_AMPLIFICATION.key: reason, "interval": "not known"} if reason else {}}
