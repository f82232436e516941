"""Traces, runs and tests from Python: `blkreel.open("t.parquet")`.

Figures are those of `blkreel report`, as pandas frames with units in the names of their columns; rows are an Arrow
stream, of which never more than a batch is in memory. docs/python.md shows it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from glob import glob
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from blkreel.traces.errors import BlkreelError, UsageError
from blkreel.traces.reader import RUN_RECORDS, Trace, open_trace
from blkreel.traces.schema import OPS

from .bursts import DEFAULT_GAP_NS
from .measure import Measured
from .metrics import EXACT_ROWS
from .percentiles import enough
from .scale import Way, measure_fleet
from .summary import figures

if TYPE_CHECKING:
    import pandas as pd

DISTRIBUTIONS = ("latency", "response", "queue")
_WHOLE = ("_ns", "ops", "bytes", "_n", "_count", "_seconds")  # figures that count something, missing or not
_MAGIC = frozenset("*?[")
_LABELS = pa.dictionary(pa.int32(), pa.string())


def open_study(paths, *, gap_ns: int = DEFAULT_GAP_NS, exact: bool | None = None,
               jobs: int | None = None) -> Study:
    """Open a trace, a run's directory, a test's directory, or several of them.

    paths: one path or URL, a trace that ships ("sample:game-load"), a pattern ("runs/*"), a list of them, or
    {label: path}. gap_ns: idle time after which a new burst starts. exact: whether percentiles are so, whatever that
    takes; None: up to 4 million I/Os, beyond that within 0.4 %. jobs: processes that read where there is much to read;
    None: as many as cores. Nothing but the files' ends is read before a figure is asked for. Raises BlkreelError, with
    its remedy, for what is none of these.
    """
    if isinstance(paths, str) and "://" not in paths and _MAGIC.intersection(paths) and not Path(paths).exists():
        found = sorted(glob(paths))  # noqa: PTH207 - Path has none for a pattern with an absolute path
        if not found:
            raise UsageError(f"nothing is called {paths}", "name traces, runs or tests that are there")
        paths = found
    if isinstance(paths, str | PathLike):
        return Study(_parts(str(paths)), gap_ns, exact, jobs, test=_test_of(paths))
    if isinstance(paths, Mapping):
        parts = [(str(label), trace) for label, path in paths.items() for trace in _only(path)]
    else:
        parts = [part for path in paths for part in _parts(str(path), several=True)]
    if not parts:
        raise UsageError("no path is given to blkreel.open", 'name a trace, as in: blkreel.open("game.parquet")')
    return Study(_distinct(parts), gap_ns, exact, jobs, several=True)


class Study:
    """One trace or run, or several with a label each.

    Of several, each frame has a first column `label`, and so has the stream. A test is the runs of its steps, by the
    names of these. Times are integers in ns since the start of the trace, sizes in bytes, rates in MB/s of 10^6 bytes.
    """

    def __init__(self, parts: Sequence[tuple[str, Trace]], gap_ns: int = DEFAULT_GAP_NS, exact: bool | None = None,
                 jobs: int | None = None, *, several: bool = False, test: Path | None = None):
        self._parts = dict(parts)
        self._gap_ns, self._jobs = gap_ns, jobs
        self._exact = self.rows <= EXACT_ROWS if exact is None else exact
        self._several = several or test is not None
        self._test = test

    def __repr__(self) -> str:
        names = ", ".join(self.labels[:3]) + (f" and {len(self.labels) - 3} more" if len(self.labels) > 3 else "")
        return f"<blkreel study of {names}: {self.rows:,} I/Os>"

    @property
    def labels(self) -> list[str]:
        """Of the traces, in the order in which they were named."""
        return list(self._parts)

    @property
    def metadata(self) -> dict:
        """What the file tells of itself, as docs/trace-format.md lists it; of several {label: that}."""
        return self._each({label: trace.metadata for label, trace in self._parts.items()})

    @property
    def run(self) -> dict | None:
        """The account of a replay (drive, pace, verdict, ...); None of a captured trace. Of several {label: that}."""
        return self._each({label: trace.metadata.get("run") for label, trace in self._parts.items()})

    @property
    def rows(self) -> int:
        """How many I/Os there are, of all together."""
        return sum(trace.rows for trace in self._parts.values())

    @property
    def columns(self) -> list[str]:
        """Of the rows: those that all have."""
        first, *others = [trace.schema.names for trace in self._parts.values()]
        return [name for name in first if all(name in names for names in others)]

    @cached_property
    def figures(self) -> dict:
        """All figures, as `blkreel report --json` gives them; of several {label: that}."""
        return self._each({label: figures(measured.partial) for label, measured in self._measured.items()})

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """A line for each class of operation that occurs, and one for `all`; a column for each figure.

        The index is the class. A name is that of the report with _ for its dots: bursts_throughput_mb_s,
        latency_p99_ns, busy_ns. What cannot be given is missing: a percentile with fewer than 10 I/Os beyond it.
        """
        lines = []
        for label, measured in self._measured.items():
            shown = figures(measured.partial)
            for name in ("all", *measured.partial.classes()):
                if shown[name]["ops"] or shown[name]["unseen_ops"] or name == "all":
                    lines.append({**self._label(label), "class": name, **_flat(shown[name])})
        frame = self._pandas.DataFrame(lines).set_index("class")
        whole = [name for name in frame.columns if name.endswith(_WHOLE)]
        return frame.astype({name: "Int64" for name in whole if (frame[name].dropna() % 1 == 0).all()})

    def percentiles(self, op: str | None = None, at: Iterable[float | str] = (50, 90, 99, "99.9"),
                    of: str = "latency") -> pd.DataFrame:
        """Percentiles in ns by nearest rank, a line for each class or for that of `op`.

        at: in percent. of: "latency" (submit to completion), "response" (due to completion, of a replay) or "queue"
        (in the kernel before submission). n: how many I/Os. A percentile with fewer than 10 I/Os beyond it is missing.
        """
        percents = [(str(percent), _fraction(percent)) for percent in at]
        lines = []
        for label, measured in self._measured.items():
            for name, part in self._classes(measured, op):
                values = _distribution(part, of)
                shown = {f"p{words.replace('.', '_')}_ns": values.percentile(fraction)
                         if enough(values.count, fraction) else None for words, fraction in percents}
                lines.append({**self._label(label), "class": name, "n": values.count,
                              "mean_ns": values.total / values.count if values.count else None, **shown,
                              "max_ns": values.maximum})
        names = [f"p{words.replace('.', '_')}_ns" for words, _ in percents]
        frame = self._frame(lines, ["class", "n", "mean_ns", *names, "max_ns"]).set_index("class")
        return frame.astype(dict.fromkeys([*names, "max_ns"], "Int64"))

    def latency(self, op: str = "read", of: str = "latency", points: int | None = 400) -> pd.DataFrame:
        """The distribution: value_ns, and how many I/Os took at least that long (`at_least`, `share_at_least`).

        At most `points` lines, evenly in the logarithm of the share, as a chart of the tail wants them; None: every
        value that occurs.
        """
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
        return self._pandas.concat(frames, ignore_index=True)

    def seconds(self, empty: bool = True) -> pd.DataFrame:
        """I/Os completed in each second since the first submit: second, read_ops, write_ops, ... for each class.

        The last second is cut off by the end, and says nothing of a rate. empty: with the seconds in which nothing was
        completed, of which a trace of months has millions, at 32 bytes each.
        """
        frames = []
        for label, measured in self._measured.items():
            bins = {f"{name}_ops": part.seconds.runs[0] for name, part in measured.partial.classes().items()}
            length = max(each.length for each in bins.values())
            if empty:
                second = np.arange(length)
                counts = {name: each.dense(length) for name, each in bins.items()}
            else:
                second = functools.reduce(np.union1d, [each.filled for each in bins.values()])
                counts = {name: each.at(second) for name, each in bins.items()}
            frames.append(self._columns(label, {"second": second, **counts}))
        return self._pandas.concat(frames, ignore_index=True)

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
        return self._pandas.concat(frames, ignore_index=True)

    def frame(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """The rows in memory, about 80 bytes each: in the order of submission, `op` by its name.

        columns: those wanted, as docs/trace-format.md lists them; None: all. Raises UsageError for one that is not
        there.
        """
        found = self.stream(columns).read_all().to_pandas()
        if "op" in found:
            codes = self._pandas.Categorical.from_codes(found["op"].to_numpy(), list(OPS))
            found["op"] = codes
        return found

    def stream(self, columns: Sequence[str] | None = None, batch_rows: int = 131_072) -> pa.RecordBatchReader:
        """The rows as they are in the file, batch by batch: for Polars, DuckDB, or a loop of one's own.

        columns: as of frame(). Of several, a dictionary column `label` comes first.
        """
        wanted = self._wanted(columns)
        fields = [field for field in next(iter(self._parts.values())).schema if field.name in wanted]
        fields = [fields[[field.name for field in fields].index(name)].remove_metadata() for name in wanted]
        schema = pa.schema(([pa.field("label", _LABELS)] if self._several else []) + fields)
        return pa.RecordBatchReader.from_batches(schema, self._batches(wanted, schema, batch_rows))

    def __arrow_c_stream__(self, requested_schema=None):
        """So that whatever takes Arrow takes this: pyarrow.table(study), polars.DataFrame(study), DuckDB."""
        return self.stream().__arrow_c_stream__(requested_schema)

    @cached_property
    def results(self) -> dict:
        """Of a test: what was published of it, as `blkreel report --json` gives it. Raises UsageError of others."""
        from . import results

        return results.results_of(self._of_test("results"))

    @property
    def steps(self) -> pd.DataFrame:
        """Of a test: its steps in order, whether they were done, and their labels. Raises UsageError of others."""
        from .results import directory

        steps = directory.load(self._of_test("steps")).steps
        lines = [{"step": step.id, "title": step.title, "do": step.do, "status": step.status, **step.labels}
                 for step in steps]
        return self._pandas.DataFrame(lines).set_index("step")

    def _of_test(self, what) -> Path:
        if self._test is None:
            raise UsageError(f"only a test has {what}", "open a directory that `blkreel test -o` made")
        return self._test

    @cached_property
    def _measured(self) -> dict[str, Measured]:
        files = {label: trace.path.resolve() if isinstance(trace.path, Path) else trace.path
                 for label, trace in self._parts.items()}
        read = list(dict.fromkeys(files.values()))  # one may be here under two labels
        fleet = measure_fleet(read, gap_ns=self._gap_ns, exact=self._exact, way=Way(self._jobs, keep=False))
        measured = dict(zip(read, fleet.measured, strict=True))
        return {label: measured[file] for label, file in files.items()}

    @property
    def _pandas(self):
        import pandas

        return pandas

    def _each(self, found: dict):
        return found if self._several else next(iter(found.values()))

    def _label(self, label) -> dict:
        return {"label": label} if self._several else {}

    def _columns(self, label, columns) -> pd.DataFrame:
        frame = self._pandas.DataFrame(columns)
        if self._several:
            frame.insert(0, "label", label)
        return frame

    def _frame(self, lines, names) -> pd.DataFrame:
        """With its columns also where there is no line."""
        return self._pandas.DataFrame(lines, columns=(["label"] if self._several else []) + names)

    @staticmethod
    def _classes(measured, op, named=False):
        parts = measured.partial.classes()
        if op is None and not named:
            return [(name, part) for name, part in parts.items() if part.ops]
        if op not in parts:
            raise UsageError(f"no such class of operations: {op!r}", f"classes are: {', '.join(parts)}")
        return [(op, parts[op])]

    def _wanted(self, columns) -> list[str]:
        if columns is None:
            return self.columns
        for name in columns:
            for trace in self._parts.values():
                if name not in trace.schema.names:
                    raise UsageError(f"{trace.path} has no column {name!r}",
                                     f"its columns are: {', '.join(trace.schema.names)}")
        return list(columns)

    def _batches(self, wanted, schema, batch_rows) -> Iterator[pa.RecordBatch]:
        for number, trace in enumerate(self._parts.values()):
            for batch in trace.batches(wanted or ["op"], batch_rows):
                arrays = [batch.column(name) for name in wanted]
                if self._several:
                    indices = pa.array(np.full(batch.num_rows, number, np.int32))
                    arrays.insert(0, pa.DictionaryArray.from_arrays(indices, pa.array(self.labels, pa.string())))
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _test_of(path) -> Path | None:
    from .results.directory import is_test

    return Path(path) if is_test(path) else None


def _parts(path: str, several: bool = False) -> list[tuple[str, Trace]]:
    """The traces of what was named, with a label each."""
    test = _test_of(path)
    if test is None:
        trace = open_trace(path)
        return [(_name(path, trace), trace)]
    from .results.directory import load

    steps = [step for step in load(test).steps if step.is_measured]
    if not steps:
        raise BlkreelError(f"{path} is a test of which no measurement is done",
                           f"go on with it: blkreel test --resume {path}")
    before = f"{test.name}/" if several else ""
    return [(f"{before}{step.id}", open_trace(step.directory)) for step in steps]


def _only(path) -> list[Trace]:
    found = _parts(str(path))
    if len(found) > 1:
        raise UsageError(f"{path} is a test of several runs, which cannot share a label",
                         "name it in a list, or one of its steps")
    return [found[0][1]]


def _name(path: str, trace: Trace) -> str:
    """What a report calls a run; of a trace, the file's name without its ending."""
    run = trace.metadata.get("run") or {}
    name = str(path).rstrip("/").rpartition("/")[2].removeprefix("sample:")
    return run.get("label") or (name.removesuffix(".parquet") if name != RUN_RECORDS else str(path))


