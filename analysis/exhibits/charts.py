"""Which charts stand in a section, and in what order."""

from .efficiency import efficiency
from .fingerprint import fingerprint
from .iops import iops
from .lateness import lateness
from .tails import tails
from .timeline import timeline
from .value import value


def section_exhibits(section, prefix: str, order: list[str], catalogue=None) -> list:
    """The charts of a section of a comparison behind its rankings. order: all labels of the page, as listed."""
    entries = section.entries
    return _there([timeline(entries, f"{prefix}timeline", order), *latency_exhibits(section, prefix, order),
                   *honesty_exhibits(section, prefix, order), efficiency(entries, f"{prefix}efficiency", order),
                   value(entries, f"{prefix}value", order, catalogue), *fingerprint(entries, prefix)])


def over_time_exhibits(section, prefix, order):
    """Of a run or a trace alone."""
    entry = section.entries[0]
    return _there([timeline([entry], f"{prefix}timeline", order), iops(entry, f"{prefix}iops"),
                   efficiency([entry], f"{prefix}efficiency", order)])


def latency_exhibits(section, prefix, order):
    return tails(section.entries, prefix, order)


def honesty_exhibits(section, prefix, order):
    return lateness(section.entries, prefix, order)


def fingerprint_exhibits(section, prefix):
    return fingerprint(section.entries, prefix)


def _there(exhibits):
    return [one for one in exhibits if one]
