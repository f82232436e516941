"""Running the demo's steps: a heading for each, and the `blkreel` command of this very installation for most."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress

from blkreel.traces.errors import BlkreelError

from .place import Place

NOT_TRUSTWORTHY = 3
# -P: a directory `blkreel` where the user stands must not be taken for the package.
_BLKREEL = [sys.executable, "-P", "-c", "from blkreel.cli.main import main; main()"]
_STOP_S = 10.0
_KEPT_LINES = 12


class Steps:
    """Counts and runs steps. `warnings` gathers what the end of the demo has to repeat."""

    def __init__(self, place: Place, total: int):
        self._place, self._total, self._done = place, total, 0
        self._heading = ""
        self.warnings: list[str] = []

    def begin(self, heading: str) -> None:
        self._done += 1
        self._heading = f"{self._done}/{self._total} {heading}"
        print(f"{self._heading} ...", file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        print(f"    {line}", file=sys.stderr, flush=True)

    def blkreel(self, *arguments, stdout=None, why_doubted=lambda: "done, but not trustworthy") -> None:
        """Run `blkreel ARGUMENTS`. Done but not trustworthy is a warning, any other failure a BlkreelError.

        What the command says is shown indented, its results too unless `stdout` takes them.
        """
        command = [*_BLKREEL, *map(str, arguments)]
        last_lines = deque(maxlen=_KEPT_LINES)
        # A session of its own: Ctrl-C reaches the demo alone, which ends its step in order.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout or subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace", env=self._place.environment,
                                   start_new_session=True)
        # stdout is shown, but not kept: an error's message is on stderr.
        readers = [threading.Thread(target=self._show, args=(pipe, kept), daemon=True)
                   for pipe, kept in ((process.stdout, deque(maxlen=0)), (process.stderr, last_lines)) if pipe]
        try:
            for reader in readers:
                reader.start()
            process.wait()
            for reader in readers:
                reader.join(timeout=1)  # a process that outlives the command holds the pipe open
        finally:
            _end(process)
        if process.returncode not in (0, NOT_TRUSTWORTHY):
            raise BlkreelError(f"the demo failed at step {self._heading}: `blkreel {' '.join(map(str, arguments))}` "
                               f"ended with {process.returncode}:\n    " + "\n    ".join(last_lines))
        if process.returncode == NOT_TRUSTWORTHY:
            self.warn(why_doubted())

    def warn(self, text: str) -> None:
        self.warnings.append(f"{self._heading}: {text}")

    def _show(self, pipe, kept):
        for line in pipe:
            kept.append(line.rstrip())
            self.say(line.rstrip())


def _end(process):
    if process.poll() is not None:
        return
    # To all of its group, as a terminal does: a capture leaves it to the terminal to reach its command.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    end = time.monotonic() + _STOP_S
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    if process.poll() is None:
        process.kill()
        process.wait()
