"""The live view of a capture beside a command that prints, and of sources that tell little while they record."""

import os
import re

import pytest

pytestmark = pytest.mark.kernel

PRINTS = r"""
echo first line; [ -t 1 ] && echo to a terminal
i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); echo "line $i of many"; done
printf '\033[31mred\033[0m and '; printf '10 %%\r20 %%\r'; sleep 1.5; echo 'done  ' >&2
read answer; echo "heard $answer"; printf 'no end of line'; exit 5
"""


def sum_and_rows(text):
    """I/Os so far when the view was drawn last, and those of the trace."""
    told, = re.findall(r"t\.parquet: ([\d,]+) I/Os", text)
    return re.findall(r"so far +([\d,]+) I/Os", text)[-1], told


def test_what_a_command_prints_stands_above_the_view(on_terminal, busy, tmp_path):
    terminal = on_terminal("capture", busy, "-o", tmp_path / "t.parquet", "--live", "--", "sh", "-c", PRINTS)
    terminal.wait_for(r"capturing, \d+:\d\d, [\d,]+ I/Os")
    terminal.wait_for(rf"{busy} +\d")
    terminal.press("you\n")
    assert terminal.wait() == 5, terminal.text  # the command's own
    assert terminal.is_sane()
    shown = [line.strip() for line in terminal.text.splitlines()]
    printed = [line for line in shown if re.search(r"^(first|to a|line \d)|done|heard|no end", line)]
    # A redrawn line is printed in its last form; the terminal echoes the input, not the view.
    # A line that is not whole yet is drawn with the view, and more than once.
    many = [f"line {number} of many" for number in range(1, 3001)]
    lines = list(dict.fromkeys(printed))
    whole = [line for line, following in zip(lines, [*lines[1:], ""], strict=True) if not following.startswith(line)]
    assert whole == ["first line", "to a terminal", *many, "done", "heard you", "no end of line"]
    assert re.search(r"20 %", terminal.text)
    assert sum_and_rows(terminal.text)[0] == sum_and_rows(terminal.text)[1] != "0"


def test_a_command_has_the_terminal_for_itself_unless_asked(on_terminal, busy, tmp_path):
    terminal = on_terminal("capture", busy, "-o", tmp_path / "t.parquet", "--", "sh", "-c", "tty; sleep 1")
    assert terminal.wait() == 0 and terminal.is_sane()
    assert os.ttyname(terminal.slave) in terminal.text
    assert "so far" not in terminal.text


def test_a_command_that_draws_the_whole_screen_gets_it(on_terminal, busy, tmp_path):
    draws = r"sleep 1.5; printf '\033[?1049h\033[H\033[2Jwhole screen'; sleep 1; printf '\033[?1049l'; echo after it"
    terminal = on_terminal("capture", busy, "-o", tmp_path / "t.parquet", "--live", "--", "sh", "-c", draws)
    assert terminal.wait() == 0 and terminal.is_sane(), terminal.text
    ended = terminal.raw.index(b"the live view has ended (the command draws the whole screen itself)")
    began = terminal.raw.index(b"\x1b[?1049h\x1b[H\x1b[2Jwhole screen")
    left = terminal.raw.index(b"\x1b[?1049lafter it")
    assert ended < began < left and b"so far" not in terminal.raw[began:]
    assert terminal.raw[began:left] == b"\x1b[?1049h\x1b[H\x1b[2Jwhole screen"


def test_a_source_without_latencies_shows_what_the_kernel_counts(on_terminal, busy, tracer, tmp_path):
    terminal = on_terminal("capture", busy, "-o", tmp_path / "t.parquet", "--source", "ftrace")
    terminal.wait_for(r"capturing, \d+:\d\d, [1-9][\d,]* I/Os, [\d,]+/s, [\d,]+ lost")
    terminal.wait_for(rf"{busy} +[\d.]+ +0\.0 +[1-9][\d,.]* ")  # MB/s read and written, IOPS
    terminal.wait_for("by the kernel's counters: ftrace reports no percentiles and no processes while it records")
    terminal.press("\x03")
    assert terminal.wait() in (0, 3), terminal.text  # 3 where a busy machine has lost events
    assert terminal.is_sane()
    shown, told = (int(count.replace(",", "")) for count in sum_and_rows(terminal.text))
    assert shown > 0 and told > 0
