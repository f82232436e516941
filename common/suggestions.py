"""Suggestions for a misspelled name."""

from collections.abc import Iterable

_MIN_SIMILARITY = 0.7
_MOST = 2


def did_you_mean(name: str, names: Iterable[str], otherwise: str) -> str:
    """The remedy for an unknown name: `did you mean 'client'?`, or `otherwise` if no name is similar."""
    import difflib  # only a misspelled name needs it

    by_lower = {known.lower(): known for known in names}
    similar = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, _MOST, _MIN_SIMILARITY)]
    if len(name) > 2:
        similar += [known for lower, known in by_lower.items() if name.lower() in lower and known not in similar]
    if not similar:
        return otherwise
    return f"did you mean {' or '.join(map(repr, similar[:_MOST]))}?"


def choice_remedy(text: str, names: Iterable[str], choices: str) -> str:
    """The remedy for an invalid value of an option that takes a name or NAME=VALUE. choices: all, in words."""
    return f"use {choices}" if "=" in text else did_you_mean(text, names, f"use {choices}")
