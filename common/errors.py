"""Errors for the user, on one line: what failed, why, and the command that fixes it. Suggestions for misspelled names.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_MIN_SIMILARITY = 0.7
_SUGGESTED = 2  # at most


class BlkreelError(Exception):
    """A failure that the user can fix.

    message: `what failed: why`. remedy: the command that fixes it. exit_code: of the command (docs/architecture.md).
    code: names the kind of error in the document of --json.
    """

    exit_code = 1
    code = "failed"

    def __init__(self, message: str, remedy: str | None = None):
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class UsageError(BlkreelError):
    """An invalid argument: an unknown unit, a device that does not exist."""

    exit_code = 2
    code = "usage"


class SafetyError(BlkreelError):
    """Refused: could destroy data, or leak it, without the user's consent."""

    exit_code = 5
    code = "refused"


class TraceError(BlkreelError):
    """A file that is not a complete, valid trace."""

    code = "invalid_trace"


class OutputExists(BlkreelError):
    """The output exists, and --force was not given."""

    code = "output_exists"

    def __init__(self, path: object):
        super().__init__(f"{path} exists", "name another output, or add --force to overwrite it")


@contextmanager
def os_errors(kind: type[BlkreelError], failure: object, remedy: str | None = None) -> Iterator[None]:
    """Turns an OSError into an error of this kind: `failure: why`."""
    try:
        yield
    except OSError as error:
        raise kind(f"{failure}: {error.strerror or error}", remedy) from error


def did_you_mean(name: str, names: Iterable[str], otherwise: str) -> str:
    """The remedy for an unknown name: `did you mean 'client'?`, or `otherwise` if no name is similar."""
    import difflib  # only a misspelled name needs it

    by_lower = {candidate.lower(): candidate for candidate in names}
    similar = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, _SUGGESTED,
                                                                        _MIN_SIMILARITY)]
    if len(name) > 2:
        similar += [candidate for lower, candidate in by_lower.items()
                    if name.lower() in lower and candidate not in similar]
    if not similar:
        return otherwise
    return f"did you mean {' or '.join(map(repr, similar[:_SUGGESTED]))}?"


def choice_remedy(text: str, names: Iterable[str], choices: str) -> str:
    """The remedy for an invalid value of an option that takes a name or NAME=VALUE. choices: all, in words."""
    return f"use {choices}" if "=" in text else did_you_mean(text, names, f"use {choices}")
