"""Traces and runs from Python: metrics as pandas frames, rows as an Arrow stream. docs/python.md shows it.

Metrics are those of `blkreel report`, with units in the names of their columns. Of the rows, never more than a batch is
in memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from glob import glob
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from blkreel.analysis.metrics.accumulator import EXACT_ROWS
from blkreel.analysis.metrics.definitions.headline import headline
from blkreel.analysis.metrics.definitions.metric import pace_names
from blkreel.analysis.metrics.definitions.registry import figures
from blkreel.analysis.metrics.measure import Measured
from blkreel.analysis.metrics.partials.bursts import DEFAULT_GAP_NS
from blkreel.analysis.metrics.partials.distributions import Distribution
from blkreel.analysis.metrics.partials.partial import ClassPartial
from blkreel.analysis.metrics.run_times import RunTimes
from blkreel.analysis.scale import ReadOptions, measure_fleet
from blkreel.common.errors import UsageError
from blkreel.common.verdict import enough, recorded
from blkreel.traces.format.reader import RUN_RECORDS, open_trace
from blkreel.traces.format.schema import OPS
from blkreel.traces.format.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
Labeled = list[tuple[str, Trace]]
Paths = str | PathLike[str] | Iterable[str | PathLike[str]] | Mapping[Any, str | PathLike[str]]

DISTRIBUTIONS = ("latency", "response", "queue")
_WHOLE = ("_ns", "_ops", "_bytes", "_n", "_count", "_seconds")  # columns of integers, missing or not
_MAGIC = frozenset("*?[")
_LEAST_PERCENT = Decimal("1e-9")
_LABELS = pa.dictionary(pa.int32(), pa.string())


def traces_of(path: str) -> Labeled:
    """One trace or run, with its label."""
    trace = open_trace(path)
    return [(_name(path, trace), trace)]


def open_all(paths: Paths, open_path: Callable[[str], Labeled] = traces_of) -> Labeled:
    """The traces of a list, of a pattern ("runs/*") or of {label: path}, each with a label of its own.

    open_path: the traces of one path. Raises UsageError if there is none, or if a label is for a path of several.
    """
    if isinstance(paths, str | PathLike):
        paths = matching(str(paths)) or [paths]
    if isinstance(paths, Mapping):
        labeled = []
        for label, path in paths.items():
            traces = open_path(str(path))
            if len(traces) > 1:
                raise UsageError(f"{path} is a test of several runs, which cannot share a label",
                                 "name it in a list, or one of its steps")
            labeled.append((str(label), traces[0][1]))
    else:
        labeled = [trace for path in paths for trace in open_path(str(path))]
    if not labeled:
        raise UsageError("no path is given to blkreel.open", 'name a trace, as in: blkreel.open("game.parquet")')
    return _distinct(labeled)


def matching(path: str) -> list[str]:
    """The paths of a pattern; empty if `path` is not one. Raises UsageError for a pattern that matches nothing."""
    if "://" in path or not _MAGIC.intersection(path) or Path(path).exists():
        return []
    paths = sorted(glob(path))  # noqa: PTH207 - Path has none for a pattern with an absolute path
    if not paths:
        raise UsageError(f"nothing matches {path}", "name traces, runs or tests that exist")
    return paths


class Study:
    """One trace or run, or several with a label each.

    Of several, each frame has a first column `label`, and so has the stream. Times are
    integers in ns since the start of the trace, sizes in bytes, rates in MB/s of 10^6 bytes.
    """

    def __init__(self, parts: Sequence[tuple[str, Trace]], gap_ns: int = DEFAULT_GAP_NS, exact: bool | None = None,
                 jobs: int | None = None, *, several: bool = False):
        self._parts = dict(parts)
        self._gap_ns, self._jobs = _nanoseconds(gap_ns), jobs
        self._exact = self.rows <= EXACT_ROWS if exact is None else exact
        self._several = several

    def __repr__(self) -> str:
        names = ", ".join(self.labels[:3]) + (f" and {len(self.labels) - 3} more" if len(self.labels) > 3 else "")
        return f"<blkreel study of {names}: {self.rows:,} I/Os>"

    @property
    def labels(self) -> list[str]:
        """Of the traces, in the order in which they were named."""
        return list(self._parts)

    @property
    def metadata(self) -> Any:
        """The metadata of the file, as docs/trace-format.md lists it; of several {label: metadata}."""
        return self._each({label: trace.metadata for label, trace in self._parts.items()})

    @property
    def run(self) -> Any:
        """The account of a replay (drive, pace, verdict, ...); None of a captured trace; of several by label."""
        return self._each({label: trace.metadata.get("run") for label, trace in self._parts.items()})

    @property
    def rows(self) -> int:
        """How many I/Os there are, of all together."""
        return sum(trace.rows for trace in self._parts.values())

    @property
    def columns(self) -> list[str]:
        """Of the rows: those that all have."""
        first, *name_lists = [trace.schema.names for trace in self._parts.values()]
        return [name for name in first if all(name in names for names in name_lists)]

    @cached_property
    def figures(self) -> Any:
        """All metrics, in the tree of `blkreel report --json`; of several {label: tree}."""
        return self._each({label: figures(measured.partial, RunTimes.of(measured.metadata))
                           for label, measured in self._measured.items()})

    @cached_property
    def headline(self) -> pd.DataFrame:
        """A line for each trace or run, a column for each key of --figure and --fail-if: read_wait, load_time.

        The index is the label. Times are in ns, rates in MB/s. What has no meaning at the pace is missing, and so is
        what cannot be given.
        """
        lines = {label: _headline(measured) for label, measured in self._measured.items()}
        frame: pd.DataFrame = self._pandas.DataFrame.from_dict(lines, orient="index")
        return frame.rename_axis("label").astype(float)

    def relative_performance(self, reference: str) -> pd.DataFrame:
        """The performance of each drive over several workloads: 1 is that of the reference drive, 2 is twice as fast.

        reference: label of its runs. The index is the drive; columns are relative_performance, low and high, its 95 %
        interval over runs. Runs of one drive are those of `blkreel compare`. Raises UsageError if the reference and
        another drive have no results on two workloads.
        """
        from blkreel.analysis.report.document import comparison
        from blkreel.analysis.report.workloads import FEWEST_WORKLOADS, overview

        document, _ = comparison(list(self._measured.values()))
        compared = overview(document["sections"], reference)
        if compared is None:
            raise UsageError(f"{reference!r} and another drive have no results on two workloads",
                             f"open runs of two drives on {FEWEST_WORKLOADS} traces or more")
        lines = [{"drive": label, "relative_performance": performance.value, "low": performance.low,
                  "high": performance.high}
                 for label, performance in compared.overall.items()]
        frame: pd.DataFrame = self._pandas.DataFrame(lines).set_index("drive").astype(float)
        return frame

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """A line for each class of operation that occurs, and one for `all`; a column for each metric.

        The index is the class. A name is that of the report with _ for its dots: bursts_throughput_mb_s,
        latency_p99_ns, busy_ns. What cannot be given is missing: a percentile with fewer than 10 I/Os beyond it.
        """
        lines = []
        for label, measured in self._measured.items():
            tree = figures(measured.partial, RunTimes.of(measured.metadata))
            for name in ("all", *measured.partial.classes()):
                if tree[name]["ops"] or tree[name]["unseen_ops"] or name == "all":
                    lines.append({**self._label(label), "class": name, **_flat(tree[name])})
        frame: pd.DataFrame = self._pandas.DataFrame(lines).set_index("class")
        # Also a column without any value has a type of numbers.
        return frame.astype({name: "Int64" if f"_{name}".endswith(_WHOLE) and (frame[name].dropna() % 1 == 0).all()
                             else float for name in frame.columns if name != "label"})

    def percentiles(self, op: str | None = None, at: Iterable[float | str] = (50, 90, 99, "99.9"),
                    of: str = "latency") -> pd.DataFrame:
        """Percentiles in ns by nearest rank, a line for each class or for that of `op`.

        at: in percent. of: "latency" (submit to completion), "response" (due to completion, of a replay) or "queue"
        (in the kernel before submission). n: how many I/Os. A percentile with fewer than 10 I/Os beyond it is missing.
        """
        if isinstance(at, int | float | str):
            raise UsageError(f"at is {at!r}, not a list", f"give a list: at=[{at!r}]")
        percents = [(str(percent), _fraction(percent)) for percent in at]
        lines = []
        for label, measured in self._measured.items():
            for name, part in self._classes(measured, op):
                values = _distribution(part, of)
                ranks = {f"p{words.replace('.', '_')}_ns": values.percentile(fraction)
                         if enough(values.count, fraction) else None for words, fraction in percents}
                lines.append({**self._label(label), "class": name, "n": values.count,
                              "mean_ns": values.total / values.count if values.count else None, **ranks,
                              "max_ns": values.maximum})
        names = [f"p{words.replace('.', '_')}_ns" for words, _ in percents]
        frame = self._frame(lines, ["class", "n", "mean_ns", *names, "max_ns"]).set_index("class")
        return frame.astype({"mean_ns": float} | dict.fromkeys([*names, "max_ns"], "Int64"))

    def latency(self, op: str = "read", of: str = "latency", points: int | None = 400) -> pd.DataFrame:
        """The distribution: value_ns, and how many I/Os took at least that long (`at_least`, `share_at_least`).

        At most `points` lines, evenly in the logarithm of the share, as a chart of the tail wants them; None: every
        value that occurs.
        """
        if points is not None and points < 1:
            raise UsageError(f"invalid points: {points!r}", "give the most lines, such as points=400, or None for all")
        lines = []
        for label, measured in self._measured.items():
            for _, part in self._classes(measured, op, named=True):
                values = _distribution(part, of)
                lines += [{**self._label(label), "value_ns": value, "at_least": count,
                           "share_at_least": count / values.count} for value, count in _tail(values, points)]
        return self._frame(lines, ["value_ns", "at_least", "share_at_least"])

    def bursts(self, op: str = "read") -> pd.DataFrame:
        """Bursts of one class: start_ns, end_ns, makespan_ns, ops, bytes, throughput_mb_s, is_stray."""
        frames = []
        for label, measured in self._measured.items():
            for _, part in self._classes(measured, op, named=True):
                bursts = part.bursts
                makespan_ns = bursts.end_ns - bursts.start_ns
                with np.errstate(divide="ignore", invalid="ignore"):
                    rate = np.where(makespan_ns > 0, bursts.bytes * 1000 / makespan_ns, np.nan)
                frames.append(self._columns(label, {
                    "start_ns": bursts.start_ns, "end_ns": bursts.end_ns, "makespan_ns": makespan_ns,
                    "ops": bursts.ops, "bytes": bursts.bytes, "throughput_mb_s": rate, "is_stray": bursts.strays}))
        return self._concat(frames)

    def seconds(self, empty: bool = True) -> pd.DataFrame:
        """I/Os completed in each second since the first submit: second, read_ops, write_ops, ... for each class.

        The last second is cut off by the end, and says nothing of a rate. empty: with the seconds in which nothing was
        completed, of which a trace of months has millions, at 32 bytes each.
        """
        frames = []
        for label, measured in self._measured.items():
            bins = {f"{name}_ops": part.seconds.runs[0] for name, part in measured.partial.classes().items()}
            length = max(bin_.length for bin_ in bins.values())
            if empty:
                second = np.arange(length)
                counts = {name: bin_.dense(length) for name, bin_ in bins.items()}
            else:
                second = functools.reduce(np.union1d, [bin_.filled for bin_ in bins.values()])
                counts = {name: bin_.at(second) for name, bin_ in bins.items()}
            frames.append(self._columns(label, {"second": second, **counts}))
        return self._concat(frames)

    def timeline(self) -> pd.DataFrame:
        """At most 400 equal spans of the whole: begin_ns, end_ns, and of reads and writes MB/s and IOPS completed.

        Time counts from the first submit.
        """
        frames = []
        for label, measured in self._measured.items():
            line = measured.timeline
            used = int(line.used)
            begin_ns, seconds = np.arange(used, dtype=np.int64) * line.width_ns, line.width_ns / 1e9
            rates = {}
            for kind, name in enumerate(("read", "write")):
                rates[f"{name}_mb_s"] = line.bytes[kind][:used] / 1e6 / seconds
                rates[f"{name}_iops"] = line.ops[kind][:used] / seconds
            frames.append(self._columns(label, {"begin_ns": begin_ns, "end_ns": begin_ns + line.width_ns, **rates}))
        return self._concat(frames)

    def frame(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """The rows in memory, about 80 bytes each: in the order of submission, `op` by its name.

        The index is the row in its file, as `waited_on` names it. columns: those wanted, as docs/trace-format.md lists
        them; None: all. Raises UsageError for one that is not there.
        """
        frame: pd.DataFrame = self.stream(columns).read_all().to_pandas()
        if self._several:
            frame.index = np.concatenate([np.arange(part.rows) for part in self._parts.values()])
        if "op" in frame:
            frame["op"] = self._pandas.Categorical.from_codes(frame["op"].to_numpy(), list(OPS))
        return frame

    def stream(self, columns: Sequence[str] | None = None, batch_rows: int = 131_072) -> pa.RecordBatchReader:
        """The rows as they are in the file, batch by batch: for Polars, DuckDB, or a loop of one's own.

        columns: as of frame(). Of several, a dictionary column `label` comes first.
        """
        wanted = self._wanted(columns)
        fields = [field for field in next(iter(self._parts.values())).schema if field.name in wanted]
        fields = [fields[[field.name for field in fields].index(name)].remove_metadata() for name in wanted]
        schema = pa.schema(([pa.field("label", _LABELS)] if self._several else []) + fields)
        return pa.RecordBatchReader.from_batches(schema, self._batches(wanted, schema, batch_rows))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """For libraries that take Arrow: pyarrow.table(study), polars.DataFrame(study), DuckDB."""
        return self.stream().__arrow_c_stream__(requested_schema)

    @cached_property
    def _measured(self) -> dict[str, Measured]:
        files = {label: trace.path.resolve() if isinstance(trace.path, Path) else trace.path
                 for label, trace in self._parts.items()}
        read = list(dict.fromkeys(files.values()))  # one file may have two labels
        fleet = measure_fleet(read, gap_ns=self._gap_ns, exact=self._exact,
                              read_options=ReadOptions(self._jobs, keep=False))
        measured = dict(zip(read, fleet.measured, strict=True))
        return {label: measured[file] for label, file in files.items()}

    @property
    def _pandas(self) -> Any:
        import pandas

        return pandas

    def _each(self, by_label: dict[str, T]) -> dict[str, T] | T:
        return by_label if self._several else next(iter(by_label.values()))

    def _concat(self, frames: list[pd.DataFrame]) -> pd.DataFrame:
        return self._pandas.concat(frames, ignore_index=True)  # type: ignore[no-any-return]

    def _label(self, label: str) -> dict[str, Any]:
        return {"label": label} if self._several else {}

    def _columns(self, label: str, columns: dict[str, np.ndarray]) -> pd.DataFrame:
        frame: pd.DataFrame = self._pandas.DataFrame(columns)
        if self._several:
            frame.insert(0, "label", label)
        return frame

    def _frame(self, lines: list[dict[str, Any]], names: list[str]) -> pd.DataFrame:
        """With its columns even without lines."""
        return self._pandas.DataFrame(  # type: ignore[no-any-return]
            lines, columns=(["label"] if self._several else []) + names)

    @staticmethod
    def _classes(measured: Measured, op: str | None, named: bool = False) -> list[tuple[str, ClassPartial]]:
        parts = measured.partial.classes()
        if op is None and not named:
            return [(name, part) for name, part in parts.items() if part.ops]
        if op is None or op not in parts:
            raise UsageError(f"no such class of operations: {op!r}", f"classes are: {', '.join(parts)}")
        return [(op, parts[op])]

    def _wanted(self, columns: Sequence[str] | None) -> list[str]:
        if columns is None:
            return self.columns
        if isinstance(columns, str):
            raise UsageError(f"columns is the text {columns!r}, not a list", f"give a list: [{columns!r}]")
        for name in columns:
            for trace in self._parts.values():
                if name not in trace.schema.names:
                    raise UsageError(f"{trace.path} has no column {name!r}",
                                     f"its columns are: {', '.join(trace.schema.names)}")
        return list(columns)

    def _batches(self, wanted: list[str], schema: pa.Schema, batch_rows: int) -> Iterator[pa.RecordBatch]:
        for number, trace in enumerate(self._parts.values()):
            for batch in trace.batches(wanted or ["op"], batch_rows):
                arrays = [batch.column(name) for name in wanted]
                if self._several:
                    indices = pa.array(np.full(batch.num_rows, number, np.int32))
                    arrays.insert(0, pa.DictionaryArray.from_arrays(indices, pa.array(self.labels, pa.string())))
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _headline(measured: Measured) -> dict[str, Any]:
    return headline(figures(measured.partial, RunTimes.of(measured.metadata)),
                    pace_names(measured.stored_account.get("pace")), recorded(measured.account.verdict)["withheld"])


def _name(path: str, trace: Trace) -> str:
    """The label of a run; of a trace, the name of the file without its suffix."""
    name = str(path).rstrip("/").rpartition("/")[2].removeprefix("sample:")
    label: str = trace.account.label or (name.removesuffix(".parquet") if name != RUN_RECORDS else str(path))
    return label


def _distinct(parts: Labeled) -> Labeled:
    """Labels that occur twice become paths; a file that occurs twice gets a number."""
    names = [label for label, _ in parts]
    parts = [(label if names.count(label) == 1 else str(trace.path), trace) for label, trace in parts]
    counts: dict[str, int] = {}
    distinct = []
    for label, trace in parts:
        counts[label] = counts.get(label, 0) + 1
        distinct.append((label if counts[label] == 1 else f"{label} ({counts[label]})", trace))
    return distinct


def _distribution(part: ClassPartial, of: str) -> Distribution:
    if of not in DISTRIBUTIONS:
        raise UsageError(f"no such distribution: {of!r}", f"there are: {', '.join(DISTRIBUTIONS)}")
    values: Distribution = getattr(part, of)
    return values


def _tail(values: Distribution, points: int | None) -> list[tuple[int, int]]:
    distinct, counts = values.items()
    at_least = dict(zip(distinct.tolist(), np.cumsum(counts[::-1])[::-1].tolist(), strict=True))
    if points is not None:  # A chart has several points at one value, on the step of those that took as long.
        at_least = {value: at_least.get(value, number) for value, number in values.tail(points)}
    return list(at_least.items())


def _nanoseconds(gap_ns: float) -> int:
    with suppress(TypeError, ValueError, OverflowError):  # no number, NaN, or infinite
        if 0 <= (whole := int(gap_ns)) == gap_ns and whole < 1 << 63:
            return whole
    raise UsageError(f"invalid gap_ns: {gap_ns!r}", "give whole nanoseconds, such as gap_ns=100_000_000")


def _fraction(percent: float | str) -> tuple[int, int]:
    with suppress(ArithmeticError):  # no number, or NaN
        number = Decimal(str(percent))
        # Also bounds the digits: 1e-999999999 takes minutes as a fraction.
        if _LEAST_PERCENT <= number <= 100:
            share = Fraction(number) / 100
            return share.numerator, share.denominator
    raise UsageError(f"invalid percentile: {percent!r}", "give it in percent, above 0 and up to 100: 99 or 99.9")


def _flat(tree: dict[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{before}{name}_")
        elif not isinstance(value, list | str):
            flat[before + name] = value
    return flat
