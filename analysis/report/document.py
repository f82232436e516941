"""The versioned document of a report or a comparison: source of the page, the terminal tables and --json.

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

import functools
import itertools
import shlex
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from blkreel import __version__
from blkreel.analysis.metrics.definitions.headline import HEADLINE, headline, ranked_families
from blkreel.analysis.metrics.definitions.metric import pace_names
from blkreel.analysis.metrics.definitions.registry import METRICS, figures
from blkreel.analysis.metrics.measure import Measured
from blkreel.analysis.metrics.partials.partial import Partial
from blkreel.analysis.metrics.provider_limit import GroupLimit, ProviderLimit, group_limit, provider_limit
from blkreel.analysis.metrics.run_times import RunTimes, why_no_slowdown
from blkreel.analysis.metrics.stalls import stalls
from blkreel.analysis.stats.intervals import interval, mean_of_runs
from blkreel.analysis.stats.ranking import ENOUGH_RUNS, pairs, ranked
from blkreel.common.binning import grouped, sum_of
from blkreel.common.device import drive_units, without_seed
from blkreel.common.errors import BlkreelError
from blkreel.common.files.typed_document import record
from blkreel.common.printable import printable, within_sentence
from blkreel.common.units import counted, setting
from blkreel.common.verdict import Verdict
from blkreel.traces.format.condition import Condition, Role, compute_words, differences, input_names, workload_words
from blkreel.traces.format.exposure import Exposure
from blkreel.traces.format.metadata_types import Pace, Source
from blkreel.traces.samples import workload_names

from . import verdict as verdicts
from .beside import beside_words
from .columns import drive_words
from .verdict import Document

VERSION = 1

_LABEL_CHARACTERS = 60
_Key = tuple[Hashable, ...]


class NoValidRun(BlkreelError):
    """A comparison from which all runs are left out."""

    exit_code = 3


@dataclass(frozen=True)
class Entry:
    """The runs of one drive, state and pace: `document` is what the JSON document holds of them, the rest is drawn."""

    document: Document
    measured: list[Measured]
    partial: Partial


EntryOf = Callable[[list[Measured]], Entry]


@dataclass(frozen=True)
class Section:
    document: Document
    entries: list[Entry]


def comparison(measured: list[Measured], drop_invalid: bool = False,
               entry_of: EntryOf | None = None) -> tuple[Document, list[Section]]:
    """(the document, its sections with what charts need). drop_invalid: leave out runs with the verdict invalid.
    entry_of: entry(), or what gives the same.

    Raises BlkreelError if all runs are left out.
    """
    # The first drive and the order of the others are the same in all sections: changes are against the first.
    base_key = _drive_key(measured[0])
    order = {key: (key[:len(base_key)] != base_key, place)
             for place, key in enumerate(dict.fromkeys(map(_entry_key, measured)))}
    measured, dropped = _without_invalid(measured) if drop_invalid else (measured, [])
    sections: dict[_Key, dict[_Key, list[Measured]]] = {}
    for run in sorted(measured, key=_pace_order):
        sections.setdefault(_section_key(run), {}).setdefault(_entry_key(run), []).append(run)
    conditions = [condition_of(run) for run in measured]
    several_sources = len({condition.workload for condition in conditions}) > 1
    several_devices = len({condition.device for condition in conditions}) > 1
    built: list[Section] = []
    notes = list(_changed_traces(measured))
    drives = [[(entry_of or entry)(groups[key]) for key in sorted(groups, key=lambda key: order[key])]
              for groups in sections.values()]
    _name_apart(drives)
    for key, entries in zip(sections, drives, strict=True):
        first = entries[0].measured[0]
        omitted = [run for run, _ in dropped if _section_key(run) == key]
        for built_entry in entries:
            built_entry.document["left_out"] = [figures(run.partial) for run in omitted
                                                if _entry_key(run) == _entry_key(built_entry.measured[0])]
        document: Document = {
            "title": pace_title(first), "claim": claim(first), "source": source(first),
            "pace": first.stored_account.get("pace"), "idle": first.stored_account.get("idle"),
            "ratios": _compared(entries), "paired": None, "entries": [entry.document for entry in entries],
            **_base_of(base_key, entries, omitted)}
        if several_devices and (device := condition_of(first).device):
            document["title"] += f", device {device} of the trace"
        if several_sources:
            document["title"] += f" ({workload_words(first.stored_account.get('source', {})) or first.path})"
        built.append(Section(document, entries))
        notes += differences({entry.document["label"]: condition_of(entry.measured[0]) for entry in entries})
    notes += _mixed_drives(drives)
    notes += [f"{entry['label']}: {entry['provider_limit']}" for section in built
              for entry in section.document["entries"]
              if entry["provider_limit"]]
    notes = list(dict.fromkeys(notes))
    dropped_runs = [{"path": str(run.path), "label": label(run), "verdict": verdict} for run, verdict in dropped]
    if dropped:
        notes.append(f"{len(dropped)} invalid {'run' if len(dropped) == 1 else 'runs'} left out: " + ", ".join(
            f"{run.path} ({verdict['reasons'][0]['text']})" if verdict["reasons"] else str(run.path)
            for run, verdict in dropped))
    gone = grouped((_section_key(run), run) for run, _ in dropped if _section_key(run) not in sections)
    left_out = [{"title": pace_title(runs[0]), "left_out": list(dict.fromkeys(map(label, runs)))}
                for runs in gone.values()]
    content = {"notes": notes, "dropped_runs": dropped_runs, "left_out": left_out,
               "sections": [section.document for section in built]}
    return _document("compare", measured, content), built


def _base_of(base_key: _Key, entries: Sequence[Entry], dropped: Sequence[Measured]) -> Document:
    """base: label of the drive that the others of a section are compared with, the first one that was named; None if
    all its runs are left out. left_out: labels of the drives all of whose runs are."""
    keys = {_entry_key(entry.measured[0]) for entry in entries}
    gone = [run for run in dropped if _entry_key(run) not in keys]
    base = next((entry for entry in entries if _drive_key(entry.measured[0]) == base_key), None)
    if base is None and not any(_drive_key(run) == base_key for run in gone):
        base = entries[0]
    return {"base": base and base.document["label"], "left_out": list(dict.fromkeys(map(label, gone)))}


def _without_invalid(measured: list[Measured]) -> tuple[list[Measured], list[tuple[Measured, Verdict]]]:
    """(the runs that are not invalid, the others with their verdicts)."""
    used, dropped = [], []
    for run in measured:
        judged = verdicts.verdict(run.metadata, figures(run.partial))
        if judged["level"] == "invalid":
            dropped.append((run, judged))
        else:
            used.append(run)
    if not used:
        raise NoValidRun(f"no valid run, of {counted(len(measured), 'run')}",
                         "list the reasons: --why, without --drop-invalid")
    return used, dropped


def report(measured: Measured) -> tuple[Document, Section]:
    """(the document of one trace or run, the section with what charts need)."""
    drive_entry = entry([measured])
    # How many runs there are concerns comparisons.
    drive_entry.document["verdict"] = drive_entry.document["runs"][0]["verdict"]
    threads = measured.threads.named(measured.metadata.get("threads") or {})
    section = Section({"title": pace_title(measured), "claim": claim(measured), "source": source(measured),
                       "pace": drive_entry.document["pace"], "idle": drive_entry.document["idle"], "ratios": [],
                       "paired": None, "entries": [drive_entry.document]}, [drive_entry])
    content = {"entry": drive_entry.document, "source": source(measured), "threads": threads}
    return _document("report", [measured], content), section


def entry(runs: list[Measured]) -> Entry:
    """The runs of one drive and pace as one: percentiles pooled I/O by I/O, other figures as geometric means."""
    partial, times = sum_of(run.partial for run in runs), [RunTimes.of(run.metadata) for run in runs]
    per_run = [figures(run.partial, own_times) for run, own_times in zip(runs, times, strict=True)]
    pooled = figures(partial, sum_of(times)) if len(runs) > 1 else per_run[0]
    limits = [limit_of(run) for run in runs]
    judged = [verdict_of(run, numbers, limit) for run, numbers, limit in zip(runs, per_run, limits, strict=True)]
    first = runs[0]
    paces = pace_names(first.stored_account.get("pace"))
    verdict = verdicts.of_runs(judged, [_start_c(run) for run in runs]) if first.is_run else judged[0]
    withheld = verdict["withheld"]
    content = {
        "label": label(first),
        "drive": drive(first),
        "state": first.stored_account.get("state"),
        "payload": first.stored_account.get("payload"),
        "pace": first.stored_account.get("pace"),
        "idle": first.stored_account.get("idle"),
        "n": len(runs),
        "simulated": any(run.account.simulated for run in runs),
        "verdict": verdict,
        "writer": next(state for state in ("fell behind", "unplanned", "kept up", "none")
                       if any(numbers["writer"]["state"] == state for numbers in per_run)),
        "headline": _headlines(headline(pooled, paces, withheld),
                                [headline(numbers, paces, withheld) for numbers in per_run]),
        "interference": None,
        "exposure": exposure_document(runs),
        "provider_limit": next((limit.words for limit in limits if limit), None),
        "figures": pooled,
        "runs": [{"path": str(run.path), "rows": run.rows, "verdict": run_verdict, "run": run.metadata.get("run"),
                  "figures": numbers}
                 for run, run_verdict, numbers in zip(runs, judged, per_run, strict=True)],
    }
    return Entry(content, runs, partial)


def verdict_of(measured: Measured, numbers: Document, limit: ProviderLimit | GroupLimit | None) -> Verdict:
    """The verdict on one run or trace. numbers: its figures. limit: limit_of()."""
    return verdicts.verdict(measured.metadata, numbers, limit, stalls(measured.partial))


def limit_of(measured: Measured) -> ProviderLimit | GroupLimit | None:
    """The limit of a control group or of a provider that shows in a run or trace of one drive."""
    devices = measured.metadata.get("devices") or []
    if len(devices) == 1 and (limit := group_limit(measured.partial, devices[0].get("io_max") or {})):
        return limit
    return None if measured.account.telemetry.throttled else provider_limit(measured.partial)


def exposure_document(runs: Sequence[Measured]) -> Document | None:
    """The exposure of all runs together, and why no slowdown by writes is stated (`why`, empty if one is); None if one
    of them does not record it."""
    exposures = [exposure for run in runs if (exposure := Exposure.of_metadata(run.metadata))]
    if len(exposures) < len(runs):
        return None
    pooled = sum_of(exposures)
    why = next((why for run in runs if (why := why_no_slowdown(run.metadata))), "")
    return {**pooled.document(), "words": pooled.words(), "why": why}


def _headlines(pooled: Document, per_run: list[Document]) -> Document:
    """name -> value, the smallest and largest run of a set, and its interval where the runs suffice for one.

    The interval of a pooled percentile is of the geometric mean of the runs' own.
    """
    figures_of = {}
    for metric in HEADLINE:
        value, values = pooled[metric.key], [run_figures[metric.key] for run_figures in per_run]
        numbers = [value for value in values if value is not None]
        if not metric.pooled and len(values) > 1:
            value = mean_of_runs(values)
        several = len(numbers) > 1
        sure = interval(values) if len(values) >= ENOUGH_RUNS else None
        figures_of[metric.key] = {
            "value": value, "unit": metric.unit.symbol, "smallest": min(numbers) if several else None,
            "largest": max(numbers) if several else None, "low": sure and sure.low, "high": sure and sure.high,
            "interval": sure and sure.words + (" of the runs' own percentiles" if metric.pooled else ""),
            "rank": None, "ties": []}
    return figures_of


def _compared(entries: list[Entry]) -> list[Document]:
    """Return the ratios of a section; add ranks and ties to its entries. Drives with an invalid run have neither."""
    entries = [entry for entry in entries if entry.document["verdict"]["level"] != "invalid"]
    if not entries:
        return []
    labels = [entry.document["label"] for entry in entries]
    families = ranked_families(pace_names(entries[0].document["pace"]))
    runs: dict[str, dict[str, list[float | None]]] = {metric.key: {} for family in families for metric in family}
    for label_, entry in zip(labels, entries, strict=True):
        paces = pace_names(entry.document["pace"])
        of_runs: list[Document] = [headline(run["figures"], paces, entry.document["verdict"]["withheld"])
                                   for run in entry.document["runs"]]
        for name in runs:
            if any(values[name] is not None for values in of_runs):
                runs[name][label_] = [values[name] for values in of_runs]
    compared = [pair for family in families for pair in pairs(
        {metric.key: runs[metric.key] for metric in family},
        {metric.key: metric.same_rank for metric in family if metric.same_rank})]
    for name, drives in runs.items():
        differ = {frozenset((pair.base, pair.other)) for pair in compared if pair.figure == name and pair.differ}
        places = ranked(drives, differ, METRICS[name].better == "higher")
        for metric in HEADLINE:
            if name == metric.key or name == metric.same_rank and metric.key not in runs:
                for entry in entries:
                    place = places.get(entry.document["label"])
                    if place and entry.document["headline"][metric.key]["value"] is not None:
                        entry.document["headline"][metric.key] |= {"rank": place.rank, "ties": list(place.ties)}
    return [{"figure": pair.figure, "base": pair.base, "other": pair.other, "value": pair.value,
             "low": pair.ratio and pair.ratio.low, "high": pair.ratio and pair.ratio.high, "p": pair.p,
             "differ": pair.differ, "why": pair.why} for pair in compared]


def _start_c(measured: Measured) -> float | None:
    """The drive's temperature as a run began."""
    temperature = measured.account.telemetry.temperature_c
    return temperature.start if temperature else None


