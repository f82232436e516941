"""What takes another pass over the rows: I/O by I/O comparisons, and what writes do to reads. Only for a page.

What was found is kept beside the traces as their figures are (scale/kept.py), so that a page of the same traces reads
no row for it: of a run what writes do to its reads; of a pair, beside the first run of the other drive, what the base
and it are to each other.
"""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

from blkreel.traces.errors import TraceError
from blkreel.traces.footer import read_footer
from blkreel.traces.places import Url
from blkreel.traces.reader import open_trace

from . import interference_file
from . import paired as pairing
from .interference import WINDOWS_NS, interference
from .paired import of_one_trace, paired, window_of
from .scale.kept import Keeper

MOST_ROWS = 20_000_000  # to be read for a page; about a minute
MOST_ENTRIES = 40  # of a section: a larger one is a fleet, which is looked at by its figures
_LOOKS_AT_ONCE = 16


@dataclass(frozen=True)
class OfRun:
    """Key of what writes do to the reads of one trace or run."""

    fingerprint: str
    name = "interference"

    def header(self) -> dict:
        return {"interference": interference_file.VERSION, "windows_ns": list(WINDOWS_NS),
                "fingerprint": self.fingerprint}

    def load(self, content: bytes):
        return interference_file.load(content)


@dataclass(frozen=True)
class OfPair:
    """Key of two drives I/O by I/O, by the fingerprints of their runs."""

    base: tuple[str, ...]
    other: tuple[str, ...]
    window_rows: int

    @property
    def name(self) -> str:
        """Pairs with another base, or of more runs, are kept beside each other."""
        return f"paired-{hashlib.sha256(' '.join([*self.base, *self.other[1:]]).encode()).hexdigest()[:12]}"

    def header(self) -> dict:
        return {"paired": pairing.VERSION, "window_rows": self.window_rows, "base": list(self.base),
                "other": list(self.other)}

    def load(self, content: bytes) -> dict:
        return json.loads(content)


def read_again(sections, far: bool = False, most_rows: int = MOST_ROWS, marked: str | None = None,
               keep: bool = False) -> None:
    """Put `paired` and `interference` to the documents of sections (document.Section). Raises TraceError.

    keep: look for what was kept, and keep what is found. far: the rows are not on this machine. Then, or where more
    than most_rows were to be read, or in larger sections, what is not kept is left out and says so: a fleet is
    compared by its partial results, and its rows stay where they are. marked: label of the drive under test, which the
    others stand against; without it, or where it is not, the first.
    """
    entries = [entry for section in sections for entry in section.entries]
    runs = [each for entry in entries for each in entry.measured]
    bases = [next((entry for entry in section.entries if entry.shown["label"] == marked), section.entries[0])
             for section in sections]
    pairs = [(base, other) for section, base in zip(sections, bases, strict=True) for other in section.entries
             if other is not base]
    keeper = Keeper(keep)
    found, told, why = {}, {}, ""
    if any(len(section.entries) > MOST_ENTRIES for section in sections):
        why = f"left out: it takes each row, and a comparison of more than {MOST_ENTRIES} drives reads figures only"
    else:
        found, told = _kept(runs, pairs, keeper)
        why = _why_not(runs, pairs, found, told, far, most_rows)
    for entry in entries:
        entry.shown["interference"] = _interference(entry, found, why, keeper)
    for base, other in pairs:
        if not why and id(other) not in told:
            told[id(other)] = _paired(base.measured, other.measured, keeper)
    for section, base in zip(sections, bases, strict=True):
        section.shown["paired"] = [{"base": base.shown["label"], "other": other.shown["label"],
                                    **told.get(id(other), {"why": why})}
                                   for other in section.entries if other is not base]


def _kept(runs, pairs, keeper):
    """({id of a run: Interference}, {id of the other entry of a pair: its document}) of what is kept, and of pairs of
    which nothing has to be read."""

    def look(place, key):
        return keeper.look(place.records, place.rows, key) if key is not None else None

    remote = any(isinstance(each.records, Url) for each in runs)
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) if remote else nullcontext() as threads:
        each_of = threads.map if remote else map
        found = list(each_of(lambda each: look(each, _of_run(each)), runs))
        told = list(each_of(lambda pair: look(pair[1].measured[0], _of_pair(pair[0].measured, pair[1].measured))
                            if of_one_trace(pair[0].measured, pair[1].measured)
                            else paired(pair[0].measured, pair[1].measured), pairs))
    return ({id(each): one for each, one in zip(runs, found, strict=True) if one is not None},
            {id(other): one for (_, other), one in zip(pairs, told, strict=True) if one is not None})


def _why_not(runs, pairs, found, told, far, most_rows):
    """Why what is not kept is not read; empty where it is."""
    lacking = {id(each): each for each in runs if id(each) not in found}
    for base, other in pairs:
        if id(other) not in told:
            lacking |= {id(each): each for each in [*base.measured, *other.measured]}
    rows = sum(each.rows for each in lacking.values())
    if lacking and (far or any("://" in str(each.path) for each in runs)):
        return "left out: it takes each row, and rows that are elsewhere stay there; copy the runs here to see it"
    if rows > most_rows:
        return f"left out: {rows:,} I/Os are more than the {most_rows:,} that a page reads once more"
    return ""


def _interference(entry, found, why, keeper):
    if why and any(id(each) not in found for each in entry.measured):
        return {"why": why}
    pooled = None
    for each in entry.measured:
        one = found[id(each)] if id(each) in found else _read(each, keeper)
        pooled = one if pooled is None else pooled + one
    if not pooled.reads or not pooled.writes:
        return {"why": "no reads" if not pooled.reads else "no writes"}
    return pooled.shown()


def _read(each, keeper):
    found = interference(open_trace(each.path))
    _check_same(each)
    key = _of_run(each)
    if key is not None:
        keeper.keep(each.records, each.rows, key, lambda: interference_file.dump(found))
    return found


def _paired(base, other, keeper):
    shown = paired(base, other)
    for each in [*base, *other]:
        _check_same(each)
    key = _of_pair(base, other)
    if key is not None:
        keeper.keep(other[0].records, other[0].rows, key, lambda: json.dumps(shown).encode())
    return shown


def _of_run(each):
    return None if each.fingerprint is None else OfRun(each.fingerprint)


def _of_pair(base, other):
    fingerprints = [tuple(each.fingerprint for each in side) for side in (base, other)]
    return None if None in [*fingerprints[0], *fingerprints[1]] else OfPair(*fingerprints, window_of(base, other))


def _check_same(each):
    """Its rows were read by its path, which may have become another file's since its figures were taken."""
    if each.fingerprint is not None and read_footer(each.records).fingerprint != each.fingerprint:
        raise TraceError(f"{each.records} changed while it was read", "wait until it is whole, then the same command")
