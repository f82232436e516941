"""Why a guest cannot run: for want of something that this machine does not have, or because it went wrong."""


class CannotRun(Exception):
    """This machine lacks what a guest needs. Its text ends with the command that mends it."""


class RigError(Exception):
    """Preparing or booting went wrong. Its text ends with the command that mends it or shows more."""