def _name_apart(sections: Sequence[Sequence[Entry]]) -> None:
    """Add to equal labels what differs within a section: inputs, firmware, drive, number. A drive has one name in all
    sections, by which workloads are compared."""
    properties: list[Callable[[Entry], str | None]] = [
        lambda of: (of.document["state"] or {}).get("name"),
        *(functools.partial(_input_words, name) for name in input_names(Role.SAID)),
        lambda of: (firmware := of.document["drive"].get("firmware")) and f"firmware {firmware}",
        lambda of: (size := of.document["drive"].get("logical_block_bytes")) and f"blocks of {size} bytes",
        lambda of: _brief(of.document["drive"].get("name") or ""),
        _unit_words]
    for name_of in properties:
        _add_names(sections, name_of)
    alike = grouped((of.document["label"], _drive_key(of.measured[0])) for of in itertools.chain(*sections))
    numbers = {(label_, key): f"#{number}" for label_, keys in alike.items()
               for number, key in enumerate(dict.fromkeys(keys), 1)}
    _add_names(sections, lambda of: numbers[of.document["label"], _drive_key(of.measured[0])])


def _mixed_drives(sections: Sequence[Sequence[Entry]]) -> Iterator[str]:
    """A note on each label that is of several drives, which workloads are compared by."""
    alike = grouped((of.document["label"], of) for of in itertools.chain(*sections))
    for label_, entries in alike.items():
        for name in ("model", "firmware"):
            values = dict.fromkeys(str(of.document["drive"].get(name) or "unknown") for of in entries)
            if len(values) > 1:
                yield f"{label_}: {name} is not the same in all workloads: {', '.join(values)}"
                break
        else:
            if len({tuple(_units(of.measured[0])) for of in entries}) > 1:
                yield f"{label_}: not the same drive in all workloads"


