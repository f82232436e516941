"""A capture and the real blktrace, both running over the same I/O, while a processor goes and the wall clock steps."""

import json
import subprocess
from collections import defaultdict

import pandas as pd

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS

# Reads and writes of many sizes at depth 8, writes with FUA, flushes, discards and zeroes.
WORK = """
fio --name=m --filename={drive} --direct=1 --rw=randrw --bsrange=4k-64k --bs_unaligned=0 --blockalign=4k \
    --number_ios=1500 --ioengine=libaio --iodepth=8 --fsync=50 --output={directory}/fio.json --output-format=json &
fio=$!
cpu=/sys/devices/system/cpu/cpu1/online
sleep 0.4; [ ! -e $cpu ] || echo 0 >$cpu; date -s '+1 hour' >/dev/null
sleep 0.4; [ ! -e $cpu ] || echo 1 >$cpu; date -s '-1 hour' >/dev/null; wait $fio
dd if=/dev/zero of={drive} bs=8k count=20 oflag=direct,dsync status=none
blkdiscard -f --offset 8MiB --length 4MiB {drive}
blkdiscard -f --zeroout --offset 16MiB --length 2MiB {drive}
"""
# blktrace has begun when its files are there, and has written all when it has ended.
BOTH = """
cd {directory}
blktrace -d {drive} -o peer >blktrace.log 2>&1 & peer=$!
until [ -e /sys/kernel/debug/block/{name}/trace0 ]; do sleep 0.1; done
{work}
kill -INT $peer; wait $peer || true
"""


def test_a_capture_and_blktrace_agree(rows_of, blkreel, nvme, program, tmp_path):
    for name in ("fio", "blktrace", "blkparse"):
        program(name, "blktrace" if name.startswith("blk") else name)
    work = WORK.format(drive=nvme, directory=tmp_path)
    script = BOTH.format(drive=nvme, directory=tmp_path, name=nvme.removeprefix("/dev/"), work=work)
    rows = rows_of(nvme, script)
    text = subprocess.run(["blkparse", "-q", "-i", "peer", "-f", "%a\t%d\t%S\t%N\t%T\t%t\t%p\n"], cwd=tmp_path,
                          capture_output=True, text=True, check=True).stdout
    assert rows.attrs["summary"]["lost"] == 0 and rows.attrs["summary"]["missing"] == []
    job = json.loads((tmp_path / "fio.json").read_text())["jobs"][0]
    assert (rows.op == OPS["read"]).sum() == job["read"]["total_ios"]
    peer = peer_rows(text)
    check_same_ios(rows, peer)
    check_same_times_and_threads(rows, peer)
    check_fua(rows, peer)
    blkreel("import", *sorted(tmp_path.glob("peer.blktrace.*")), "-o", tmp_path / "peer.parquet")
    imported = open_trace(tmp_path / "peer.parquet").table().to_pandas()
    assert (imported.op == OPS["read"]).sum() == job["read"]["total_ios"] and len(imported) == len(peer)


def peer_rows(text):
    """What blktrace saw: each issue (D) joined with the completion (C) of the same place and kind that comes next."""
    open_issues, rows = defaultdict(list), []
    for line in text.splitlines():
        if line.count("\t") != 6:
            continue  # a message, which has no format to choose
        action, kind, sector, length_bytes, seconds, nanoseconds, pid = line.split("\t")
        if action not in "DC":
            continue
        at_ns = int(seconds) * 10**9 + int(nanoseconds)
        op = operation(kind)
        place = (op, 0 if op == OPS["flush"] else int(sector))
        if action == "D":
            length = 0 if op == OPS["flush"] else int(length_bytes)
            row = {"op": op, "offset_bytes": place[1] * 512, "length_bytes": length, "fua": "F" in kind.lstrip("F"),
                   "submit_ns": at_ns, "latency_ns": -1, "tid": int(pid)}
            open_issues[place].append(row)
            rows.append(row)
        elif open_issues[place]:
            row = open_issues[place].pop(0)
            row["latency_ns"] = at_ns - row["submit_ns"]
    return pd.DataFrame(rows)


def operation(kind):
    """From blkparse's letters: F in front is a flush, behind it is FUA; a zeroing is a write that carries no data."""
    if "D" in kind:
        return OPS["discard"]
    if "R" in kind:
        return OPS["read"]
    return OPS["write"] if "W" in kind else OPS["flush"]


def check_same_ios(rows, peer):
    rows = rows.assign(op=rows.op.where(rows.op != OPS["write_zeroes"], OPS["write"]))
    for op in ("read", "write", "discard", "flush"):
        mine, theirs = rows[rows.op == OPS[op]], peer[peer.op == OPS[op]]
        assert len(mine) > 0 and len(mine) == len(theirs), op
        if op == "discard":
            assert mine.length_bytes.sum() == theirs.length_bytes.sum() == 4 << 20
    # Order within a CPU is the kernel's; two CPUs may issue at one moment, so pairs are compared by time.
    place = ["op", "offset_bytes", "length_bytes"]
    assert (rows[place].sort_values(place).to_numpy() == peer[place].sort_values(place).to_numpy()).all()


def check_same_times_and_threads(rows, peer):
    rows, peer = rows[rows.op == OPS["read"]].copy(), peer[peer.op == OPS["read"]].copy()
    place = ["offset_bytes", "length_bytes"]
    for table in (rows, peer):
        table["nth"] = table.groupby(place).cumcount()
        table["since_ns"] = table.submit_ns - table.submit_ns.min()
    paired = rows.merge(peer, on=[*place, "nth"], suffixes=("", "_peer"), validate="1:1")
    assert len(paired) == len(rows) == len(peer)
    assert (paired.latency_ns > 0).all()
    # Both stamp in the same event. Each counts from a moment of its own; and an interrupt may come in between.
    offset_ns = paired.since_ns - paired.since_ns_peer
    assert (offset_ns - offset_ns.median()).abs().quantile(0.9) < 1e6
    assert (paired.latency_ns - paired.latency_ns_peer).abs().median() < 1e6
    assert (paired.tid == paired.tid_peer).mean() > 0.95


def check_fua(rows, peer):
    mine = rows[(rows["flags"] & FLAGS["fua"]) != 0]
    assert len(mine) == 20 == peer.fua.sum()
    assert sorted(mine.offset_bytes) == sorted(peer.offset_bytes[peer.fua])
