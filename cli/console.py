"""Tables on stdout: where who reads it has ended, that is told as of any other output."""

import errno
import os

import rich.console


class Console(rich.console.Console):
    def on_broken_pipe(self) -> None:
        """Raises BrokenPipeError, from which main() makes the exit code; rich would end with 1, as failures do."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