def _add_names(sections: Sequence[Sequence[Entry]], name_of: Callable[[Entry], str | None]) -> None:
    """Add to each label of which a section has entries with different names."""
    named = [[(of, (of.document["label"], name_of(of))) for of in entries] for entries in sections]
    unclear = {label_ for entries in named for label_, names in grouped(name for _, name in entries).items()
               if len(set(names)) > 1}
    for of, (label_, name) in itertools.chain(*named):
        if label_ in unclear and name:
            of.document["label"] += f", {name}"


def _unit_words(entry: Entry) -> str | None:
    """None where only the serial tells drives apart: its hash is no name."""
    unit = _units(entry.measured[0])[-1]
    return None if unit == entry.document["drive"].get("serial_hash") else _brief(unit)


def _brief(unit: str) -> str | None:
    """For a label: of a simulated drive the keys that were given, unless they are as many as those of a fitted one."""
    if not unit.startswith("nil:"):
        return unit
    words = without_seed(unit).partition(",")[2]
    return words if len(words) <= _LABEL_CHARACTERS else None


def _changed_traces(measured: list[Measured]) -> Iterator[str]:
    """A note on each trace of one name that is not the same in all runs."""
    contents: dict[str, set[str]] = {}
    for run in measured:
        if checksum := source(run)["sha256"]:
            contents.setdefault(source(run)["path"] or "", set()).add(checksum)
    for path, workloads in contents.items():
        if path and len(workloads) > 1:
            yield (f"These runs do not replay one trace: {path} was changed between them. Compare figures within a "
                   "section only.")


