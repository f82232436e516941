"""Run the steps of the demo with the `blkreel` command of this installation."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

from blkreel.cli.options.types import NOT_TRUSTWORTHY
from blkreel.common.errors import BlkreelError

from .workspace import Workspace

# -P: do not import a directory `blkreel` of the current directory. The name of this process, for printed commands.
BLKREEL = [sys.executable, "-P", "-c",
            f"import sys; sys.argv[0] = {sys.argv[0]!r}; from blkreel.cli.main import main; main()"]
_STOP_S = 20.0
_ERROR_LINES = 12


class Steps:
    """Numbers and runs steps. warnings: printed again at the end of the demo. trustworthy: whether no step exited
    with NOT_TRUSTWORTHY."""

    def __init__(self, workspace: Workspace, total: int):
        self._workspace, self._total, self._done = workspace, total, 0
        self._heading = ""
        self.warnings: list[str] = []
        self.trustworthy = True

    def begin(self, heading: str) -> None:
        self._done += 1
        self._heading = f"{self._done}/{self._total} {heading}"
        print(f"{self._heading} ...", file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        print(f"    {line}", file=sys.stderr, flush=True)

    def blkreel(self, *arguments: object, stdout: IO[str] | None = None,
                describe_warning: Callable[[], str] = lambda: "done, but not trustworthy") -> None:
        """Run `blkreel ARGUMENTS` and print its output indented, except stdout if it goes to a file.

        Exit code 3 adds a warning, unless describe_warning() is "". Raises BlkreelError for any other failure.
        """
        command = [*BLKREEL, *map(str, arguments)]
        last_lines: deque[str] = deque(maxlen=_ERROR_LINES)
        # In its own session, so that Ctrl-C reaches only the demo, which then ends the step in order.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout or subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace", env=self._workspace.environment,
                                   start_new_session=True)
        readers = [threading.Thread(target=self._show, args=(pipe, lines), daemon=True)
                   for pipe, lines in ((process.stdout, deque[str](maxlen=0)), (process.stderr, last_lines)) if pipe]
        try:
            for reader in readers:
                reader.start()
            process.wait()
            for reader in readers:
                reader.join(timeout=1)  # a surviving child of the command may hold the pipe open
        finally:
            end(process)
        if process.returncode not in (0, NOT_TRUSTWORTHY):
            raise BlkreelError(f"the demo failed at step {self._heading}: `blkreel {' '.join(map(str, arguments))}` "
                               f"exited with {process.returncode}:\n    " + "\n    ".join(last_lines))
        if process.returncode == NOT_TRUSTWORTHY:
            self.trustworthy = False
            if text := describe_warning():
                self.warn(text)

    def warn(self, text: str) -> None:
        self.warnings.append(f"{self._heading}: {text}")

    def _show(self, pipe: IO[str], lines: deque[str]) -> None:
        for line in pipe:
            lines.append(line.rstrip())
            self.say(line.rstrip())


def end(process: subprocess.Popen[Any]) -> None:
    """End a command that runs in a session of its own, in order, after a time by force."""
    if process.poll() is not None:
        return
    # To the whole group, as a terminal does, since a capture does not forward it to its command.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    deadline_s = time.monotonic() + _STOP_S
    while process.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.05)
    if process.poll() is None:
        process.kill()
        process.wait()
