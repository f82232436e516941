"""Generated texts of block events in many forms, against a parser of a few lines: no line is lost in silence."""

import random
import re

import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st

from blkreel.traces.format.schema import OP_NAMES
from blkreel.traces.importers import ImportOptions
from blkreel.traces.importers.pipeline import Records
from blkreel.traces.importers.tools.blkparse import Blkparse
from blkreel.traces.importers.tools.ftrace import Ftrace

FTRACE_FLAGS = ["d..1.", "....", "d.h2.", "d..h1..", "D.h3.1..", "dNh2....."]
OPERATIONS = {"R": "read", "RA": "read", "RSM": "read", "W": "write", "WS": "write", "WFS": "write", "D": "discard"}
NAMES = ["fio", "my app", 'say "hi"', "a,b;c", "kworker/u8:3", "Größe", "[x] y", "#1"]
DEVICES = ["8,0", "259,3"]
NOISE = {"ftrace": ["# tracer: nop", "CPU:2 [LOST 1,234 EVENTS]",
                    "  fio-3 [001] d..1. 5000.000001: sched_switch: prev=a next=b"],
         "blkparse": ["  8,0    1        9     0.000100000     0  U   N [fio] 1", "CPU0 (sda):",
                      " Reads Queued: 1, 4KiB"]}
# An event of either form, as a person finds it: time, name of the event, device, operation, sector, number of sectors.
EVENTS = {
    "ftrace": re.compile(r" (?P<time>[\d.]+): +(block:)?(?P<what>block_rq_issue|block_rq_complete): (?P<device>\S+) "
                         r"(?P<op>[A-Z]+) (\d+ )?\(\) (?P<sector>\d+) \+ (?P<count>\d+) .*\[.*\]$"),
    "blkparse": re.compile(r"^\s*(?P<device>\d+,\d+)\s+\d+\s+\d+\s+(?P<time>\d+\.\d+)\s+\d+\s+(?P<what>[DC])\s+"
                           r"(?P<op>[A-Z]+)\s+(?P<sector>\d+) \+ (?P<count>\d+) \[.*\]$")}


class Text:
    """One text: lines in the order of the file, and which of them is cut."""

    def __init__(self, seed):
        self._random = random.Random(seed)
        self.form = self._random.choice(["blkparse", "ftrace", "perf", "trace-cmd -l", "ns"])
        self.kind = "blkparse" if self.form == "blkparse" else "ftrace"
        events = self._events()
        # CPUs are written one after the other, up to 5 ms out of order.
        events.sort(key=lambda event: event[0] + self._random.randrange(5_000_000) * self._random.choice([0, 1]))
        lines = [self._line(*event) for event in events]
        for noise in self._random.sample(NOISE[self.kind], self._random.randrange(3)):
            lines.insert(self._random.randrange(len(lines) + 1), noise)
        self.lines = lines
        self.line_end = self._random.choice(["\n", "\n", "\r\n"])
        data = self.line_end.join([*lines, ""])
        # Cut within the last line.
        self.is_cut = self._random.randrange(4) == 0
        cut = len(lines[-1]) - self._random.randrange(1, len(lines[-1])) if self.is_cut else 0
        self.data = (self.line_end.join([*lines[:-1], lines[-1][:cut]]) if self.is_cut else data).encode()

    def _events(self):
        """(time_ns, what, number, thread) of I/Os on extents of their own; some lack one of both events."""
        random_, events, at_ns = self._random, [], 5_000_000_000
        self.ios = []
        for number in range(random_.randrange(1, 25)):
            at_ns += random_.randrange(1000, 3_000_000, 1000)
            latency_ns = random_.randrange(10_000, 20_000_000, 1000)
            self.ios.append((random_.choice(DEVICES), random_.choice(list(OPERATIONS)), 1000 * number,
                             random_.choice([8, 16, 256])))
            has = random_.choice(["both"] * 8 + ["issue", "completion"])
            events += [(at_ns, "issue", number)] * (has != "completion")
            events += [(at_ns + latency_ns, "complete", number)] * (has != "issue")
        return events

    def _line(self, time_ns, what, number):
        device, op, sector, count = self.ios[number]
        random_ = self._random
        name, cpu, tid = NAMES[number % len(NAMES)], number % 4, 4000 + number
        if self.kind == "blkparse":
            letter, tail = ("D", f"[{name}]") if what == "issue" else ("C", "[0]")
            return (f"{random_.choice(['', '  '])}{device:>6} {cpu:>4} {number:>8} {time_ns / 1e9:>15.9f} {tid:>5}  "
                    f"{letter}  {op:>2} {sector} + {count} {tail}")
        priority = random_.choice(["", "none,0,0 "])
        size = f"{count * 512} " if what == "issue" else ""
        tail = f"[{name}]" if what == "issue" else "[0]"
        event = f"block_rq_{what}: {device} {op} {size}() {sector} + {count} {priority}{tail}"
        seconds = f"{time_ns // 10**9}.{time_ns % 10**9 // 1000:06}"
        flags = random_.choice(FTRACE_FLAGS)
        blanks = random_.choice([" ", "  ", "   "])
        if self.form == "perf":
            return f"{name:>16} {tid} [{cpu:03}]{blanks}{seconds}:{blanks}block:{event}"
        if self.form == "trace-cmd -l":
            return f"{blanks}{name}-{tid}{blanks}{cpu}{flags} {seconds}: {event}"
        if self.form == "ns":
            return f"{blanks}{name}-{tid} [{cpu:03}] {time_ns}: {event}"
        return f"{blanks}{name}-{tid}{blanks}[{cpu:03}] {flags}{blanks}{seconds}: {event}"

    def events(self):
        """(events, cut event): of the lines as an independent parser finds them, in order of time."""
        found = []
        for line in self.lines[:-1] if self.is_cut else self.lines:
            if match := EVENTS[self.kind].search(line):
                time = match["time"]
                time_ns = round(float(time) * 10**9) if "." in time else int(time)
                found.append((time_ns, match["what"], match["device"].replace(",", ":"), match["op"],
                              int(match["sector"]), int(match["count"])))
        return sorted(found, key=lambda event: event[0])

    def rows(self):
        """Rows as pairs of events give them; latency -1 without a completion."""
        issued = {}
        for time_ns, what, device, op, sector, count in self.events():
            if what in ("D", "block_rq_issue"):
                issued[device, sector] = [time_ns, -1, OPERATIONS[op], 512 * sector, 512 * count, device]
            elif (device, sector) in issued:
                issued[device, sector][1] = time_ns - issued[device, sector][0]
        return sorted(map(tuple, issued.values()))


