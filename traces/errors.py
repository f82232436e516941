"""Errors a user can mend: what is wrong, where, and the command that mends it, on one line."""


class BlkreelError(Exception):
    """A failure with a remedy. `exit_code` is what the command ends with (docs/architecture.md)."""

    exit_code = 1

    def __init__(self, message: str, remedy: str | None = None):
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class UsageError(BlkreelError):
    """The words of the call are wrong: a unit, a device that does not exist, a pace."""

    exit_code = 2


class SafetyError(BlkreelError):
    """Refused, because going on could destroy data that nobody named and confirmed."""

    exit_code = 5


class TraceError(BlkreelError):
    """A file that is not a whole, sound trace."""


class OutputExists(BlkreelError):
    """The output is already there, and nothing is overwritten unasked."""

    def __init__(self, path):
        super().__init__(f"{path} exists", "name another output, or add --force to overwrite it")
