"""The live view against independent counts, and as a person has it: on a terminal, until it is ended."""

import errno
import fcntl
import itertools
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from documents import valid_document
from terminal import Terminal
from waiting import wait_until

from blkreel.capture.helper import HELPER, Nowhere
from blkreel.traces.format.reader import open_trace

pytestmark = pytest.mark.kernel


def reads_and_writes(drive):
    fields = Path(f"/sys/block/{Path(drive).name}/stat").read_text().split()
    return [int(fields[at]) for at in (0, 4)] + [int(fields[at]) * 512 for at in (2, 6)]


def test_all_intervals_together_are_what_fio_did(blkreel, loop_drive, program):
    """Counts against fio's own and the kernel's; mean latency and depth against fio's, which see more of the way."""
    drive = loop_drive(128 << 20)
    before = reads_and_writes(drive)
    top = blkreel.start("top", drive, "--interval", "200ms", "--json")
    first = top.stdout.readline()
    result = subprocess.run([program("fio"), "--name=mixed", f"--filename={drive}", "--direct=1", "--rw=randrw",
                             "--rwmixread=70", "--bs=4k", "--ioengine=io_uring", "--iodepth=16", "--number_ios=40000",
                             "--size=100%", "--output-format=json"], capture_output=True, text=True, check=True)
    time.sleep(0.5)
    top.send_signal(signal.SIGTERM)
    rest, _ = top.communicate(timeout=300)
    assert top.returncode == 0
    lines = [valid_document("top", line) for line in [first, *rest.splitlines()]]
    job = json.loads(result.stdout)["jobs"][0]
    drives = [line["drives"][0] for line in lines]
    assert {entry["path"] for entry in drives} == {drive}
    seen = [sum(entry[name] for entry in drives)
            for name in ("read_ops", "write_ops", "read_bytes", "write_bytes")]
    done = [job["read"]["total_ios"], job["write"]["total_ios"], job["read"]["io_bytes"], job["write"]["io_bytes"]]
    assert done == [now - then for now, then in zip(reads_and_writes(drive), before, strict=True)]
    # A busy machine keeps some completions from BPF: these are counted, without a latency.
    unseen = sum(entry["unseen_ops"] for entry in drives)
    assert unseen <= 0.03 * sum(done[:2])
    assert sum(seen[:2]) + unseen == sum(done[:2]) and sum(seen[2:]) + 4096 * unseen == sum(done[2:])
    assert all(mine <= theirs for mine, theirs in zip(seen, done, strict=True))
    assert lines[-1]["lost"] == 0
    # One interval begins where the one before it ended, and rates are counts over that time.
    assert [line["begin_ns"] for line in lines[1:]] == [line["end_ns"] for line in lines[:-1]]
    for line, entry in zip(lines, drives, strict=True):
        seconds = (line["end_ns"] - line["begin_ns"]) / 1e9
        assert entry["read_mb_s"] == pytest.approx(entry["read_bytes"] / 1e6 / seconds)
        assert entry["iops"] == pytest.approx(entry["ops"] / seconds)
    full = max(drives, key=lambda entry: entry["ops"])
    assert 0 < full["p50_ns"] <= full["p99_ns"] <= full["longest_ns"] * 33 / 32
    # fio holds 16, of which this sees those that have reached the driver, and what ended unseen.
    assert 0 < full["depth"] <= 17 + unseen and 0 <= full["in_flight"] <= 16 + unseen
    waited_ns = sum(entry["mean_ns"] * entry["ops"] for entry in drives if entry["ops"])
    fio_ns = sum(job[way]["clat_ns"]["mean"] * job[way]["total_ios"] for way in ("read", "write"))
    assert waited_ns <= fio_ns * 1.05
    most = max(lines, key=lambda line: line["drives"][0]["ops"])
    # A kernel thread may issue for fio what it could not issue at once.
    of_fio = sum(entry["ops"] for entry in most["processes"] if entry["process"] == "fio")
    assert sum(entry["ops"] for entry in most["processes"]) == most["drives"][0]["ops"] and of_fio > 0


def test_an_idle_drive_is_all_zeros_and_has_no_percentiles(blkreel, loop_drive):
    drive, began_ns = loop_drive(), time.monotonic_ns()
    line, = map(json.loads, blkreel("top", drive, "--once", "--interval", "300ms", "--json").stdout.splitlines())
    ended_ns = time.monotonic_ns()
    entry = line["drives"][0]
    assert entry["ops"] == entry["iops"] == entry["depth"] == entry["in_flight"] == 0
    assert entry["mean_ns"] is None and entry["p99_ns"] is None
    # It ends where a block of rows does, of which ten come a second, and no later than the command.
    assert 30e6 <= line["end_ns"] - line["begin_ns"] <= ended_ns - began_ns


def test_lines_where_no_terminal_is(blkreel, busy):
    result = blkreel("top", busy, "--for", "1.2s", "--interval", "400ms")
    lines = [line for line in result.stdout.splitlines() if busy in line]
    assert len(lines) >= 2
    assert all(re.search(r"read \d+\.\d MB/s, write 0\.0 MB/s, [\d,]+ IOPS, depth \d+\.\d, mean .*, lost 0", line)
               for line in lines)


ENDS = {"q": lambda terminal: terminal.press("q"), "SIGTERM": lambda terminal: terminal.process.terminate(),
        "--for": lambda terminal: None}


