"""What a report or a comparison says, as one versioned document: the page, the table and --json show this.

A comparison is cut into sections, one per trace and pace: figures of different traces, or with and without
compressed idle time, never stand in one chart. In a section there is one entry per drive and state.

What is known of a figure's certainty stands beside it (statistics.py, ranking.py):

- entry["headline"][name]: value, smallest and largest run; low and high with `interval` (what they are, in words), all
  None of fewer than 6 runs; rank (1 is best; None where it has none) and ties (labels of those it can't be told from).
- section["ratios"]: of each figure and pair of entries {"figure", "base", "other", "value" (other / base), "low",
  "high", "p", "differ", "why"}. p is adjusted for how many were compared; differ is None, and `why` says the reason,
  where there are too few runs.
- section["paired"]: the drive under test, or the first entry, I/O by I/O against each other one (paired.py),
  entry["interference"] what writes do to reads (interference.py); {"why": reason} where it wasn't worked out, None
  where it wasn't asked for.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

from blkreel import __version__
from blkreel.traces.errors import UsageError
from blkreel.traces.reader import RUN_RECORDS

from . import verdict as verdicts
from .columns import drive_words, payload_words
from .definitions import BETTER, LEADING, headline
from .measure import Measured
from .numbers import one_line, setting
from .ranking import pairs, ranked
from .statistics import geometric_mean, interval
from .summary import figures

VERSION = 1
POOLED = {"read_latency_p50_ns", "read_latency_p99_ns", "read_response_p99_ns", "lateness_p99_ns"}


@dataclass(frozen=True)
class Entry:
    """The runs of one drive, state and pace: `shown` is what the document holds of them, the rest is drawn."""

    shown: dict
    measured: list[Measured]
    partial: object


@dataclass(frozen=True)
class Section:
    shown: dict
    entries: list[Entry]


def comparison(measured: list[Measured]) -> tuple[dict, list[Section]]:
    """(the document, its sections with what charts need)."""
    sections = {}
    for each in sorted(measured, key=_pace_order):
        sections.setdefault(_section_key(each), {}).setdefault(_entry_key(each), []).append(each)
    several_sources = len({key[0] for key in sections}) > 1
    built = []
    for groups in sections.values():
        entries = _distinct([entry(runs) for runs in groups.values()])
        first = next(iter(groups.values()))[0]
        shown = {"title": pace_title(first), "claim": claim(first), "source": source(first),
                 "pace": _account(first, "pace"), "idle": _account(first, "idle"),
                 "ratios": _compared(entries), "paired": None, "entries": [each.shown for each in entries]}
        if several_sources:
            shown["title"] += f" ({shown['source']['path'] or first.path})"
        built.append(Section(shown, entries))
    notes = []
    if several_sources:
        notes.append("These runs do not replay one trace: compare figures within a section only.")
    return _document("compare", measured, {"notes": notes, "sections": [each.shown for each in built]}), built


def report(measured: Measured) -> tuple[dict, Section]:
    """(the document of one trace or run, the section with what charts need)."""
    one = entry([measured])
    threads = measured.threads.named(measured.metadata.get("threads") or {})
    section = Section({"title": pace_title(measured), "claim": claim(measured), "source": source(measured),
                       "entries": [one.shown]}, [one])
    shown = {"entry": one.shown, "source": source(measured), "threads": threads}
    return _document("report", [measured], shown), section


def entry(runs: list[Measured]) -> Entry:
    """The runs of one drive and pace as one: percentiles pooled I/O by I/O, other figures as geometric means."""
    partial = runs[0].partial
    for each in runs[1:]:
        partial = partial + each.partial
    per_run = [figures(each.partial) for each in runs]
    pooled = figures(partial) if len(runs) > 1 else per_run[0]
    judged = [verdicts.verdict(each.metadata, numbers) for each, numbers in zip(runs, per_run, strict=True)]
    first = runs[0]
    shown = {
        "label": label(first),
        "drive": drive(first),
        "state": _account(first, "state"),
        "payload": _account(first, "payload"),
        "pace": _account(first, "pace"),
        "idle": _account(first, "idle"),
        "n": len(runs),
        "verdict": verdicts.of_runs(judged, [_start_c(each) for each in runs]) if first.run else judged[0],
        "writer": _worst_writer([numbers["writer"]["state"] for numbers in per_run]),
        "headline": _headlines(headline(pooled), [headline(numbers) for numbers in per_run]),
        "interference": None,
        "figures": pooled,
        "runs": [{"path": str(each.path), "rows": each.rows, "verdict": one, "run": each.run, "figures": numbers}
                 for each, one, numbers in zip(runs, judged, per_run, strict=True)],
    }
    return Entry(shown, runs, partial)


def _headlines(pooled, per_run):
    """name -> value, the smallest and largest run of a set, and its interval where the runs suffice for one.

    The interval of a pooled percentile is of the geometric mean of the runs' own.
    """
    shown = {}
    for name, value in pooled.items():
        values = [each[name] for each in per_run]
        known = [each for each in values if each is not None]
        if name not in POOLED and len(values) > 1:
            value = geometric_mean(values)
        several = len(known) > 1
        sure = interval(values) if len(values) >= verdicts.ENOUGH_RUNS else None
        shown[name] = {"value": value, "smallest": min(known) if several else None,
                       "largest": max(known) if several else None,
                       "low": sure and sure.low, "high": sure and sure.high,
                       "interval": sure and sure.words + (" of the runs' own percentiles" if name in POOLED else ""),
                       "rank": None, "ties": []}
    return shown


def _compared(entries):
    """The ratios of a section; ranks and ties are put to its entries."""
    labels = [each.shown["label"] for each in entries]
    runs = {name: {} for name in BETTER}
    for label_, each in zip(labels, entries, strict=True):
        of_runs = [headline(run["figures"]) for run in each.shown["runs"]]
        for name in BETTER:
            if any(one[name] is not None for one in of_runs):
                runs[name][label_] = [one[name] for one in of_runs]
    found = [pair for leads in (True, False)
             for pair in pairs({name: of for name, of in runs.items() if (name in LEADING) == leads})]
    for name, better in BETTER.items():
        differ = {frozenset((pair.base, pair.other)) for pair in found if pair.figure == name and pair.differ}
        places = ranked(runs[name], differ, better == "higher")
        for each in entries:
            place = places.get(each.shown["label"])
            if place:
                each.shown["headline"][name] |= {"rank": place.rank, "ties": list(place.ties)}
    return [{"figure": pair.figure, "base": pair.base, "other": pair.other, "value": pair.value,
             "low": pair.ratio and pair.ratio.low, "high": pair.ratio and pair.ratio.high, "p": pair.p,
             "differ": pair.differ, "why": pair.why} for pair in found]


def _start_c(measured) -> float | None:
    """The drive's temperature as a run began."""
    return (((measured.run or {}).get("telemetry") or {}).get("temperature_c") or {}).get("start")


