"""What a metric is: its names, unit, formula, direction, and how it is computed, shown and recomputed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from blkreel.analysis.metrics.partials.partial import Partial
from blkreel.analysis.metrics.run_times import RunTimes
from blkreel.common import units
from blkreel.common.files.typed_document import record
from blkreel.common.printable import within_sentence
from blkreel.traces.format.metadata_types import Pace

Value = int | float | str | None
Better = Literal["higher", "lower", ""]

OPEN_LOOP = ("original", "scaled", "paced")  # the plan sets when each I/O is issued, so also rates and makespans
TIMED = (*OPEN_LOOP, "dependent")  # paces with due times
ALL_PACES = ("captured", *TIMED, "depth", "asap")
UNTIMED = tuple(pace for pace in ALL_PACES if pace not in OPEN_LOOP)


@dataclass(frozen=True)
class Unit:
    """symbol: as shown. suffix: of the name of a column. format: of a column (charts/model.py). text: a value alone."""

    symbol: str
    suffix: str
    format: str
    text: Callable[[Any], str]


NS = Unit("ns", "_ns", "time", units.duration)
MB_S = Unit("MB/s", "_mb_s", "rate", lambda value: f"{units.digits(value)} MB/s")
BYTES = Unit("bytes", "_bytes", "size", units.size)
COUNT = Unit("", "", "count", lambda value: f"{int(value) if float(value).is_integer() else value:,}")
NUMBER = Unit("", "", "number", units.digits)
IOPS = Unit("IOPS", "_iops", "number", lambda value: f"{units.digits(value)} IOPS")
SHARE = Unit("%", "", "share", units.format_share)
TEXT = Unit("", "", "text", str)
UNITS = (NS, MB_S, BYTES, COUNT, NUMBER, IOPS, SHARE, TEXT)


def number_unit(symbol: str) -> Unit:
    """A unit of benchmarks only: three digits before its symbol."""
    return Unit(symbol, "", "number", lambda value: f"{units.digits(value)} {symbol}".strip())


@dataclass(frozen=True)
class Metric:
    """One metric of a run or trace.

    key: its name in `headline` of the JSON document, in --figure, --fail-if and Python. path: its place in `figures`.
    op: the class of I/O (read, write, other), or "" for all. label: its title in a table with a column for each class.
    short: its title where there is little room. group: the table by class that lists it. pooled: of several runs it is
    computed from the I/Os of all, otherwise it is the geometric mean of the runs. optional: left out of a table where
    no class has any. listed: in the terminal's summary of one run. missing: why there is no value although there were
    I/Os. recompute: a pandas expression, after the preamble of report/method.py. use: the key of the metric to use at
    paces where this one has no meaning. same_rank: the key of the metric whose ranking answers the same question, so
    that this one takes no part in the correction for multiple comparisons. of_run: computes it where the records alone
    do not give it.
    """

    key: str
    path: str
    title: str
    unit: Unit
    formula: str
    compute: Callable[[Partial], Value]
    better: Better = ""
    paces: tuple[str, ...] = ALL_PACES
    recompute: str = ""
    op: str = ""
    label: str = ""
    short: str = ""
    group: str = ""
    pooled: bool = False
    optional: bool = False
    listed: bool = False
    missing: str = "nothing moved"
    use: str = ""
    same_rank: str = ""
    of_run: Callable[[Partial, RunTimes], Value] | None = None

    def value(self, partial: Partial, times: RunTimes) -> Value:
        return self.of_run(partial, times) if self.of_run else self.compute(partial)

    @property
    def noun(self) -> str:
        """Within a sentence: the short name, unless it is a single word."""
        return within_sentence(self.short if " " in self.short else self.title)

    def named(self, noun: str, value: float) -> str:
        """`read wait 484 ms`; a unit that is the name is not said twice: `6,683 IOPS`."""
        text = self.unit.text(value)
        return text if text.endswith(f" {noun}") else f"{noun} {text}"

    @property
    def column(self) -> str:
        """Its name as a column of a CSV file, with the unit."""
        return column_name(self.key, self.unit)

    def meaningful(self, paces: Iterable[str]) -> bool:
        return any(pace in self.paces for pace in paces)


def column_name(key: str, unit: Unit) -> str:
    return key.removesuffix(unit.suffix) + unit.suffix if unit.suffix.lstrip("_") != key else key


def pace_names(pace: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The paces of a run, from `pace` of its metadata: its own and those of its streams."""
    if pace is None:
        return ("captured",)
    own = record(Pace, pace)
    return tuple(dict.fromkeys(part.name or "original" for part in (own, *own.streams.values())))