@pytest.mark.parametrize("end", ENDS)
def test_a_terminal_shows_the_figures_until_it_is_ended(on_terminal, busy, end):
    words = ["top", busy, "--interval", "300ms"] + (["--for", "2s"] if end == "--for" else [])
    terminal = on_terminal(*words)
    # Of a second in which fio was not kept from the processor.
    terminal.wait_for(rf"{busy} +(0\.[1-9]|[1-9]\d*\.\d|\d{{2,}}) +0\.0 +([\d,]+(?:\.\d)?) +\d+\.\d")
    terminal.wait_for(r"fio +\d+ +\d")
    terminal.wait_for(r"throughput +[\d.]+ MB/s +[▁▂▃▄▅▆▇█]")
    terminal.wait_for(r"lost +0")
    ENDS[end](terminal)
    assert terminal.wait() == 0, terminal.text
    assert terminal.is_sane()
    assert "Traceback" not in terminal.text


def test_an_ordinary_user_is_told_what_mends_it(blkreel, as_nobody, loop_drive):
    drive = loop_drive()
    result = subprocess.run([*as_nobody, blkreel.command, "top", drive, "--once"], capture_output=True, text=True)
    assert result.returncode == 1 and result.stdout == ""
    assert re.fullmatch(r"blkreel: .*permission.*; .*(root|sudo).*\n", result.stderr), result.stderr


def test_an_interval_that_cannot_be_counted_is_refused(blkreel, loop_drive):
    assert "100" in blkreel("top", loop_drive(), "--interval", "10ms", code=2).stderr


def take_away(zram_drive):
    """Once nobody else looks at it."""
    def removed():
        try:
            Path("/sys/class/zram-control/hot_remove").write_text(zram_drive.name.removeprefix("zram"))
        except OSError as error:
            assert error.errno == errno.EBUSY
            return False
        return True

    wait_until(removed)


def test_a_drive_that_is_taken_away_is_told(blkreel, zram_drive):
    top = blkreel.start("top", zram_drive, "--json", "--interval", "200ms")
    assert json.loads(top.stdout.readline())["drives"][0]["in_flight"] is None
    take_away(zram_drive)
    _, stderr = top.communicate(timeout=300)
    assert top.returncode == 1
    assert f"{zram_drive} was removed; " in stderr and "dmesg" in stderr


def test_the_other_drives_are_watched_on(blkreel, zram_drive, busy):
    top = blkreel.start("top", zram_drive, busy, "--json", "--interval", "200ms")
    lines = [json.loads(top.stdout.readline())]
    assert [entry["path"] for entry in lines[0]["drives"]] == [str(zram_drive), busy]
    take_away(zram_drive)
    while len(after := lines[-1]["drives"]) > 1 or not after[0]["read_ops"]:
        lines.append(json.loads(top.stdout.readline()))
    top.send_signal(signal.SIGINT)
    _, stderr = top.communicate(timeout=300)
    assert top.returncode == 0 and f"{zram_drive} was removed" in stderr
    assert after[0]["path"] == busy
    # The times are still since the start, and those of the wall clock go with them.
    assert all(line["begin_ns"] >= before["end_ns"] for before, line in itertools.pairwise(lines))
    assert lines[-1]["realtime_ns"] - lines[0]["realtime_ns"] == pytest.approx(
        lines[-1]["end_ns"] - lines[0]["end_ns"], abs=1e8)


def test_what_nobody_reads_is_told_later(loop_drive, program):
    """A parent that stands still holds nothing up, and misses nothing."""
    drive, nowhere = loop_drive(128 << 20), Nowhere()
    number = Path(f"/sys/block/{Path(drive).name}/dev").read_text().strip()
    rows = nowhere.rows_file.fileno()
    helper = subprocess.Popen([HELPER, "--device", number, "--rows-fd", str(rows), "--live", "50"], pass_fds=[rows],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    fcntl.fcntl(helper.stdout, fcntl.F_SETPIPE_SZ, 4096)
    assert json.loads(helper.stdout.readline())["note"] == "attached"
    subprocess.run([program("fio"), "--name=r", f"--filename={drive}", "--direct=1", "--rw=randread", "--bs=4k",
                    "--ioengine=io_uring", "--iodepth=8", "--number_ios=20000", "--size=100%", "--rate_iops=15000"],
                   stdout=subprocess.DEVNULL, check=True)
    helper.stdin.close()
    notes = [json.loads(line) for line in helper.stdout]
    assert helper.wait(300) == 0
    nowhere.close()
    told = [note for note in notes if note["note"] == "live"]
    assert sum(entry["ops"] + entry["unseen"] for note in told for entry in note["classes"]) == 20_000
    assert len(told) < 10 and notes[-1]["note"] == "end" and notes[-1]["lost"]["total"] == 0


def test_a_capture_on_a_terminal_shows_what_it_records(on_terminal, busy, tmp_path):
    terminal = on_terminal("capture", busy, "-o", tmp_path / "t.parquet", "--for", "3s")
    terminal.wait_for(rf"{busy} +(\d+\.\d|\d{{2,}}) +0\.0 +")
    terminal.wait_for(r"capturing, 0:0\d, \d+ %, 0:0\d left, [\d,]+ I/Os")
    assert terminal.wait() == 0
    assert terminal.is_sane()
    assert re.search(r"t\.parquet: [\d,]+ I/Os", terminal.text)


def test_a_terminal_that_is_shut_ends_a_capture_well(blkreel, busy, tmp_path):
    terminal = Terminal([blkreel.command, "capture", busy, "-o", tmp_path / "t.parquet", "--for", "4s"],
                        env=blkreel.environment)
    terminal.wait_for(rf"{busy} +\d")
    os.close(terminal.master)
    os.close(terminal.slave)
    terminal.process.wait(300)
    # Which is cut off from a busy drive: what was in flight then has no latency.
    assert re.search("rows, (complete and )?valid", blkreel("check", tmp_path / "t.parquet", check=False).stdout)
    assert open_trace(tmp_path / "t.parquet").rows > 0
