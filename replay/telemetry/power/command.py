"""Power from any program that prints lines of `seconds watts`."""

import math
import os
import signal
import subprocess
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

import numpy as np

from .samples import GAP_INTERVALS, UNIX_SINCE_S, ClockPairs, PowerSamples, cleaned

_FIRST_LINE_S = 3.0
_LINE_BYTES = 65536
_END_S = 2.0
_SILENT_NS = 2 * 10**9

# The standard input ends when this process ends, even if it is killed; then the whole session is terminated.
_GUARDED = """exec 3<&0 </dev/null
(cat; kill -TERM 0) <&3 >/dev/null 2>&1 &
exec 3<&-
sh -c "$1"
code=$?
kill $!
exit $code"""


class PowerCommand:
    """Runs the program in a shell and a session of its own, and reads its lines as they come.

    Seconds are since 1970, or of any other clock: then the line that arrived with the least delay aligns the clocks.
    take(monotonic_ns, watts) gets each sample as it comes, by the alignment so far.
    """

    def __init__(self, command: str, take: Callable[[int, float], None]):
        self.command = command
        self._take = take
        self._arrived_ns, self._seconds, self._watts = array("q"), array("d"), array("d")
        self._invalid_lines, self._first_invalid = 0, ""
        self._offset_ns: int | None = None
        self._exit_note = ""
        self._first = threading.Event()
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start it, and wait a limited time for its first line, so that a run's first second is measured."""
        stderr = self._stderr = tempfile.TemporaryFile()
        # In a session of its own Ctrl-C on the terminal does not end it before the replay.
        process = self._process = subprocess.Popen(
            ["/bin/sh", "-c", _GUARDED, "sh", self.command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=stderr, start_new_session=True)
        self._thread = threading.Thread(target=self._read, args=(process, stderr), name="power command", daemon=True)
        self._thread.start()
        self._first.wait(_FIRST_LINE_S)

    def end(self) -> None:
        """Stop it and all processes that it started; the samples so far stay."""
        process, thread = self._process, self._thread
        if process is None or thread is None:
            return
        self._wait_for_next_line(thread)
        self._stopping = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(OSError):
                os.killpg(process.pid, number)
            thread.join(_END_S)
            if not thread.is_alive():
                break
        process.wait()
        for file in (process.stdin, self._stderr):
            if file:
                file.close()

    def result(self, pairs: ClockPairs) -> PowerSamples:
        """All samples on CLOCK_MONOTONIC. If the program fell silent before the last pair, the rest is a gap."""
        notes, end_ns = [], pairs.last[0]
        if self._invalid_lines:
            notes.append(f"{self._invalid_lines:,} lines are not `seconds watts`, the first: {self._first_invalid!r}")
        if self._exit_note:
            notes.append(self._exit_note)
        seconds = np.array(self._seconds)
        if not len(seconds):
            return PowerSamples(np.empty(0, np.int64), seconds, [], notes or ["the program printed nothing"])
        if (seconds >= UNIX_SINCE_S).any():
            notes += pairs.notes
        samples = cleaned(_on_monotonic_clock(np.array(self._arrived_ns), seconds, pairs), np.array(self._watts), notes)
        last_ns = int(samples.time_ns[-1])
        median_ns = float(np.median(np.diff(samples.time_ns))) if len(samples.time_ns) > 1 else 0.0
        if end_ns - last_ns > (0 if self._exit_note else max(GAP_INTERVALS * median_ns, _SILENT_NS)):
            samples.gaps.append((last_ns, end_ns))
            if not self._exit_note:
                samples.notes.append(f"the program printed nothing in the last {(end_ns - last_ns) / 1e9:.1f} s")
        return samples

    def _wait_for_next_line(self, thread: threading.Thread) -> None:
        """The curve ends with its last sample, which must be after the end of the run."""
        count = len(self._seconds)
        interval_s = float(np.median(np.diff(self._seconds[-20:]))) if count > 1 else 0.0
        deadline = time.monotonic() + min(max(1.5 * interval_s, 0.0), _END_S)
        while len(self._seconds) == count and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)

    def _read(self, process: subprocess.Popen[bytes], stderr: IO[bytes]) -> None:
        tail = b""
        assert process.stdout is not None
        with process.stdout as pipe:
            while data := os.read(pipe.fileno(), _LINE_BYTES):
                now_ns = time.monotonic_ns()
                *lines, tail = (tail + data).split(b"\n")
                self._take_lines(lines, now_ns)
                if len(tail) > _LINE_BYTES:
                    self._count_invalid(tail)
                    tail = b""
        code = process.wait()
        if not self._stopping:
            stderr.seek(0)
            errors = stderr.read().decode(errors="replace").strip().splitlines()
            how = f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
            self._exit_note = f"the program {how} before the end of the run{f': {errors[-1][:200]}' if errors else ''}"
        self._first.set()

    def _take_lines(self, lines: Sequence[bytes], now_ns: int) -> None:
        samples = []
        for line in lines:
            sample = parse_line(line)
            if sample is not None:
                samples.append(sample)
            elif line.strip():
                self._count_invalid(line)
        for seconds, watts in samples:
            self._arrived_ns.append(now_ns)
            self._seconds.append(seconds)
            self._watts.append(watts)
        relative = [seconds for seconds, _ in samples if seconds < UNIX_SINCE_S]
        if relative:
            offset_ns = now_ns - int(max(relative) * 1e9)
            self._offset_ns = offset_ns if self._offset_ns is None else min(self._offset_ns, offset_ns)
        for seconds, watts in samples:
            zero_ns = now_ns - time.time_ns() if seconds >= UNIX_SINCE_S else self._offset_ns or 0
            self._take(zero_ns + int(seconds * 1e9), watts)
            self._first.set()

    def _count_invalid(self, line: bytes) -> None:
        self._invalid_lines += 1
        self._first_invalid = self._first_invalid or line[:60].decode(errors="replace")


def _on_monotonic_clock(arrived_ns: np.ndarray, seconds: np.ndarray, pairs: ClockPairs) -> np.ndarray:
    unix = seconds >= UNIX_SINCE_S
    time_ns = np.empty(len(seconds), np.int64)
    time_ns[unix] = pairs.monotonic_ns(np.round(seconds[unix] * 1e9).astype(np.int64))
    relative_ns = np.round(seconds[~unix] * 1e9).astype(np.int64)
    if len(relative_ns):
        # No line arrives before it was printed, so the one with the least delay gives the difference of the clocks.
        time_ns[~unix] = relative_ns + np.min(arrived_ns[~unix] - relative_ns)
    return time_ns


def parse_line(line: bytes) -> tuple[float, float] | None:
    """Seconds and watts, separated by a space, comma, semicolon or tab; None for anything else."""
    words = line.decode("ascii", "replace").replace(",", " ").replace(";", " ").split()
    if len(words) != 2:
        return None
    try:
        seconds, watts = float(words[0]), float(words[1])
    except ValueError:
        return None
    return (seconds, watts) if math.isfinite(seconds) and math.isfinite(watts) and abs(seconds) < 1e11 else None
