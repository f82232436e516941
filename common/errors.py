"""Errors for the user, on one line: what failed, why, and the command that fixes it."""


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
