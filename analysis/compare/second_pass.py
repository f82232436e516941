"""What takes another pass over the rows: I/O by I/O comparisons, and what writes do to reads. Only for a page.

Results are cached beside the traces (scale/partial_cache.py), so that a page of the same traces reads no rows: the
interference of a run beside it, the comparison of a pair beside the first run of the other drive.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from blkreel.analysis.metrics.measure import Measured
from blkreel.analysis.metrics.run_times import why_no_slowdown
from blkreel.analysis.scale import ReadOptions
from blkreel.analysis.scale.partial_cache import PartialCache
from blkreel.analysis.scale.runner import mapping
from blkreel.analysis.stats.intervals import Interval, geometric_mean, interval
from blkreel.common.errors import TraceError
from blkreel.common.files.safe_files import file_name
from blkreel.common.files.storage_url import StorageUrl
from blkreel.common.files.typed_document import parse_typed
from blkreel.traces.format.footer import read_footer
from blkreel.traces.format.reader import open_trace

from . import interference_file
from . import paired as pairing
from .interference import WINDOWS_NS, Interference, interference
from .paired import Document, of_one_trace, paired, window_of

MOST_ROWS = 20_000_000  # read for a page; about a minute
MOST_ENTRIES = 40  # of a section: a larger one is a fleet, which is compared by its partials

Pair = dict[str, Any]  # the document of a pair


class DriveRuns(Protocol):
    """An entry of a section (report/document.py): the runs of one drive, and their document."""

    @property
    def document(self) -> dict[str, Any]: ...

    @property
    def measured(self) -> list[Measured]: ...


class PaceSection(Protocol):
    @property
    def document(self) -> dict[str, Any]: ...

    @property
    def entries(self) -> Sequence[DriveRuns]: ...


@dataclass(frozen=True)
class InterferenceKey:
    """What the interference of one trace or run depends on."""

    identity: str

    @property
    def name(self) -> str:
        return "interference"

    def header(self) -> dict[str, Any]:
        return {"interference": interference_file.VERSION, "windows_ns": list(WINDOWS_NS),
                "fingerprint": self.identity}

    def load(self, content: bytes) -> Interference:
        return interference_file.load(content)


@dataclass(frozen=True)
class PairKey:
    """What the comparison of two drives I/O by I/O depends on: the identities of their runs."""

    base: tuple[str, ...]
    other: tuple[str, ...]
    window_rows: int

    @property
    def name(self) -> str:
        """Pairs with another base, or of more runs, stand beside each other."""
        return f"paired-{hashlib.sha256(' '.join([*self.base, *self.other[1:]]).encode()).hexdigest()[:12]}"

    def header(self) -> dict[str, Any]:
        return {"paired": pairing.VERSION, "window_rows": self.window_rows, "base": list(self.base),
                "other": list(self.other)}

    def load(self, content: bytes) -> Pair:
        return parse_typed(content, Pair)


def read_again(sections: Sequence[PaceSection], read_options: ReadOptions | None = None, *, most_rows: int = MOST_ROWS,
               marked: str | None = None) -> None:
    """Add `paired` and `interference` to the documents of sections. Raises TraceError.

    read_options.keep: use and write cached results. With read_options.cluster, for remote traces, in larger sections,
    and where more than most_rows would be read, only cached results are used, and the document has the reason: a
    fleet is compared by its partials. marked: label of the drive under test, the base of pairs; otherwise the first
    drive whose runs are not invalid, as of ratios.
    """
    read_options = read_options or ReadOptions(keep=False)
    entries = [entry for section in sections for entry in section.entries]
    runs = [run for entry in entries for run in entry.measured]
    bases = [_base_of(section.entries, marked) for section in sections]
    pairs = [(base, other) for section, base in zip(sections, bases, strict=True) for other in section.entries
             if other is not base]
    cache = PartialCache(read_options.keep)
    by_run: dict[int, Interference] = {}
    compared: dict[int, Pair] = {}  # by id of the other entry
    why = ""
    if any(run.is_stored for run in runs):
        why = "left out: it takes each row, and a result of a catalog has none"
    elif any(len(section.entries) > MOST_ENTRIES for section in sections):
        why = f"left out: it takes each row, and a comparison of more than {MOST_ENTRIES} drives reads partials only"
    else:
        by_run, compared = _look_up(runs, pairs, cache)
        why = _why_not(runs, pairs, by_run, compared, bool(read_options.cluster), most_rows)
    for entry in entries:
        entry.document["interference"] = _interference(entry, by_run, why, cache)
        entry.document["slowdown_by_writes"] = _slowdown(entry, why, cache)
    for base, other in pairs:
        if not why and id(other) not in compared:
            compared[id(other)] = _paired(base.measured, other.measured, cache)
    for section, base in zip(sections, bases, strict=True):
        section.document["paired"] = [{"base": base.document["label"], "other": other.document["label"],
                                    **compared.get(id(other), {"why": why})}
                                   for other in section.entries if other is not base]


def _base_of(entries: Sequence[DriveRuns], marked: str | None) -> DriveRuns:
    trusted = [entry for entry in entries if entry.document["verdict"]["level"] != "invalid"]
    return next((entry for entry in entries if entry.document["label"] == marked), (trusted or entries)[0])


def _look_up(runs: list[Measured], pairs: list[tuple[DriveRuns, DriveRuns]],
             cache: PartialCache) -> tuple[dict[int, Interference], dict[int, Pair]]:
    """Cached results, and pairs that need no rows."""
    def interference_of(run: Measured) -> Interference | None:
        key = _key_of(run)
        return cache.get(run.records, run.rows, key) if key and run.records else None

    def pair_of(pair: tuple[DriveRuns, DriveRuns]) -> Pair | None:
        base, other = pair[0].measured, pair[1].measured
        if not of_one_trace(base, other):
            return paired(base, other)
        key = _pair_key_of(base, other)
        return cache.get(other[0].records, other[0].rows, key) if key and other[0].records else None

    with mapping(any(isinstance(run.records, StorageUrl) for run in runs)) as mapped:
        interferences = zip(runs, mapped(interference_of, runs), strict=True)
        compared = zip(pairs, mapped(pair_of, pairs), strict=True)
        return ({id(run): value for run, value in interferences if value is not None},
                {id(other): value for (_, other), value in compared if value is not None})


def _why_not(runs: list[Measured], pairs: list[tuple[DriveRuns, DriveRuns]], by_run: dict[int, Interference],
             compared: dict[int, Pair], is_cluster: bool, most_rows: int) -> str:
    """Why missing results are not read; empty if they are."""
    missing = {id(run): run for run in runs if id(run) not in by_run}
    for base, other in pairs:
        if id(other) not in compared:
            missing |= {id(run): run for run in [*base.measured, *other.measured]}
    rows = sum(run.rows for run in missing.values())
    if missing and (is_cluster or any("://" in str(run.path) for run in runs)):
        return "left out: it takes each row, and rows are not read from remote traces; copy the runs here to see it"
    if rows > most_rows:
        return f"left out: {rows:,} I/Os are more than the {most_rows:,} that a page reads again"
    return ""


def _interference(entry: DriveRuns, by_run: dict[int, Interference], why: str, cache: PartialCache) -> dict[str, Any]:
    if why and any(id(run) not in by_run for run in entry.measured):
        return {"why": why}
    pooled = Interference()
    for run in entry.measured:
        if id(run) not in by_run:
            by_run[id(run)] = _read(run, cache)
        pooled += by_run[id(run)]
    if not pooled.reads or not pooled.writes:
        return {"why": "no reads" if not pooled.reads else "no writes"}
    return pooled.document()


def _slowdown(entry: DriveRuns, why: str, cache: PartialCache) -> dict[str, Any]:
    """SlowdownByWrites as a document. why: why rows are not read; then reads are not compared one by one."""
    def compare(alone: Measured, run: Measured) -> Pair:
        key = _pair_key_of([alone], [run])
        pair = cache.get(run.records, run.rows, key) if key and run.records else None
        return _paired([alone], [run], cache) if pair is None else pair

    return asdict(slowdown_by_writes(entry.measured, None if why else compare))


def _read(run: Measured, cache: PartialCache) -> Interference:
    result = interference(open_trace(run.path))
    _check_same(run)
    key = _key_of(run)
    if key and run.records:
        cache.put(run.records, run.rows, key, lambda: interference_file.dump(result))
    return result


def _paired(base: list[Measured], other: list[Measured], cache: PartialCache) -> Pair:
    pair = paired(base, other)
    for run in [*base, *other]:
        _check_same(run)
    key, first = _pair_key_of(base, other), other[0]
    if key and first.records:
        cache.put(first.records, first.rows, key, lambda: json.dumps(pair).encode())
    return pair


def _key_of(run: Measured) -> InterferenceKey | None:
    return None if run.identity is None else InterferenceKey(run.identity)


def _pair_key_of(base: list[Measured], other: list[Measured]) -> PairKey | None:
    of_base, of_other = (tuple(run.identity for run in side if run.identity is not None)
                         for side in (base, other))
    if (len(of_base), len(of_other)) != (len(base), len(other)):
        return None
    return PairKey(of_base, of_other, window_of(base, other))


def _check_same(run: Measured) -> None:
    """Rows are read by path, which may name another file than the one that was measured."""
    if run.identity is not None and run.records and read_footer(run.records).identity != run.identity:
        raise TraceError(f"{run.records} changed while it was read", "wait until it is whole, then repeat the command")


@dataclass(frozen=True)
class Slowdown:
    """A ratio over runs, with writes / without: the geometric mean, its interval (None of one run), and each run."""

    value: float
    interval: Interval | None
    runs: tuple[float, ...]


@dataclass(frozen=True)
class PairedSlowdown:
    """From baselines. load_time: None at other paces than dependent. reads: read by read, as paired() gives it, of the
    first run; {"why": reason} if its baseline cannot be read."""

    load_time: Slowdown | None
    read_wait: Slowdown
    reads: Document


@dataclass(frozen=True)
class SlowdownByWrites:
    """Of the runs of one drive on one trace at one pace. why: why there is none.

    A baseline (docs/replay.md) has the same reads on the same drive in the same state. So its ratios are the effect of
    the writes. Reads of one run that met a write are not compared with its other reads: they differ in more than the
    writes.
    """

    paired: PairedSlowdown | None = None
    why: str = ""


def slowdown_by_writes(runs: Sequence[Measured],
                       compare: Callable[[Measured, Measured], Document] | None = paired) -> SlowdownByWrites:
    """From the baselines, if all runs have one and none of them has a reason against it (why_no_slowdown()).

    compare: joins the baseline of the first run with the run, read by read, as paired() does; None to leave that out.
    Raises TraceError for a damaged file of a run.
    """
    baselines = [baseline for run in runs if (baseline := run.account.baseline)]
    if not baselines or len(baselines) < len(runs):
        which = f"of {len(runs) - len(baselines)} of {len(runs)} runs" if baselines else "without the writes"
        return SlowdownByWrites(why=f"no baseline {which}: replay with --baseline")
    if why := next((why for run in runs if (why := why_no_slowdown(run.metadata))), ""):
        return SlowdownByWrites(why=why)
    read_wait = _over_runs([baseline.slowdown.read_wait for baseline in baselines])
    if read_wait is None:
        return SlowdownByWrites(why="a run or its baseline completed no read")
    reads = _read_by_read(runs[0], baselines[0].path, compare) if compare else {"why": "left out"}
    load_time = _over_runs([baseline.slowdown.load_time for baseline in baselines])
    return SlowdownByWrites(PairedSlowdown(load_time, read_wait, reads))


def _read_by_read(run: Measured, name: str, compare: Callable[[Measured, Measured], Document]) -> Document:
    """name: of the folder of the baseline; a path elsewhere is not followed."""
    location = run.records
    if not isinstance(location, Path):
        return {"why": "the path of the baseline is not a folder of the run here"}
    try:
        trace = open_trace(location.parent / file_name(name))
    except ValueError:
        return {"why": "the path of the baseline is not a folder of the run here"}
    except (TraceError, OSError) as error:
        return {"why": f"the baseline cannot be read: {error}"}
    # The comparison reads rows and metadata, not the partial.
    alone = replace(run, path=location.parent / name, metadata=trace.metadata, rows=trace.rows, records=trace.path,
                    identity=trace.footer.identity)
    return compare(alone, run)


def _over_runs(values: Sequence[float | None]) -> Slowdown | None:
    """None if a run has no value."""
    factors = [value for value in values if value]
    value = geometric_mean(factors)
    if value is None or len(factors) < len(values):
        return None
    return Slowdown(value, interval(factors), tuple(factors))
