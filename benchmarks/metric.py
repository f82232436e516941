"""Metrics of benchmarks: title, unit, formula and direction, for tables in a terminal and for pages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from blkreel.analysis.metrics.definitions.metric import UNITS, Unit, number_unit

_UNITS = {unit.format: unit for unit in UNITS}
_TITLE_UNITS = ("1/s", "1000/s", "1000/s/W")  # the title names these already: IOPS, kIOPS


@dataclass(frozen=True)
class BenchmarkMetric:
    """key: in the figures, at `path` below a row's figures if that is not empty. unit, format: of a cell, in a terminal
    and on a page (analysis/charts/model.py, FORMATS). better: "higher", "lower" or ""."""

    key: str
    title: str
    unit: str = ""
    format: str = "number"
    formula: str = ""
    better: str = ""
    path: tuple[str, ...] = ()

    @property
    def relative_path(self) -> tuple[str, ...]:
        return self.path or (self.key,)

    @property
    def page_unit(self) -> str:
        """The unit behind a number on a page; other formats have their own."""
        return self.unit if self.format == "number" and self.unit not in _TITLE_UNITS else ""

    @property
    def value_unit(self) -> Unit:
        """The unit of a value alone."""
        return number_unit(self.page_unit) if self.format == "number" else _UNITS[self.format]


def rate(key: str, title: str, formula: str = "") -> BenchmarkMetric:
    return BenchmarkMetric(key, title, "MB/s", "rate", formula, "higher")


def duration(key: str, title: str, formula: str = "", better: str = "lower") -> BenchmarkMetric:
    return BenchmarkMetric(key, title, "ns", "time", formula, better)


def size(key: str, title: str, formula: str = "", better: str = "") -> BenchmarkMetric:
    return BenchmarkMetric(key, title, "bytes", "size", formula, better)


def count(key: str, title: str, formula: str = "", better: str = "") -> BenchmarkMetric:
    return BenchmarkMetric(key, title, "", "count", formula, better)


def number(key: str, title: str, unit: str = "", formula: str = "", better: str = "",
           path: tuple[str, ...] = ()) -> BenchmarkMetric:
    return BenchmarkMetric(key, title, unit, "number", formula, better, path)


def share(key: str, title: str, formula: str = "", better: str = "higher") -> BenchmarkMetric:
    return BenchmarkMetric(key, title, "", "share", formula, better)


def text(key: str, title: str, formula: str = "", unit: str = "") -> BenchmarkMetric:
    return BenchmarkMetric(key, title, unit, "text", formula)


def select(metrics: Iterable[BenchmarkMetric], *keys: str) -> list[BenchmarkMetric]:
    """The metrics of these keys, in this order."""
    by_key = {metric.key: metric for metric in metrics}
    return [by_key[key] for key in keys]


def with_spread(metrics: Sequence[BenchmarkMetric]) -> list[BenchmarkMetric]:
    """Each metric, followed by the smallest and the largest repeat, which `table` leaves out for one repeat."""
    return [column for metric in metrics for column in (
        metric, replace(metric, key=f"{metric.key}_smallest", title="least"),
        replace(metric, key=f"{metric.key}_largest", title="most"))]


MAKESPAN = "max(complete) − min(submit)"
THROUGHPUT = rate("mb_s", "Throughput", f"bytes / {MAKESPAN}")
IOPS = number("iops", "IOPS", "1/s", f"I/Os / {MAKESPAN}", "higher")
MEAN_LATENCY = duration("mean_ns", "Latency, mean", "Σ (complete − submit) / n")
MAX_LATENCY = duration("max_ns", "Latency, maximum", "longest single I/O")
POWER = [number("average_w", "Power", "W", "energy / time with I/O"),
         number("mb_per_j", "Efficiency", "MB/J", "bytes read and written / energy, the same as MB/s/W", "higher")]
OPS = count("ops", "I/Os")
REPEATS = count("n", "Repeats")
STATE = text("state", "State")
REPEAT = count("repeat", "Repeat")
