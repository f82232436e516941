"""A small recording of each tracing tool whose output blkreel imports, by the name of the format."""

import random
import struct

from blkreel.traces.format.schema import OPS

RECORDS = 60
_random = random.Random(5)


def _sector():
    return _random.randrange(1 << 30) * 8


def _ios(count=RECORDS):
    """(number, issue in us, latency in us, sector, sectors, write) of I/Os in the order of their issue."""
    return [(number, 1_000_000 + 137 * number, 90 + number % 7 * 300, _sector(), 8 * (1 + number % 16), number % 3 == 0)
            for number in range(count)]


def expected_rows(ios, with_latency=True):
    """What rows_of() gives of the import of these I/Os."""
    return [[1000 * (io[1] - ios[0][1]), 1000 * io[2] if with_latency else -1, 512 * io[3], 512 * io[4],
             OPS["write" if io[5] else "read"]] for io in ios]


def rows_of(frame):
    return frame[["submit_ns", "latency_ns", "offset_bytes", "length_bytes", "op"]].to_numpy().tolist()


def _in_order(events):
    return "".join(f"{text}\n" for _, text in sorted(events, key=lambda event: event[0])).encode()


def wpa(ios, separator=";", point=",", grouping="."):
    """A CSV export of the disk usage table, with the numbers of a locale."""
    def number(value, places=0):
        text = f"{value:,.{places}f}".replace(",", "g").replace(".", point).replace("g", grouping)
        return f'"{text}"' if separator in text else text

    header = ["IO Type", "Priority", "Process (Name)", "Init Time (s)", "Complete Time (s)", "IO Time (µs)", "Size (B)",
              "Min Offset", "Max Offset", "Disk"]
    lines = [separator.join(header)]
    for at, begin_us, latency_us, sector, sectors, write in ios:
        fields = ["Write" if write else "Read", "Normal", "System" if at % 2 else "SearchHost.exe <CortanaUI>",
                  number(begin_us / 1e6, 9), number((begin_us + latency_us) / 1e6, 9), number(latency_us, 3),
                  number(sectors * 512), f"0x{sector * 512:016X}", f"0x{(sector + sectors) * 512 - 1:016X}",
                  str(at % 2)]
        lines.append(separator.join(fields))
    flush = ["Flush", "Normal", "System", number(2, 9), number(2.001, 9), number(1000, 3), "0", "0x" + "F" * 16,
             "0x" + "F" * 16, "0"]
    return "".join(f"{line}\n" for line in [*lines, separator.join(flush)]).encode()


def blkparse(ios):
    events = []
    for at, begin_us, latency_us, sector, sectors, write in ios:
        kind = "WS" if write else "R"
        for action, delay_us, tail in (("Q", -20, "[my app]"), ("G", -19, "[my app]"), ("D", 0, "[kworker/0:1H]"),
                                       ("C", latency_us, "[0]")):
            time_us = begin_us + delay_us
            pid = {"D": 77, "C": 0}.get(action, 4000 + at % 2)
            events.append((time_us, f"  8,{16 * (at % 2):<3d} {at % 4:2d} {at + 1:8d} {time_us / 1e6:15.9f} {pid:5d} "
                                    f"{action:>2} {kind:>3} {sector} + {sectors} {tail}"))
    return _in_order(events)


def ftrace(ios, priority="none,0,0 "):
    events = [(0, "# tracer: nop")]
    for at, begin_us, latency_us, sector, sectors, write in ios:
        kind, extent = "WS" if write else "R", f"{sector} + {sectors} {priority}"
        events.append((begin_us, f"          my app-{4000 + at % 2}    [00{at % 4}] d..1. {begin_us / 1e6:13.6f}: "
                                 f"block_rq_issue: 8,{16 * (at % 2)} {kind} {sectors * 512} () {extent}[my app]"))
        complete_us = begin_us + latency_us
        events.append((complete_us, f"          <idle>-0       [001] d.h1. {complete_us / 1e6:13.6f}: "
                                    f"block_rq_complete: 8,{16 * (at % 2)} {kind} () {extent}[0]"))
    return _in_order(events)


