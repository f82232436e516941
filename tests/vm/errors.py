"""Errors of the guest runner."""


class CannotRun(Exception):
    """A requirement is missing on this machine. The message ends with the command that fixes it."""


class RigError(Exception):
    """Preparing or booting a guest failed. The message ends with a command that fixes it or shows details."""
