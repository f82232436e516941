"""Which charts stand in a section, and in what order."""


def section_exhibits(section, prefix, order, catalogue=None):
    """All charts of a section of a comparison behind its rankings."""
    return []


def over_time_exhibits(section, prefix, order):
    return []


def latency_exhibits(section, prefix, order):
    return []


def honesty_exhibits(section, prefix, order):
    return []


def fingerprint_exhibits(section, prefix):
    return []
