"""The live view: its counts against the rows, its percentiles against exact ones, and that it harms nothing."""

import io
import re
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from blkreel.capture.counters import Counters
from blkreel.cli.ui.live_task import LiveTask
from blkreel.cli.ui.live_view import LiveView, drive_metrics, format_sensors, process_metrics, sparkline
from blkreel.cli.ui.progress import line_task
from blkreel.cli.ui.pty_passthrough import PtyPassthrough
from blkreel.traces.live import BUCKETS, Counts, Interval, RunCounter, buckets_of, interval_of, percentile_ns

# tests/native/capture/live.c has the same.
KNOWN = {0: 0, 15: 15, 16: 16, 31: 31, 32: 32, 33: 32, 34: 33, 1000: 111, 1023: 111, 1024: 112, 100_000: 216,
         1_000_000: 270, 1_234_567: 274, 4_000_000_000: 461, 3_600_000_000_000: 618}
LATENCIES = st.lists(st.integers(0, 10**13), min_size=1, max_size=200)


def test_buckets_are_those_of_the_helper():
    assert buckets_of(np.array(list(KNOWN))).tolist() == list(KNOWN.values())
    assert buckets_of(np.array([2**63 - 1])).max() < BUCKETS


@given(LATENCIES, st.integers(1, 999))
def test_a_percentile_is_within_a_32nd_of_the_exact_one(values, per_mille):
    buckets = np.bincount(buckets_of(np.array(values)), minlength=BUCKETS)
    exact = sorted(values)[max(0, -(-len(values) * per_mille // 1000) - 1)]
    assert abs(percentile_ns(buckets, per_mille, 1000) - exact) <= exact / 32


def records(count, seed=1):
    random = np.random.default_rng(seed)
    submit = np.cumsum(random.integers(1, 1000, count))
    complete = submit + random.integers(100, 10**6, count)
    complete[random.random(count) < 0.05] = -1
    return {"submit_ns": submit, "complete_ns": complete, "due_ns": np.where(submit % 9, submit - 40, -1),
            "length_bytes": random.integers(1, 9, count) * 512, "op": random.integers(0, 5, count).astype("i1"),
            "status": np.where(random.random(count) < 0.1, -5, 0).astype("i2"),
            "target": random.integers(0, 3, count).astype("i2")}


@given(st.lists(st.integers(0, 400), max_size=4), st.integers(0, 3))
def test_the_intervals_of_a_replay_hold_every_row_once(cuts, takes_before):
    rows = records(400)
    counter, intervals = RunCounter(), []
    edges = sorted({0, 400, *cuts})
    for number, (begin, end) in enumerate(zip(edges, edges[1:], strict=False)):
        counter.add({name: column[begin:end] for name, column in rows.items()})
        if number >= takes_before:
            intervals.append(counter.take())
    intervals.append(counter.take(5))
    seen = rows["complete_ns"] >= 0
    for drive in range(3):
        for op, name in enumerate(["read", "write", "flush", "discard", "write_zeroes"]):
            here = (rows["target"] == drive) & (rows["op"] == op)
            total = Counts()
            for interval in intervals:
                total.add(interval.counts(drive, name))
            took = (rows["complete_ns"] - rows["submit_ns"])[here & seen]
            assert total.ops == total.buckets.sum() == len(took)
            assert (total.unseen, total.errors) == ((here & ~seen).sum(), (rows["status"][here] != 0).sum())
            assert (total.bytes, total.latency_ns) == (rows["length_bytes"][here & seen].sum(), took.sum())
            assert total.longest_ns == took.max(initial=0)
    assert sum(interval.lateness.sum() for interval in intervals) == (rows["due_ns"] >= 0).sum()
    assert [one.begin_ns for one in intervals[1:]] == [one.end_ns for one in intervals[:-1]]


def interval_with(ops=200, latency_ns=50_000, seconds=0.5, **more):
    buckets = np.zeros(BUCKETS, np.int64)
    buckets[buckets_of(np.array([latency_ns]))[0]] = ops
    counts = Counts(ops, ops * 4096, latency_ns=ops * latency_ns, longest_ns=latency_ns, buckets=buckets)
    return Interval(0, int(seconds * 1e9), {(0, "read"): counts}, [3], **more)


def test_figures_by_hand():
    shown = drive_metrics(interval_with(), 0)
    assert (shown["iops"], shown["read_mb_s"], shown["write_mb_s"]) == (400, pytest.approx(1.6384), 0)
    assert shown["depth"] == pytest.approx(200 * 50_000 / 0.5e9)
    assert shown["mean_ns"] == 50_000 and shown["in_flight"] == 3
    assert shown["p50_ns"] == pytest.approx(50_000, rel=1 / 32)
    assert shown["p99_ns"] is None, "of 200 only 2 lie beyond it"


def test_threads_of_one_process_are_one_line():
    interval = interval_with(threads=[(7, 5, 500, 0, 50), (8, 3, 0, 300, 30), (9, 1, 0, 0, 1)],
                             other_threads=(-1, 2, 0, 0, 2))
    lines = process_metrics(interval, {7: (7, "main", "game"), 8: (7, "loader", "game"), 9: (9, "sh", "sh")})
    assert [(line["pid"], line["process"], line["ops"]) for line in lines] == [
        (7, "game", 8), (9, "sh", 1), (None, "others", 2)]
    assert lines[0]["read_mb_s"] == pytest.approx(0.001) and lines[0]["mean_ns"] == 10


def test_what_the_helper_tells_is_read():
    writes = {"device": 0, "op": 1, "ops": 3, "bytes": 9, "unseen": 1, "errors": 0, "latency_ns": 30, "longest_ns": 12,
              "buckets": [[10, 2], [12, 1]]}
    note = {"begin_ns": 5, "end_ns": 10, "lost": 2, "in_flight": [None], "threads": [[3, 4, 5, 6, 7]],
            "others": [-1, 0, 0, 0, 0], "classes": [writes]}
    interval = interval_of(note)
    assert interval.counts(0, "write").percentile_ns(50, 100) == 10
    assert interval.other_threads is None and interval.lost == 2
    assert drive_metrics(interval)["in_flight"] is None


def test_a_sparkline_rises_with_its_values():
    assert sparkline([0, 1, 2, 4, 8]) == "▁▂▃▅█"
    assert sparkline([0, 0]) == "▁▁" and sparkline([]) == ""
    assert sparkline([1, 8], ascii_only=True).isascii()


def drawn(intervals, drives=("/dev/nvme0n1",), columns=100, lines=50, **options):
    """The lines of a view after these intervals."""
    console = Console(file=io.StringIO(), width=columns, height=lines, force_terminal=True, color_system=None)
    view = LiveView(console, **options)
    for interval in intervals:
        view.set_interval(interval, list(drives), {})
    console.print(view)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("columns", [40, 60, 200])
def test_every_figure_fits_at_any_width(columns):
    lines = drawn((interval_with(ops=200 + number) for number in range(60)), columns=columns)
    assert max(map(len, lines)) <= columns
    so_far, = (line.rstrip() for line in lines if line.startswith("so far"))
    assert so_far.endswith(("written", "…")), "a number that is cut off has another value"
    if columns >= 60:
        assert any("518" in line and "50.0 µs" in line and "2.1" in line for line in lines), lines
        assert any(re.search("throughput 2.1 MB/s +[▇█]{33}", line) for line in lines), lines


def test_whatever_breaks_in_the_view_ends_only_the_view(monkeypatch, capsys):
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with LiveTask(console, "replaying", 10.0, ["/dev/sda"]) as task:
        monkeypatch.setattr("blkreel.cli.ui.live_view.drive_metrics", lambda *words: 1 / 0)
        task.take_rows(records(10))
        task._taken_at -= 10
        task.take_note({"outstanding": 3})
        task.take_rows({"nonsense": 1})
        task.update(5, "still there")
    assert "the live view has ended (ZeroDivisionError" in capsys.readouterr().err
    assert console.file.getvalue().rfind("\x1b[?25h") > console.file.getvalue().rfind("\x1b[?25l")


def test_an_interrupt_behind_a_failed_drawing_is_not_swallowed(capsys):
    """A terminal that is shut sends its signal while something is drawn on it, which then fails."""
    class Shut(io.StringIO):
        is_shut = False

        def write(self, text):
            if self.is_shut:
                try:
                    raise KeyboardInterrupt
                finally:
                    raise OSError(5, "Input/output error")
            return super().write(text)

    file = Shut()
    console = Console(file=file, width=100, force_terminal=True)
    with pytest.raises(KeyboardInterrupt), LiveTask(console, "replaying", 10.0, ["/dev/sda"]) as task:
        file.is_shut = True
        task.refresh()


STAT = "{reads} 0 {sectors} {ms} {writes} 0 80 4 {in_flight} 9 9 3 0 24 6 2 0"


def test_what_the_kernel_counts_is_an_interval(tmp_path):
    files = [tmp_path / "a", tmp_path / "b"]
    now_ns = [5_000_000_000]
    files[0].write_text(STAT.format(reads=10, sectors=80, ms=7, writes=1, in_flight=0))
    files[1].write_text("1 0 8 1 1 0 8 1 0 1 1")  # of a kernel that counts neither discards nor flushes
    counters = Counters(files, 1_000_000_000, "no percentiles", clock_ns=lambda: now_ns[0])
    now_ns[0] += 999_999_999
    assert counters.intervals(0) == []
    now_ns[0] += 1_000_000_001
    files[0].write_text(STAT.format(reads=110, sectors=880, ms=57, writes=3, in_flight=4))
    first, = counters.intervals(None)
    assert (first.begin_ns, first.end_ns, first.lost, first.limits) == (0, 2_000_000_000, None, "no percentiles")
    shown = drive_metrics(first, 0)
    assert (shown["read_ops"], shown["read_bytes"], shown["write_ops"]) == (100, 800 * 512, 2)
    assert shown["iops"] == 51 and shown["mean_ns"] == pytest.approx(50e6 / 102) and shown["p50_ns"] is None
    assert shown["depth"] == pytest.approx(50e6 / 2e9) and shown["in_flight"] == 4
    assert first.counts(1).ops == 0
    files[1].unlink()
    last, = counters.intervals(7, last=True)
    assert last.begin_ns == 2_000_000_000 and last.counts().ops == 0 and last.in_flight == [4, None]


@pytest.mark.parametrize("lines", [8, 15, 50])
def test_the_view_is_no_higher_than_its_terminal(lines):
    interval = interval_with(threads=[(tid, 5, 500, 0, 50) for tid in range(5_000_000, 5_000_020)],
                             lateness=np.ones(BUCKETS, np.int64), latest_ns=9)
    shown = drawn([interval] * 3, [f"/dev/nvme{number}n1" for number in range(9)], lines=lines, reserved_lines=1)
    assert len(shown) < lines and shown[-1].startswith("lost")
    assert any(line.startswith("so far     600 I/Os, 2.46 MB read") for line in shown)


def test_sensors_are_told_in_a_line():
    assert format_sensors({"temperature_c": 41.4, "power_w": 5.2, "link_gt_s": 8}) == "41 C, 5.20 W"
    assert format_sensors({"throttling": 1.0}) == "throttled" and format_sensors({"throttling": 0.0}) == ""


def test_errors_and_losses_stand_out():
    failed = interval_with(lost=2)
    failed.classes[0, "write"] = Counts(ops=1, errors=3)
    shown = [line.rstrip() for line in drawn([failed, interval_with(lost=None)])]
    assert any(re.fullmatch("errors +3", line) for line in shown), "of the interval before: they stay"
    assert any(re.fullmatch(r"lost +\?", line) for line in shown)


def test_the_time_left_does_not_count_what_was_before_the_first_update(monkeypatch, capsys):
    """The programs of a capture took 6 s to load: `0 %, 1748605 s left` of 4 s."""
    times = iter([0, 6, 11, 16])  # the beginning of the step, and each update
    monkeypatch.setattr("blkreel.cli.ui.progress.time.monotonic", lambda: next(times))
    task = line_task("capturing", 20)
    for done in (1e-5, 5, 10):
        task.update(done, "2 I/Os")
    assert capsys.readouterr().err.splitlines() == [
        "capturing: 0 %, 2 I/Os", "capturing: 25 %, 15 s left, 2 I/Os", "capturing: 50 %, 10 s left, 2 I/Os"]


class OtherThread(Console):
    """While it prints, the view is drawn by this thread and by another."""

    def print(self, text, **options):
        self.drawn = [text.plain, passthrough_of[self].pending()]
        thread = threading.Thread(target=lambda: self.drawn.append(passthrough_of[self].pending()))
        thread.start()
        thread.join()


passthrough_of = {}


def test_an_unfinished_line_never_stands_above_the_lines_before_it():
    console = OtherThread()
    passthrough = passthrough_of[console] = PtyPassthrough(console)
    passthrough._task = type("Task", (), {"refresh": lambda self: None})()
    passthrough._print("hea")
    passthrough._print("rd you\nno end of line")
    assert [str(each) for each in console.drawn] == ["heard you", "no end of line", "hea"]
    assert str(passthrough.pending()) == "no end of line"
    passthrough._print("", last=True)
    assert str(console.drawn[0]) == "no end of line" and passthrough.pending() is None
    passthrough.end()