def xperf(ios):
    start = "TimeStamp,     Process Name ( PID),   ThreadID,             IrpPtr"
    extent = ("ByteOffset,     IOSize, ElapsedTime,  DiskNum, IrpFlags, DiskSvcTime, I/O Pri,  VolSnap,"
              "         FileObject, FileName")
    lines = ["BeginHeader",
             f"              DiskRead,  {start},   {extent}", f"             DiskWrite,  {start},   {extent}",
             f"             DiskFlush,  {start},                           ElapsedTime,  DiskNum, IrpFlags",
             f"          DiskReadInit,  {start}", "EndHeader", "OS Version: 10.0.22631, Trace Size: 1024KB"]
    events = []
    for at, begin_us, latency_us, sector, sectors, write in ios:
        kind = "DiskWrite" if write else "DiskRead"
        process = f"my app.exe ({3984 + at % 2:4d})"
        events.append((begin_us + latency_us, (
            f"{kind:>22s}, {begin_us + latency_us:10d}, {process:>23s}, {11844 + at % 2:10d}, 0xffffe288b23f1b20, "
            f"0x{sector * 512:010x}, 0x{sectors * 512:08x}, {latency_us:11d}, {at % 2:8d}, 0x060043, {latency_us:11d}, "
            f"      3, Original, 0xffffe288272d0d20, \"C:\\a, b\\$Mft\"")))
    start = "99000000,             System (   4),          8, 0xffffe288b23f1b20"
    flush = f"             DiskFlush,   {start},                                  500,        0, 0x060043"
    other = f"          DiskReadInit,   {start}"
    return "".join(f"{line}\n" for line in lines).encode() + _in_order([*events, (1 << 60, flush), (1 << 61, other)])


def iolog3(ios):
    lines = ["fio version 3 iolog", "0 /dev/sda add", "5 /dev/sda open"]
    lines += [f"{begin_us} /dev/sd{'ab'[at % 2]} {'write' if write else 'read'} {sector * 512} {sectors * 512}"
              for at, begin_us, _, sector, sectors, write in ios]
    lines += [f"{ios[-1][1]} /dev/sda sync 0 0", "99999999 /dev/sda close"]
    return "".join(f"{line}\n" for line in lines).encode()


def iolog2(ios):
    lines = ["fio version 2 iolog", "/dev/sda add", "/dev/sda open"]
    for _, begin_us, _, sector, sectors, write in ios:
        lines += [f"/dev/sda wait {begin_us // 1000} 0",
                  f"/dev/sda {'write' if write else 'read'} {sector * 512} {sectors * 512}"]
    return "".join(f"{line}\n" for line in [*lines, "/dev/sda close"]).encode()


def biosnoop(ios, with_queue=False):
    events = [(0, "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  "
                  + ("QUE(ms) " if with_queue else "") + "LAT(ms)")]
    for at, begin_us, latency_us, sector, sectors, write in ios:
        time_us = begin_us + latency_us
        queued = f"{0.25:7.2f} " if with_queue else ""
        events.append((time_us, f"{time_us / 1e6:<11.6f} {'my app':<14.14s} {4000 + at % 2:<7d} nvme{at % 2}n1   "
                                f"{'W' if write else 'R'} {sector:<10d} {sectors * 512:<7d} {queued}"
                                f"{latency_us / 1e3:7.2f}"))
    return _in_order(events)


def vscsi(ios, version):
    records = []
    for at, begin_us, latency_us, sector, sectors, write in ios:
        command = 0x2A if write else 0x88
        if version == 1:
            records.append(struct.pack("<IIIHHQQ", at, sectors * 512, 1, command, 0x100, sector, begin_us))
        else:
            records.append(struct.pack("<HHIIIQQQ", command, 0x200, at, sectors * 512, 1, sector, begin_us, latency_us))
    return b"".join(records)


TOOL_RECORDINGS = {
    "wpa": wpa(_ios()),
    "blkparse": blkparse(_ios()),
    "ftrace": ftrace(_ios()),
    "xperf": xperf(_ios()),
    "iolog2": iolog2(_ios()),
    "iolog3": iolog3(_ios()),
    "biosnoop": biosnoop(_ios()),
    "vscsi": vscsi(_ios(), 2),
}