def _worst_writer(states):
    return next(state for state in ("fell behind", "unplanned", "kept up", "none") if state in states)


def _distinct(entries):
    """Labels that tell the entries of a section apart, whatever labels the runs were given."""
    told_apart_by = [lambda shown: (shown["state"] or {}).get("name"),
                     lambda shown: (firmware := shown["drive"].get("firmware")) and f"firmware {firmware}",
                     lambda shown: payload_words(shown["payload"]), lambda shown: shown["drive"].get("name"),
                     lambda shown: f"#{[each.shown for each in entries].index(shown) + 1}"]
    for name_of in told_apart_by:
        alike = {}
        for each in entries:
            alike.setdefault(each.shown["label"], []).append((each.shown, name_of(each.shown)))
        for named in alike.values():
            if len({name for _, name in named}) > 1:
                for shown, name in named:
                    shown["label"] += f", {name}" if name else ""
    return entries


def refuse_repeated(paths) -> None:
    """One run is not two repetitions, under whatever path it is named."""
    seen = set()
    for path in paths:
        where = Path(path).resolve()
        where = where.parent if where.name == RUN_RECORDS else where
        if where in seen:
            raise UsageError(f"{path} is named twice", "name each run once: one run is not two repetitions")
        seen.add(where)


def label(each: Measured) -> str:
    """The label of the run, or else the name of its directory or file."""
    return one_line((each.run or {}).get("label") or "") or one_line(each.path.stem)


def drive(each: Measured) -> dict:
    """The drive of a run or a trace; several drives of one run as one that names them all."""
    several = (each.run or {}).get("drives")
    if several:
        return {"name": " and ".join(one["name"] for one in several),
                "model": " and ".join(drive_words(one) for one in several),
                "serial_hash": "+".join(one.get("serial_hash") or "" for one in several)}
    devices = each.metadata.get("devices") or []
    if isinstance(devices, dict):
        devices = list(devices.values())
    return (each.run or {}).get("drive") or (devices[0] if devices else {})


