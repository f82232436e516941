"""Published traces, and traces of simulators, that are tables of text."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from blkreel.common.errors import UsageError
from blkreel.traces.format.schema import OPS
from blkreel.traces.importers.account import Account, account_for
from blkreel.traces.importers.operation_letters import category_of, flags_of, op_of
from blkreel.traces.importers.source_file import SourceFile
from blkreel.traces.importers.source_format import (
    INVALID,
    UNKNOWN_OP,
    Batch,
    ImportOptions,
    LinePattern,
    joined,
    mapped,
    op_codes,
    scaled,
    translated,
)
from blkreel.traces.importers.text_table import Column, Rows, TextFormat

_SECTOR_BYTES = 512
_MICROSECOND_NS = 1000
_READ, _WRITE = OPS["read"], OPS["write"]
_LETTERS = {b"R": _READ, b"W": _WRITE}
_NO_IO = -2  # in `op`: a record that is no I/O


def _op_of(numbers: np.ndarray, read: int, write: int) -> np.ndarray:
    """Operation codes of a column in which these numbers are reads and writes."""
    return np.select([numbers == read, numbers == write], [_READ, _WRITE], UNKNOWN_OP).astype(np.int8)


class Alibaba(TextFormat):
    """Device, R or W, offset and length in bytes, microseconds since 1970."""

    name = "alibaba"
    title = "Alibaba block traces of 2020"
    clock = "realtime"
    resolution_ns = _MICROSECOND_NS
    pattern = LinePattern(r"\d+,[RW],\d+,\d+,\d+", r"device_id,opcode,offset,length,timestamp")
    columns = (Column("device", "int"), Column("op", "text"), Column("offset", "int"), Column("length", "int"),
               Column("time", "int"))

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        return Batch(scaled(rows["time"], _MICROSECOND_NS), rows["offset"], rows["length"],
                     op_codes(rows["op"], _LETTERS), rows.positions, device=rows["device"])


class AndroidEbpf(TextFormat):
    """proces, device, rw_flag, sector, size in sectors, timestamp in seconds.

    `proces` is COMM-TID, `<...>` where the name is unknown; `device` is the kernel's dev_t. The source does not say
    which event of the block layer a record is, and has the same extent twice within some ms: all records become rows.
    """

    name = "android"
    title = "mobile traces recorded with eBPF"
    resolution_ns = 100
    lacks = ("event",)
    pattern = LinePattern(r"[^,]+-\d+,\d+,[A-Z]+,\d+,\d+,\d+\.\d+", r"process?,device,rw_flag,sector,size,timestamp")
    columns = (Column("process", "text"), Column("device", "text"), Column("op", "text"), Column("sector", "int"),
               Column("sectors", "int"), Column("time", "decimal", 9))
    _MINOR_BITS = 20  # of a dev_t inside the kernel

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        letters = mapped(rows["op"], category_of)
        return Batch(rows["time"], scaled(rows["sector"], _SECTOR_BYTES), scaled(rows["sectors"], _SECTOR_BYTES),
                     op_of(letters), rows.positions, device=translated(rows["device"], self._device),
                     tid=mapped(rows["process"], self._tid), process=translated(rows["process"], self._comm),
                     flags=flags_of(letters))

    @staticmethod
    def _tid(text: bytes) -> int:
        digits = text.rpartition(b"-")[2]
        return int(digits) if digits.isdigit() and len(digits) < 10 else -1

    @staticmethod
    def _comm(text: bytes) -> bytes:
        comm = text.rpartition(b"-")[0]
        return b"" if comm == b"<...>" else comm

    def _device(self, text: bytes) -> bytes:
        """8388608 as 8:0."""
        if not text.isdigit() or len(text) > 10:
            return text
        return b"%d:%d" % (int(text) >> self._MINOR_BITS, int(text) & (1 << self._MINOR_BITS) - 1)


class Fiu(TextFormat):
    """SNIA IOTTA 390, 391: ns, pid, process, LBA, sectors, W or R, major, minor, MD5 of the content."""

    name = "fiu"
    title = "FIU traces, with a hash of the content"
    pattern = LinePattern(r"\d+ \d+ \S+ \d+ \d+ [RW] \d+ \d+(?: \S+)?")
    columns = (Column("time", "int"), Column("pid", "int"), Column("process", "text"), Column("lba", "int"),
               Column("sectors", "int"), Column("op", "text"), Column("major", "text"), Column("minor", "text"))
    delimiter = None
    extra_fields = True

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        pid = rows["pid"]
        valid = (pid >= 0) & (pid <= np.iinfo(np.int32).max)
        return Batch(np.where(valid, rows["time"], INVALID), scaled(rows["lba"], _SECTOR_BYTES),
                     scaled(rows["sectors"], _SECTOR_BYTES), op_codes(rows["op"], _LETTERS), rows.positions,
                     device=joined(rows["major"], rows["minor"], b":"), tid=np.where(valid, pid, -1),
                     process=rows["process"])


class Hfplayer(TextFormat):
    """hfplayer (University of Minnesota, FAST '17), from traces of NetApp controllers. A header names the columns.

    A record of phase 0 is the arrival of an I/O, with its latency. LBA and NBLKS count blocks of 512 bytes.
    """

    name = "hfplayer"
    title = "CSV of hfplayer"
    _HEADER = ("#DUMP_OFFSET.I,ELAPSED_USECS.D,ELAPSED_TICKS.I,CMD.S,INFLIGHT_IOS.I,TS.I,SEQID.I,LUN_SSID.I,OP.I,"
               "PHASE.I,LBA.I,NBLKS.I,LATENCY_TICKS.I,HOST_ID.I,HOST_LUN.I,LATENCY_USECS.D")
    pattern = LinePattern(r"\d+,\d+(?:\.\d*)?,\d+,(?:RD|WR)\w*(?:,-?\d+){11},-?\d+(?:\.\d*)?",
                          _HEADER.replace(".", r"\."))
    _ARRIVAL = 0
    _US_PLACES = 3
    columns = (Column("dump_offset", "skip"), Column("time", "decimal", _US_PLACES), Column("ticks", "skip"),
               Column("command", "skip"), Column("in_flight", "skip"), Column("ts", "skip"), Column("sequence", "skip"),
               Column("lun", "int"), Column("op", "int"), Column("phase", "int"), Column("lba", "int"),
               Column("blocks", "int"), Column("latency_ticks", "skip"), Column("host", "skip"),
               Column("host_lun", "skip"), Column("latency", "decimal", _US_PLACES, empty=-1))

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        arrivals = rows["phase"] == self._ARRIVAL
        account_for(~arrivals, rows.positions, account.ignore, "not the arrival of an I/O (PHASE)")
        return Batch(rows["time"][arrivals], scaled(rows["lba"][arrivals], _SECTOR_BYTES),
                     scaled(rows["blocks"][arrivals], _SECTOR_BYTES), _op_of(rows["op"], 0, 1)[arrivals],
                     rows.positions[arrivals], latency_ns=rows["latency"][arrivals], device=rows["lun"][arrivals])


class IoTracer(TextFormat):
    """Files ds_*.csv.gz of io-tracer (cacheMon); docs/TRACE_FORMAT.md there defines the columns.

    Time is that of completion, in the recording machine's local time; submit = time - latency. There is no device.
    """

    name = "io-tracer"
    title = "io-tracer, block device traces"
    resolution_ns = 1000
    lacks = ("device",)
    pattern = LinePattern(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?,\d+,[^,]*,\d+,[A-Za-z_]+,\d+,\d+(?:\.\d+)?,\d+.*",
                          r"timestamp,pid,command,sector,operation,size,latency_ms,tid")
    columns = (Column("time", "datetime"), Column("pid", "int"), Column("command", "text"), Column("sector", "int"),
               Column("op", "text"), Column("size", "int"), Column("latency", "decimal", 6), Column("tid", "int"))
    extra_fields = True
    _OPS = {b"read": _READ, b"write": _WRITE, b"flush": OPS["flush"], b"discard": OPS["discard"],
            b"secure_erase": _NO_IO, b"none": _NO_IO}
    # One for all files, because a recording is rotated over many.
    _DEVICE = pa.array([b"unknown"], pa.binary())

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        op = mapped(rows["op"], lambda text: self._OPS.get(text.lower(), UNKNOWN_OP))
        io = op != _NO_IO
        account_for(~io, rows.positions, account.ignore, "the operation is none or secure_erase")
        tid, limit = rows["tid"][io], np.iinfo(np.int32).max
        has_tid = (tid > 0) & (tid <= limit)
        latency_ns = rows["latency"][io]
        device = pa.DictionaryArray.from_arrays(pa.array(np.zeros(int(io.sum()), np.int32)), self._DEVICE)
        return Batch(rows["time"][io] - latency_ns.clip(0, 1 << 61), scaled(rows["sector"][io], _SECTOR_BYTES),
                     rows["size"][io], op[io].astype(np.int8), rows.positions[io], latency_ns=latency_ns,
                     device=device, tid=np.where(has_tid, tid, -1), pid=rows["pid"][io],
                     process=rows["command"].filter(pa.array(io)))


class MsrCambridge(TextFormat):
    """SNIA IOTTA 388: FILETIME, host, disk, Read or Write, offset and size in bytes, response time.

    Timestamp is the time of issue; it and the response time are in units of 100 ns, as the README of the traces states.
    """

    name = "msr"
    title = "MSR Cambridge block traces"
    clock = "realtime"
    resolution_ns = 100
    pattern = LinePattern(r"\d{17,19},[\w.-]+,\d+,(?i:read|write),-?\d+,-?\d+,-?\d+",
                          r"(?i)timestamp,hostname,disknumber")
    columns = (Column("time", "int"), Column("host", "text"), Column("disk", "text"), Column("op", "text"),
               Column("offset", "int"), Column("size", "int"), Column("response", "int"))
    # Of a FILETIME, which counts 100 ns since 1601, at the beginning of 1970.
    _UNIX_EPOCH_TICKS = 116_444_736_000_000_000
    _OPS = {b"Read": _READ, b"Write": _WRITE, b"read": _READ, b"write": _WRITE}

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        return Batch(scaled(rows["time"], self.resolution_ns, -self._UNIX_EPOCH_TICKS), rows["offset"], rows["size"],
                     op_codes(rows["op"], self._OPS), rows.positions, device=joined(rows["host"], rows["disk"], b"_"),
                     latency_ns=scaled(rows["response"], self.resolution_ns))


class _Simulator(TextFormat):
    """Time, device, LBA, sectors, 1 read or 0 write.

    MQSim counts ns, as an integer (its ASCII trace definitions: `1` is a read). DiskSim counts ms, with a decimal point
    (its ASCII format: bit 0 of the flags is a read).
    """

    delimiter = None
    _EXTENT = (Column("device", "int"), Column("lba", "int"), Column("sectors", "int"), Column("op", "int"))

    def near_miss(self, head: bytes) -> str:
        return ""  # five numbers with another delimiter may be anything, such as a log of fio

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        return Batch(rows["time"], scaled(rows["lba"], _SECTOR_BYTES), scaled(rows["sectors"], _SECTOR_BYTES),
                     _op_of(rows["op"], 1, 0), rows.positions, device=rows["device"])


class MqSim(_Simulator):
    name = "mqsim"
    title = "MQSim"
    assumed = "times in ns, extents in sectors of 512 bytes, 1 is a read"
    pattern = LinePattern(r"\d+ \d+ \d+ \d+ [01]")
    columns = (Column("time", "int"), *_Simulator._EXTENT)


class DiskSim(_Simulator):
    name = "disksim"
    title = "DiskSim, ASCII"
    assumed = "times in ms, extents in sectors of 512 bytes, 1 is a read"
    pattern = LinePattern(r"\d+\.\d+ \d+ \d+ \d+ [01]")
    columns = (Column("time", "decimal", 6), *_Simulator._EXTENT)


class Spc(TextFormat):
    """SPC trace format 1.0 (UMass Financial, WebSearch): ASU, LBA, size in bytes, r or w, seconds, optional fields.

    The LBA counts blocks of a size that the file does not state.
    """

    name = "spc"
    title = "SPC-1 traces, as of UMass"
    resolution_ns = 1000
    has_block_size = True
    pattern = LinePattern(r"\d+,\d+,\d+,[rwRW],\d+\.\d+(?:,.*)?")
    columns = (Column("asu", "int"), Column("lba", "int"), Column("size", "int"), Column("op", "text"),
               Column("time", "decimal", 9))
    extra_fields = True
    _OPS = {**_LETTERS, b"r": _READ, b"w": _WRITE}

    def batches(self, source: SourceFile, account: Account, options: ImportOptions) -> Iterator[Batch]:
        if options.block_bytes is None:
            raise UsageError(f"{source.path} counts blocks of a size that it does not state",
                             "give the size, as the publisher of the trace states it: --block-size 512")
        yield from super().batches(source, account, options)

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        assert options.block_bytes is not None
        return Batch(rows["time"], scaled(rows["lba"], options.block_bytes), rows["size"],
                     op_codes(rows["op"], self._OPS), rows.positions, device=rows["asu"])


class Systor17(TextFormat):
    """SNIA IOTTA 4964: Timestamp, Response, IOType, LUN, Offset, Size; seconds and bytes.

    Timestamp is the time of issue: timestamp + response is in the order of the lines, which are written at completion.
    It is accurate to 1 us. A blank IOType means that no response was recorded, so that the operation is unknown.
    """

    name = "systor17"
    title = "SYSTOR '17 traces of LUNs"
    clock = "realtime"
    resolution_ns = 1000
    pattern = LinePattern(r"\d{9,11}\.\d+,(?:\d+\.\d+)?,[RW]?,\d+,\d+,\d+",
                          r"(?i)timestamp,response,iotype,lun,offset,size")
    columns = (Column("time", "decimal", 9), Column("response", "decimal", 9, empty=-1), Column("op", "text"),
               Column("lun", "int"), Column("offset", "int"), Column("size", "int"))

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        op = op_codes(rows["op"], {**_LETTERS, b"": _NO_IO})
        answered = op != _NO_IO
        account_for(~answered, rows.positions, account.ignore,
                    "no response was recorded, so that the operation is unknown")
        return Batch(rows["time"][answered], rows["offset"][answered], rows["size"][answered], op[answered],
                     rows.positions[answered], latency_ns=rows["response"][answered], device=rows["lun"][answered])


class TencentCbs(TextFormat):
    """SNIA IOTTA 27917: seconds since 1970, sector, sectors, 0 read or 1 write, volume.

    Tens of thousands of rows share a second, and times step back by some seconds. Copies that count bytes instead of
    sectors need --block-size 1.
    """

    name = "tencent"
    title = "Tencent cloud block storage"
    clock = "realtime"
    resolution_ns = 1_000_000_000
    has_block_size = True
    pattern = LinePattern(r"\d{9,10},\d+,\d+,[01],\d+")
    columns = (Column("time", "int"), Column("sector", "int"), Column("sectors", "int"), Column("op", "int"),
               Column("volume", "int"))

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        block_bytes = options.block_bytes or _SECTOR_BYTES
        return Batch(scaled(rows["time"], self.resolution_ns), scaled(rows["sector"], block_bytes),
                     scaled(rows["sectors"], block_bytes), _op_of(rows["op"], 0, 1), rows.positions,
                     device=rows["volume"])
