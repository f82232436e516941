"""Power from any program that prints lines of `seconds watts`."""

import math
import os
import signal
import subprocess
import tempfile
import threading
import time
from array import array

import numpy as np

from .power_samples import UNIX_SINCE_S, ClockPairs, PowerSamples, is_unix, tidied
from .series import GAP_INTERVALS

_FIRST_LINE_S = 3.0
_LINE_BYTES = 65536
_END_S = 2.0
_SILENT_NS = 2 * 10**9

# Its standard input ends when this process does, however it dies, and then all of the session ends.
_GUARDED = """exec 3<&0 </dev/null
(cat; kill -TERM 0) <&3 >/dev/null 2>&1 &
exec 3<&-
sh -c "$1"
code=$?
kill $!
exit $code"""


class PowerCommand:
    """Runs the program in a shell and a session of its own, and takes its lines as they come.

    Its seconds are those since 1970, or of any clock of its own: then the line that came with the least delay tells
    where that clock stands. take(monotonic_ns, watts) gets each sample for the spool, by what is known of that so far.
    """

    def __init__(self, command: str, take):
        self.command = command
        self._take = take
        self._arrived_ns, self._seconds, self._watts = array("q"), array("d"), array("d")
        self._rubbish, self._first_rubbish = 0, ""
        self._offset_ns: int | None = None
        self._ended = ""
        self._first = threading.Event()
        self._stopping = False
        self._process = self._thread = self._complaint = None

    def begin(self) -> None:
        """Start it, and wait a moment for its first line, so that a run's first second is measured, too."""
        self._complaint = tempfile.TemporaryFile()
        # A session of its own: Ctrl-C on the terminal ends the replay in order, and this after it.
        self._process = subprocess.Popen(["/bin/sh", "-c", _GUARDED, "sh", self.command], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=self._complaint, start_new_session=True)
        self._thread = threading.Thread(target=self._read, name="power command", daemon=True)
        self._thread.start()
        self._first.wait(_FIRST_LINE_S)

    def end(self) -> None:
        """Stop it and all that it started; what it printed until then is kept."""
        if self._process is None:
            return
        self._wait_for_one_more()
        self._stopping = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
            except OSError:
                pass
            self._thread.join(_END_S)
            if not self._thread.is_alive():
                break
        self._process.wait()
        self._process.stdin.close()
        self._complaint.close()

    def result(self, pairs: ClockPairs) -> PowerSamples:
        """All of it on CLOCK_MONOTONIC. Where the program fell silent before the last pair, the rest is a gap."""
        notes, end_ns = [], pairs.last[0]
        if self._rubbish:
            notes.append(f"lines that are not `seconds watts`: {self._rubbish:,}, the first: {self._first_rubbish!r}")
        if self._ended:
            notes.append(self._ended)
        seconds = np.array(self._seconds)
        if not len(seconds):
            return PowerSamples(np.empty(0, np.int64), seconds, [], notes or ["the program printed nothing"])
        found = tidied(_on_our_clock(np.array(self._arrived_ns), seconds, pairs), np.array(self._watts), notes)
        last_ns = int(found.time_ns[-1])
        usual_ns = float(np.median(np.diff(found.time_ns))) if len(found.time_ns) > 1 else 0.0
        if end_ns - last_ns > (0 if self._ended else max(GAP_INTERVALS * usual_ns, _SILENT_NS)):
            found.gaps.append((last_ns, end_ns))
            if not self._ended:
                found.notes.append(f"it printed nothing any more for the last {(end_ns - last_ns) / 1e9:.1f} s")
        return found

    def _wait_for_one_more(self):
        """A curve ends with its last sample, and the run's last moments are part of it."""
        count = len(self._seconds)
        apart_s = float(np.median(np.diff(self._seconds[-20:]))) if count > 1 else 0.0
        deadline = time.monotonic() + min(max(1.5 * apart_s, 0.0), _END_S)
        while len(self._seconds) == count and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)

    def _read(self):
        rest = b""
        with self._process.stdout as pipe:
            while data := os.read(pipe.fileno(), _LINE_BYTES):
                now_ns = time.monotonic_ns()
                *lines, rest = (rest + data).split(b"\n")
                self._lines(lines, now_ns)
                if len(rest) > _LINE_BYTES:
                    self._refuse(rest)
                    rest = b""
        code = self._process.wait()
        if not self._stopping:
            self._complaint.seek(0)
            said = self._complaint.read().decode(errors="replace").strip().splitlines()
            how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
            self._ended = f"the program {how} before the run did{f': {said[-1][:200]}' if said else ''}"
        self._first.set()

    def _lines(self, lines, now_ns):
        good = []
        for line in lines:
            values = parse_line(line)
            if values is not None:
                good.append(values)
            elif line.strip():
                self._refuse(line)
        for seconds, watts in good:
            self._arrived_ns.append(now_ns)
            self._seconds.append(seconds)
            self._watts.append(watts)
        for seconds, watts in good:
            self._take(self._placed(seconds, now_ns, good), watts)
            self._first.set()

    def _placed(self, seconds, now_ns, good):
        if is_unix(seconds):
            return now_ns - time.time_ns() + int(seconds * 1e9)
        latest = now_ns - int(max(one for one, _ in good if not is_unix(one)) * 1e9)
        self._offset_ns = latest if self._offset_ns is None else min(self._offset_ns, latest)
        return self._offset_ns + int(seconds * 1e9)

    def _refuse(self, line):
        self._rubbish += 1
        self._first_rubbish = self._first_rubbish or line[:60].decode(errors="replace")


def _on_our_clock(arrived_ns, seconds, pairs):
    unix = seconds >= UNIX_SINCE_S
    time_ns = np.empty(len(seconds), np.int64)
    time_ns[unix] = pairs.monotonic_ns(np.round(seconds[unix] * 1e9).astype(np.int64))
    own = np.round(seconds[~unix] * 1e9).astype(np.int64)
    if len(own):
        # No line comes before it was made, and the quickest of them shows by how much the clocks differ.
        time_ns[~unix] = own + np.min(arrived_ns[~unix] - own)
    return time_ns


def parse_line(line: bytes) -> tuple[float, float] | None:
    """Seconds and watts; None for anything else. A comma, a semicolon or a tab may stand between them."""
    words = line.decode("ascii", "replace").replace(",", " ").replace(";", " ").split()
    if len(words) != 2:
        return None
    try:
        seconds, watts = float(words[0]), float(words[1])
    except ValueError:
        return None
    return (seconds, watts) if math.isfinite(seconds) and math.isfinite(watts) and abs(seconds) < 1e11 else None