def _input_words(name: str, entry: Entry) -> str | None:
    value: str = getattr(condition_of(entry.measured[0]), name)
    return value if name in ("state", "payload", "polling") or not value else f"{name} {value}"


def label(measured: Measured) -> str:
    """The label of the run, or else the name of its directory or file."""
    return printable(measured.account.label).strip() or printable(measured.path.stem)


def drive(measured: Measured) -> Document:
    """The drive of a run or a trace; several drives of one run as one that names them all."""
    if several := measured.account.drives:
        return {"name": " and ".join(member["name"] for member in several),
                "model": " and ".join(drive_words(dict(member)) for member in several),
                "serial_hash": "+".join(member.get("serial_hash") or "" for member in several)}
    devices = measured.metadata.get("devices") or []
    if isinstance(devices, dict):
        devices = list(devices.values())
    return dict(measured.account.drive) or (devices[0] if devices else {})


def source(measured: Measured) -> Document:
    """The trace that was replayed, or the captured trace itself."""
    if measured.is_run:
        origin = measured.account.source
    else:
        names = {thread.get("comm") for thread in (measured.metadata.get("threads") or {}).values()}
        origin = record(Source, {
            "path": str(measured.path), "rows": measured.rows, "duration_ns": measured.partial.makespan_ns,
            **workload_names(measured.path, measured.metadata),
            "command": measured.metadata.get("command"), "programs": sorted(names - {None})})
    return {"path": origin.path, "sha256": origin.sha256, "rows": origin.rows, "duration_ns": origin.duration_ns,
            "title": origin.title, "description": origin.description,
            "command": shlex.join(origin.command) if origin.command is not None else None,
            "programs": origin.programs, "lost_events": verdicts.lost_events(measured.metadata)}