def _distinct(parts):
    """Two that are called the same are told apart by their paths; the same file twice, by a number."""
    names = [label for label, _ in parts]
    parts = [(label if names.count(label) == 1 else str(trace.path), trace) for label, trace in parts]
    seen: dict[str, int] = {}
    found = []
    for label, trace in parts:
        seen[label] = seen.get(label, 0) + 1
        found.append((label if seen[label] == 1 else f"{label} ({seen[label]})", trace))
    return found


def _distribution(part, of):
    if of not in DISTRIBUTIONS:
        raise UsageError(f"no such distribution: {of!r}", f"there are: {', '.join(DISTRIBUTIONS)}")
    return getattr(part, of)


def _tail(values, points):
    if points is not None:
        return values.tail(points)
    found, counts = values.items()
    at_least = np.cumsum(counts[::-1])[::-1]
    return list(zip(found.tolist(), at_least.tolist(), strict=True))


def _fraction(percent) -> tuple[int, int]:
    try:
        share = Fraction(str(percent)) / 100
    except ValueError:
        raise UsageError(f"{percent!r} is no percentile", "give it in percent, as 99 or 99.9") from None
    if not 0 < share <= 1:
        raise UsageError(f"{percent!r} is no percentile", "give it in percent, above 0 and up to 100")
    return share.numerator, share.denominator


def _flat(shown: dict, before: str = "") -> dict:
    found = {}
    for name, value in shown.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{before}{name}_")
        elif not isinstance(value, list | str):
            found[before + name] = value
    return found