def source(each: Measured) -> dict:
    """The trace that was replayed, or the captured trace itself."""
    if each.run:
        told = each.run.get("source") or {}
    else:
        names = {thread.get("comm") for thread in (each.metadata.get("threads") or {}).values()}
        told = {"path": str(each.path), "rows": each.rows, "duration_ns": each.partial.makespan_ns,
                "command": each.metadata.get("command"), "programs": sorted(names - {None})}
    command = told.get("command")
    return {**{key: told.get(key) for key in ("path", "sha256", "rows", "duration_ns")},
            "command": shlex.join(command) if isinstance(command, list) else command,
            "programs": told.get("programs") or [], "lost_events": verdicts.lost_events(each.metadata)}


def pace_title(each: Measured) -> str:
    """How the I/Os were timed, in words."""
    if not each.run:
        return "As captured"
    pace, idle = _account(each, "pace") or {}, _account(each, "idle") or {}
    title = _paced(pace)
    for stream, own in (pace.get("streams") or {}).items():
        words = _paced(own)
        title += f"; stream {stream}: {words[0].lower()}{words[1:]}"
    if pace.get("name") in ("asap", "depth") and not pace.get("streams"):
        return title
    if idle.get("name") == "cap":
        return f"{title}, idle capped at {setting(idle.get('cap_ns') or 0)}"
    if idle.get("name") == "none":
        return f"{title}, idle removed"
    return title


def _paced(pace) -> str:
    name = pace.get("name", "original")
    if name == "depth":
        return f"As fast as possible, {pace.get('depth')} outstanding"
    if name == "scaled":
        return f"Original timing divided by {pace.get('factor'):g}"
    if name == "dependent":
        inferred = " (inferred)" if pace.get("dependencies") == "inferred" else ""
        return f"Dependent timing{inferred}"
    return {"asap": "As fast as possible", "original": "Original timing"}.get(name, f"Pace {name}")


def claim(each: Measured) -> str:
    """What a run of this pace may claim (methodology.md, section 2)."""
    if not each.run:
        return "These are the times of the captured drive itself, as its application used it."
    paced, idle = _account(each, "pace") or {}, (_account(each, "idle") or {}).get("name")
    pace = paced.get("name")
    if paced.get("streams"):
        return "Some streams of the trace had paces of their own, as the title says: each may claim what its pace may."
    if pace in ("asap", "depth"):
        return "Each I/O was issued as soon as there was room: this shows throughput, not how it feels to wait."
    if pace == "dependent":
        said = ("Each I/O was issued when what it had waited for was done, and as long after that as its program had "
                "thought. This shows how long the application would take on this drive.")
        if paced.get("dependencies") == "inferred":
            said += (" The trace did not observe what waited for what: it was inferred from times alone, and may hold "
                     "I/Os back that nothing held back.")
    elif pace == "scaled":
        said = (f"The I/Os were issued at the times of the trace divided by {paced.get('factor'):g}, whether or not "
                "the drive kept up. This shows how the drive responds under this pattern at another intensity.")
    else:
        said = ("The I/Os were issued at the times of the trace, whether or not the drive kept up. This shows how the "
                "drive responds under this pattern; it does not show how long the application would take to load, "
                "since a faster drive merely idles more.")
    if idle not in (None, "original"):
        said += " With idle time removed, the drive has less time to recover: do not hold these against the other pace."
    return said


def _account(each, key):
    return (each.run or {}).get(key)


def _section_key(each):
    told = (each.run or {}).get("source") or {}
    pace, idle = _account(each, "pace") or {}, _account(each, "idle") or {}
    return (told.get("sha256") or told.get("path") or ("" if each.run else str(each.path)), bool(each.run),
            pace.get("name"), pace.get("depth"), pace.get("factor"), pace.get("dependencies"),
            str(pace.get("streams") or {}), idle.get("name"), idle.get("cap_ns"))


def _pace_order(each):
    """Captured, original timing, then what changes it more and more; runs of one pace stay in the order named."""
    pace, idle = (_account(each, "pace") or {}).get("name"), (_account(each, "idle") or {}).get("name")
    rank = {None: 0, "original": 0, "dependent": 1, "scaled": 2, "depth": 4}.get(pace, 3)
    order = [bool(each.run), rank, idle not in (None, "original"), idle == "none",
             (_account(each, "idle") or {}).get("cap_ns") or 0]
    order[-1] = -order[-1]
    return order


def _entry_key(each):
    disk = drive(each)
    return (label(each), disk.get("model"), disk.get("firmware"), disk.get("serial_hash"),
            (_account(each, "state") or {}).get("name"), payload_words(_account(each, "payload")))


def _document(kind, measured, content):
    return {"version": VERSION, "kind": kind, "blkreel": __version__,
            "parameters": {"burst_gap_ns": measured[0].partial.gap_ns}, **content}
