"""The live view of replays, tests and preparations on a terminal, with a drive that is calculated."""

import json
import os
import re
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from small_trace import new_trace
from terminal import Terminal
from waiting import wait_until

from blkreel.traces.format.reader import open_trace

DRIVE = "nil:1GiB,write_bandwidth=400MB/s"


@pytest.fixture
def trace(tmp_path):
    """A trace of 1.5 s: reads and writes by turns, 2,000 a second."""
    count = 3000
    return new_trace(tmp_path / "t.parquet",
                     {"devices": [{"size_bytes": 1 << 30}], "clock": "monotonic", "threads": {}},
                     submit_ns=np.arange(count) * 500_000, latency_ns=50_000, offset_bytes=np.arange(count) * 16384,
                     length_bytes=16384, op=(np.arange(count) % 2).astype("i1"))


@pytest.fixture
def replay(on_terminal, trace, tmp_path):
    """replay(*options) replays the trace on a terminal."""
    return partial(on_terminal, "replay", trace, "--on", DRIVE, "-o", tmp_path / "run", "--no-prefill")


def unwrapped(text):
    """Lines of a narrow terminal joined: a long path moves the words behind it."""
    return " ".join(text.split())


def last_sum(text):
    """What was done so far when the view was drawn last: (I/Os, read, written)."""
    count, read, written = re.findall(r"so far +([\d,]+) I/Os, ([\d.]+ \w+) read, ([\d.]+ \w+) written", text)[-1]
    return int(count.replace(",", "")), read, written


def test_the_sum_of_a_replays_view_is_its_account(replay):
    terminal = replay(columns=60, lines=15, env={"PYTHONIOENCODING": "latin-1"})
    terminal.wait_for(r"replaying, \d+:\d\d, \d+ %, \d+:\d\d left")
    terminal.wait_for(r"simulated drive +\d")
    terminal.wait_for(r"throughput +[\d.]+ MB/s +[_.\-=+*%#▁▂▃▄▅▆▇█]")
    # Of the characters that are not ASCII, latin-1 has only that of microseconds.
    assert terminal.raw.replace("µ".encode("latin-1"), b"").isascii()
    assert terminal.wait() in (0, 3), terminal.text  # 3 on a busy machine
    assert terminal.is_sane()
    assert "3,000 I/Os" in unwrapped(terminal.text) and last_sum(terminal.text) == (3000, "24.6 MB", "24.6 MB")


def test_a_test_shows_its_steps_and_the_drive(on_terminal, tmp_path):
    shortened = [word for one in ("lead=600ms", "reads=2", "read_every=700ms", "write_every=300ms")
                 for word in ("--set", one)]
    terminal = on_terminal("test", "mixed-burst", "--on", DRIVE, "-o", tmp_path / "test", "--quick", "--fit",
                           *shortened)
    terminal.wait_for(r"step 2 of 3: reads alone, at most \d+:\d\d left in all")
    terminal.wait_for(r"measuring, \d+:\d\d, \d+ %, \d+:\d\d left")
    terminal.wait_for(r"simulated drive +\d")
    assert terminal.wait() in (0, 3), terminal.text
    assert terminal.is_sane()
    steps = json.loads((tmp_path / "test/test.json").read_text())["steps"]
    done = [step["result"]["ops"] for step in steps if step["id"] != steps[0]["id"]]
    # The line that is left of each step when the view has gone on.
    _, _, *parts = re.split(r"step \d of 3: [^\n,]* \(left: at most", terminal.text)
    assert len(done) == 2 and [last_sum(part)[0] for part in parts] == done


def test_a_preparation_shows_what_it_writes(on_terminal):
    terminal = on_terminal("precondition", f"{DRIVE},state=keep", "--state", "full")
    terminal.wait_for(r"filling, \d+:\d\d, \d+ %, \d+:\d\d left, [\d.]+ \w+ of 1.07 GB")
    terminal.wait_for(r"simulated drive +0\.0 +[1-9]")
    assert terminal.wait() == 0, terminal.text
    assert terminal.is_sane()
    assert last_sum(terminal.text)[1:] == ("0 B", "1.07 GB") and "1.07 GB written" in terminal.text


@pytest.mark.parametrize(("words", "environment"), [(["--no-live"], {}), ([], {"TERM": "dumb"})])
def test_no_live_and_a_terminal_that_cannot_move_its_cursor_get_lines(on_terminal, trace, tmp_path, words, environment):
    terminal = on_terminal("replay", trace, "--on", f"{DRIVE},clock=virtual", "-o", tmp_path / "run", *words,
                           env=environment)
    assert terminal.wait() in (0, 3) and terminal.is_sane() and "3,000 I/Os" in unwrapped(terminal.text)
    assert "so far" not in terminal.text and "throughput  " not in terminal.text
    assert b"\x1b" not in terminal.raw or not environment


def stop_and_continue(terminal, view):
    """By Ctrl-Z; the terminal is sane meanwhile, and the view is drawn again."""
    terminal.press("\x1a")
    stat = Path(f"/proc/{terminal.process.pid}/stat")
    wait_until(lambda: terminal._read(0) or stat.read_text().rpartition(")")[2].split()[0] == "T")
    terminal._read(0.2)
    assert terminal.is_sane()
    shown = len(terminal.text)
    terminal.process.send_signal(signal.SIGCONT)
    wait_until(lambda: terminal._read(0.1) or view in terminal.text[shown:])


def test_ctrl_z_and_a_signal_leave_a_sane_terminal_and_a_run(replay):
    terminal = replay("--pace", "x0.05")
    terminal.wait_for(r"simulated drive +\d")
    stop_and_continue(terminal, "so far")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.wait() == 3 and terminal.is_sane()
    told, = re.findall(r"([\d,]+) of 3,000 I/Os", unwrapped(terminal.text))
    assert last_sum(terminal.text)[0] == int(told.replace(",", "")) < 3000
    assert "Traceback" not in terminal.text


@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_is_shut_ends_a_replay_in_order_unless_that_is_ignored(blkreel, trace, tmp_path, ignored):
    """As nohup has it ignored, which would take the terminal away besides."""
    first = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh"] if ignored else []
    pace = "x1" if ignored else "x0.05"
    terminal = Terminal([*first, blkreel.command, "replay", trace, "--on", DRIVE, "-o", tmp_path / "run",
                         "--no-prefill", "--pace", pace], env=blkreel.environment)
    terminal.wait_for(r"simulated drive +\d")
    os.close(terminal.master)
    os.close(terminal.slave)
    terminal.process.wait(300)
    run = open_trace(tmp_path / "run/records.parquet").metadata["run"]
    assert run["partial"] == (None if ignored else "interrupted")
    assert (run["completed_ops"] == 3000) == ignored


def test_a_command_that_is_stopped_or_ended_leaves_a_sane_terminal_and_no_half_file(tmp_path):
    draws = (f"""import time
from blkreel.cli.main import cli, main
from blkreel.cli.ui.progress import progress
from blkreel.common.files.safe_files import NewFile

def work(**_):
    with NewFile({str(tmp_path / 'new')!r}), progress("reading", 1e9) as task:
        for done in range(10**9):
            task.update(done)
            time.sleep(0.01)

cli.main = work
main()""")
    terminal = Terminal([sys.executable, "-c", draws])
    terminal.wait_for("reading")
    stop_and_continue(terminal, "reading")
    assert list(tmp_path.iterdir())
    terminal.process.terminate()
    assert terminal.wait() == 128 + signal.SIGTERM and terminal.is_sane() and "interrupted" in terminal.text
    assert not list(tmp_path.iterdir())
    terminal.close()
