"""Which charts stand in a section, and in what order."""

from .efficiency import efficiency
from .fingerprint import fingerprint
from .interference import interference
from .iops import iops
from .lateness import lateness
from .paired import paired, ratios
from .tails import tails
from .timeline import timeline
from .value import value


def section_exhibits(section, prefix: str, order: list[str], catalogue=None, highlight: str | None = None) -> list:
    """The charts of a section of a comparison behind its rankings. order: all labels of the page, as listed."""
    entries = section.entries
    return _there([
        ratios(section.shown, prefix, highlight), timeline(entries, f"{prefix}timeline", order),
        *tails(entries, prefix, order), interference(section.shown["entries"], f"{prefix}interference", order),
        *paired(section.shown, prefix, order), *honesty_exhibits(section, prefix, order),
        efficiency(entries, f"{prefix}efficiency", order), value(entries, f"{prefix}value", order, catalogue),
        *fingerprint(entries, prefix)])


def over_time_exhibits(section, prefix, order):
    """Of a run or a trace alone."""
    entry = section.entries[0]
    return _there([timeline([entry], f"{prefix}timeline", order), iops(entry, f"{prefix}iops"),
                   efficiency([entry], f"{prefix}efficiency", order)])


def latency_exhibits(section, prefix, order):
    """Of a run or a trace alone."""
    return _there([*tails(section.entries, prefix, order),
                   interference(section.shown["entries"], f"{prefix}interference", order)])


def honesty_exhibits(section, prefix, order):
    return lateness(section.entries, prefix, order)


def fingerprint_exhibits(section, prefix):
    return fingerprint(section.entries, prefix)


def _there(exhibits):
    return [one for one in exhibits if one]