@cases(60)
@given(st.integers(0, 2**32))
def test_every_form_gives_the_rows_of_an_independent_parser(tmp_path, seed):
    text = Text(seed)
    path = tmp_path / "events.txt"
    path.write_bytes(text.data)
    format_ = Blkparse() if text.kind == "blkparse" else Ftrace()
    if len(text.lines) > 10:
        assert format_.likeness(text.data) >= 0.8
    if not any(what in ("D", "block_rq_issue") for _, what, *_ in text.events()):
        return  # refused as a recording without issues, or without an I/O
    records = Records(format_, [path], ImportOptions(max_rejected=1.0))
    parts = list(records.columns())
    names = {number: name.decode() for name, number in records.devices.items()}
    columns = ("submit_ns", "latency_ns", "op", "offset_bytes", "length_bytes", "device")
    rows = sorted((submit, latency, OP_NAMES[op], offset, length, names[device]) for part in parts
                  for submit, latency, op, offset, length, device in
                  zip(*(part[name].tolist() for name in columns), strict=True))
    # The I/O of a line that is cut may be read, or not.
    expected, of_cut = text.rows(), cut_place(text)
    assert [row for row in rows if row[3] != of_cut] == [row for row in expected if row[3] != of_cut]
    account = records.account
    assert account.records == account.rows + account.rejected_records + account.ignored_records
    whole = len(text.events()) + sum("sched_switch" in line or " U   N " in line for line in text.lines[:-1])
    assert whole <= account.records <= whole + 1
    assert account.rejected_records <= text.is_cut


def cut_place(text):
    """The offset in bytes of the I/O of a line that is cut; None without one."""
    match = EVENTS[text.kind].search(text.lines[-1]) if text.is_cut else None
    return int(match["sector"]) * 512 if match else None


@pytest.mark.parametrize("letters, op", [
    ("ZA", "zone_append"), ("FZAFS", "zone_append"), ("ZR", "zone_reset"), ("ZRS", "zone_reset"),
    ("ZRA", "zone_reset_all"), ("ZF", "zone_finish"), ("ZO", "zone_open"), ("ZC", "zone_close"),
    ("WZS", "write_zeroes")])
def test_letters_of_zones(tmp_path, letters, op):
    """As the kernel writes them since Linux 6.17. An append completes behind the start of its zone."""
    sector, count = 8192, 8 if op in ("zone_append", "write_zeroes") else 0
    done = 8200 if op == "zone_append" else sector
    path = tmp_path / "events.txt"
    issue = f"{letters} 0 () {sector} + {count} none,0,0 [a]"
    completion = f"{letters} () {done} + {count} none,0,0 [0]"
    path.write_text(f"  a-1 [000] ..... 10.000001: block_rq_issue: 259,0 {issue}\n"
                    f"  a-1 [000] ..... 10.000003: block_rq_complete: 259,0 {completion}\n")
    (part,) = Records(Ftrace(), [path], ImportOptions()).columns()
    row = {name: values.tolist() for name, values in part.items()}
    assert [OP_NAMES[code] for code in row["op"]] == [op]
    assert (row["offset_bytes"], row["length_bytes"], row["latency_ns"]) == ([512 * done], [512 * count], [2000])