def pace_title(measured: Measured) -> str:
    """How the I/Os were timed, in words."""
    if not measured.is_run:
        return "As captured"
    run = measured.account
    title = _paced(run.pace)
    if run.without:
        title += f", without {' and '.join(run.without)}"
    if beside := beside_words(run):
        title += f", beside {beside}"
    for stream, own in run.pace.streams.items():
        words = _paced(own)
        title += f"; stream {stream}: {within_sentence(words)}"
    if run.pace.name in ("asap", "depth") and not run.pace.streams:
        return title
    if run.idle.name == "cap":
        return f"{title}, idle capped at {setting(run.idle.cap_ns or 0)}"
    if run.idle.name == "none":
        return f"{title}, idle removed"
    return title


def _paced(pace: Pace) -> str:
    if pace.name == "depth":
        return f"As fast as possible, {pace.depth} outstanding"
    if pace.name == "scaled":
        return f"Original timing divided by {pace.factor or 0:g}"
    if pace.name == "dependent":
        inferred = " (inferred)" if pace.dependencies == "inferred" else ""
        return f"Dependent timing{inferred}{compute_words(pace.compute)}"
    return {"asap": "As fast as possible", "original": "Original timing",
            "paced": "Paced as captured"}.get(pace.name, f"Pace {pace.name}")


def claim(measured: Measured) -> str:
    """What a run of this pace may claim (docs/guide.md, "Replay")."""
    if not measured.is_run:
        return "These are the times of the captured drive itself, as its application used it."
    pace, idle = measured.account.pace, measured.account.idle
    if pace.streams:
        return "Some streams of the trace had paces of their own, as the title says: each may claim what its pace may."
    if pace.name in ("asap", "depth"):
        return "Each I/O was issued as soon as there was room: this shows throughput, not how it feels to wait."
    if pace.name == "dependent":
        text = ("Each I/O was issued when what it had waited for was done, and as long after that as its program had "
                "thought. This shows how long the application would take on this drive.")
        if pace.dependencies == "inferred":
            text += (" The trace did not observe what waited for what: it was inferred from times alone, and may hold "
                     "I/Os back that nothing held back.")
    elif pace.name == "scaled":
        text = (f"The I/Os were issued at the times of the trace divided by {pace.factor or 0:g}, whether or not "
                "the drive kept up. This shows how the drive responds under this pattern at another intensity.")
    else:
        text = ("The I/Os were issued at the times of the trace, whether or not the drive kept up. This shows how the "
                "drive responds under this pattern; it does not show how long the application would take to load, "
                "since a faster drive merely idles more.")
    if idle.name != "original":
        text += " With idle time removed, the drive has less time to recover: do not hold these against the other pace."
    return text


def _pace_order(measured: Measured) -> list[int]:
    """Captured, original timing, then what changes it more and more; runs of one pace keep their order."""
    run = measured.account
    rank = {"original": 0, "dependent": 1, "scaled": 2, "depth": 4}.get(run.pace.name, 3)
    return [measured.is_run, rank, run.idle.name != "original", run.idle.name == "none", -(run.idle.cap_ns or 0),
            bool(run.without or run.background)]


def condition_of(measured: Measured) -> Condition:
    return Condition.of(measured.metadata, measured.path)


def _section_key(measured: Measured) -> _Key:
    return condition_of(measured).of_role(Role.APART)


def _entry_key(measured: Measured) -> _Key:
    """Equal for repetitions."""
    return (*_drive_key(measured), *condition_of(measured).of_role(Role.SAID))


def _drive_key(measured: Measured) -> _Key:
    disk = drive(measured)
    return (label(measured), disk.get("model"), disk.get("firmware"), disk.get("logical_block_bytes"),
            *_units(measured))


def _units(measured: Measured) -> list[str]:
    account = measured.account
    return drive_units(map(dict, account.drives) if account.drives else [drive(measured)], account.emulated)


def _document(kind: str, measured: list[Measured], content: Document) -> Document:
    return {"version": VERSION, "kind": kind, "blkreel": __version__,
            "parameters": {"burst_gap_ns": measured[0].partial.gap_ns}, **content}
