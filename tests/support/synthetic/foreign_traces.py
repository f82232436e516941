"""A small recording in each format that blkreel imports, by the name of the format. All records are valid."""

import random
import struct

from tool_traces import TOOL_RECORDINGS

RECORDS = 60
_random = random.Random(4)


def _lines(make, count=RECORDS, header=None):
    text = [header] if header else []
    return "".join(f"{line}\n" for line in [*text, *(make(number) for number in range(count))]).encode()


def _offset():
    return _random.randrange(1 << 20) * 4096


def _op(number):
    return "RW"[number % 3 == 0]


def _msr(number):
    return (f"{128166385295514663 + 7919 * number},hm,{number % 2},{'Read' if number % 3 else 'Write'},{_offset()},"
            f"{512 * (1 + number % 64)},{1000 + number}")


def _fiu(number):
    return (f"{329131208190249 + 31007 * number} {4000 + number % 5} {'syslogd' if number % 5 else 'kjournald'} "
            f"{_offset() // 512} 8 {_op(number)} 6 {number % 2} {number:032x}")


def _hfplayer(number):
    return (f"{4124 + 28 * number},{81442951 + 37 * number}.{number % 1000:03},{number},"
            f"{'WR_IN' if number % 3 else 'RD_IN'},0,{number},{5000 + number},{1 + number % 2},{int(number % 3 > 0)},0,"
            f"{_offset() // 512},{8 + number},99,6,1,{20 + number}.910")


RECORDINGS = {
    **TOOL_RECORDINGS,
    "msr": _lines(_msr),
    "tencent": _lines(lambda number: f"{1538323200 + number // 9 - number % 2},{_offset() // 512},{8 + number},"
                                     f"{number % 2},{1058 + number % 4}"),
    "alibaba": _lines(lambda number: f"{number % 3},{_op(number)},{_offset()},{4096 * (1 + number)},"
                                     f"{1577808000000042 + 17 * number}"),
    "systor17": _lines(lambda number: f"{1456095145 + number}.{133076 + number}000,0.{806 + number:06}000,"
                                      f"{_op(number)},{number % 2},{_offset()},{512 * (1 + number)}",
                       header="Timestamp,Response,IOType,LUN,Offset,Size"),
    "spc": _lines(lambda number: f"{number % 3},{_offset() // 512},{512 * (1 + number)},{_op(number).lower()},"
                                 f"{number}.{number:06}"),
    "fiu": _lines(_fiu),
    "android": _lines(lambda number: f"kworker/u17:0-{21454 + number % 3},8388608,{_op(number)},{_offset() // 512},8,"
                                     f"{832636 + number}.24574300{number:02}",
                      header="proces,device,rw_flag,sector,size,timestamp"),
    "io-tracer": _lines(lambda number: f"2024-01-15 10:30:{number:02}.{123456 + number},{1234 + number % 3},python3,"
                                       f"{_offset() // 512},{'read' if number % 3 else 'write'},{512 * (1 + number)},"
                                       f"{1 + number % 9}.{number:03},{1235 + number % 3},{1 + number},0,1233",
                        header="timestamp,pid,command,sector,operation,size,latency_ms,tid,nr_sectors,cpu_id,ppid"),
    "mqsim": _lines(lambda number: f"{938513000 + 3001 * number} {number % 4} {_offset() // 512} 16 {number % 2}"),
    "disksim": _lines(lambda number: f"{number}.{number:06} {number % 4} {_offset() // 512} 16 {number % 2}"),
    "blkreplay": _lines(lambda number: f"{number:7}.{number:09} ; {_offset() // 512:12} ; {8 + number:4} ; "
                                       f"{'RA' if number % 7 == 0 else _op(number) + ' '} ; 0.0 ; 0.0",
                        header="Copyright A. N. Author\nany text; of a license\n"
                               "start ; sector; length ; op ;  replay_delay=0 ; replay_duration=0"),
    "hfplayer": _lines(_hfplayer, header="#DUMP_OFFSET.I,ELAPSED_USECS.D,ELAPSED_TICKS.I,CMD.S,INFLIGHT_IOS.I,TS.I,"
                                         "SEQID.I,LUN_SSID.I,OP.I,PHASE.I,LBA.I,NBLKS.I,LATENCY_TICKS.I,HOST_ID.I,"
                                         "HOST_LUN.I,LATENCY_USECS.D"),
    "btrecord": struct.pack("<4Q", 1 << 16, 0, RECORDS // 2, RECORDS) + b"".join(
        struct.pack("<8Q", 2, 9_000_000 * number, _offset() // 512, 4096, number % 2, _offset() // 512, 8192, 1)
        for number in range(RECORDS // 2)),
    "oracle-general": b"".join(struct.pack("<IQIq", number // 9, _random.randrange(1 << 30), 4096, -1)
                               for number in range(RECORDS)),
}
