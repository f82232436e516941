"""Many traces over processes: the digits of one pass, and no hang whatever becomes of a process."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pool_programs
import pytest
from figures_compared import same_figures
from range_server import serving
from small_trace import new_trace
from synthetic_runs import write_run, write_trace
from waiting import wait_until

from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.scale import ReadOptions, fleet, measure_fleet, pool
from blkreel.analysis.scale.pool import Pool
from blkreel.analysis.scale.runner import SerialRunner
from blkreel.common.errors import BlkreelError, TraceError


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("fleet")
    return [write_run(root / f"run-{number}", f"drive {number}", seed=number, seconds=12) for number in range(8)]


@pytest.fixture(scope="module")
def cut_run(tmp_path_factory):
    """A run of 20 row groups, whose I/Os reach from one into the next."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("blkreel.traces.format.writer.ROWS_PER_GROUP", 500)
        return write_run(tmp_path_factory.mktemp("cut") / "run", "slow drive", read_us=400, write_us=900, seconds=24)


@pytest.fixture
def at_once(monkeypatch):
    """A pool for however little there is, and parts of a row group or two."""
    monkeypatch.setattr(fleet, "POOL_ROWS", 0)
    monkeypatch.setattr(fleet, "PART_ROWS", 900)


@pytest.mark.parametrize("exact", [True, False])
def test_a_run_in_parts_has_the_digits_of_one_pass(cut_run, at_once, exact, monkeypatch):
    """Cut as for a pool of four, and then done here: what is tested is the cutting."""
    class Cut(SerialRunner):
        parallel = 4

    monkeypatch.setattr(fleet, "_runner", lambda traces, read_options: Cut())
    cuts, real = [], fleet._cut
    monkeypatch.setattr(fleet, "_cut", lambda *arguments: cuts.append(real(*arguments)) or cuts[-1])
    (parts,) = measure_fleet([cut_run], exact=exact, read_options=ReadOptions(keep=False)).measured
    assert len(cuts[0]) > 5 and sum(part.rows for part in cuts[0]) == parts.rows
    monkeypatch.setattr(fleet, "PART_ROWS", 10**9)
    (once,) = measure_fleet([cut_run], exact=exact, read_options=ReadOptions(keep=False)).measured
    assert len(cuts) == 1
    same_figures(parts, once)


def test_pool_and_one_process_give_the_same_digits_though_a_process_is_killed(runs, cut_run, at_once):
    named = [*runs, cut_run]
    once = measure_fleet(named, read_options=ReadOptions(jobs=1, keep=False)).measured
    killed = []

    def kill_one(path, done, total):
        children = multiprocessing.active_children()
        if not killed and children:
            killed.append(children[0].pid)
            os.kill(children[0].pid, signal.SIGKILL)

    pooled = measure_fleet(named, read_options=ReadOptions(jobs=2, keep=False), on_rows=kill_one).measured
    assert killed, "nothing was tried"
    assert [each.path for each in pooled] == named
    for mine, theirs in zip(pooled, once, strict=True):
        same_figures(mine, theirs)


def test_one_small_file_starts_no_process(runs, monkeypatch):
    monkeypatch.setattr(pool, "Pool", None)
    assert measure_fleet(runs[:1], read_options=ReadOptions(jobs=8, keep=False)).measured[0].rows > 0
    measured = measure_fleet(runs, read_options=ReadOptions(jobs=8, keep=False)).measured
    assert measured[-1].rows > 0, "eight small ones are small"


def test_what_is_elsewhere_is_asked_for_side_by_side_with_the_same_digits(cut_run, at_once):
    (once,) = measure_fleet([cut_run], read_options=ReadOptions(jobs=1, keep=False)).measured
    with serving(cut_run.parent) as server:
        server.wants_two = True
        (far,) = measure_fleet([f"{server.url}/run"], read_options=ReadOptions(keep=False)).measured
        assert server.two_at_once.is_set()
    same_figures(far, once)


def test_ctrl_c_ends_what_is_asked_for_elsewhere(cut_run, at_once):
    def interrupt(path, done, total):
        raise KeyboardInterrupt

    with serving(cut_run.parent) as server, pytest.raises(KeyboardInterrupt):
        measure_fleet([f"{server.url}/run"], read_options=ReadOptions(keep=False), on_rows=interrupt)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("blkreel-far")]


@pytest.mark.parametrize("how", [pool_programs.die, pool_programs.die_within_the_result])
def test_processes_that_die_again_and_again_are_told_of(how):
    with Pool(2) as pool, pytest.raises(BlkreelError, match=r"processes that read big.parquet were killed 3 times, "
                                                            r"perhaps by a lack of memory; .*--jobs 1"):
        list(pool.run(how, [pool_programs.part("big.parquet")], lambda index, done: None))
    assert not multiprocessing.active_children()


def test_an_error_of_our_own_in_a_process_says_where_it_was():
    with Pool(2) as pool, pytest.raises(ZeroDivisionError, match=r"a\.parquet") as caught:
        list(pool.run(pool_programs.fail, [pool_programs.part("a.parquet")], lambda index, done: None))
    assert "in fail" in caught.value.__notes__[0]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, -2)])
def test_no_process_outlives_the_command(number, code):
    command = subprocess.Popen([sys.executable, pool_programs.__file__], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, start_new_session=True)
    children = [int(command.stdout.readline()) for _ in range(2)]
    os.killpg(command.pid, number) if number == signal.SIGINT else os.kill(command.pid, number)
    told = command.communicate(timeout=300)[1]  # they sleep for 600 s
    assert command.returncode in (code, 1, 130)
    assert told.count("Traceback") <= 1, "the processes say nothing of Ctrl-C, only the command does"
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


def test_a_damaged_trace_among_many_is_named(tmp_path, runs, at_once):
    broken = write_trace(tmp_path / "broken.parquet", seconds=6)
    content = bytearray(broken.read_bytes())
    content[len(content) // 3] ^= 0xFF
    broken.write_bytes(content)
    with pytest.raises(BlkreelError, match="broken.parquet is damaged.*; or go on without it: --skip-unreadable"):
        measure_fleet([*runs[:2], broken], read_options=ReadOptions(jobs=2, keep=False))
    read_options = ReadOptions(jobs=2, keep=False, skip_unreadable=True)
    found = measure_fleet([runs[0], broken, runs[1]], read_options=read_options)
    assert [each.path for each in found.measured] == runs[:2]
    assert [path for path, _ in read_options.left_out] == [str(broken)] and "broken.parquet" in found.notes[0]


def test_of_several_traces_the_one_with_bad_rows_is_named(tmp_path):
    paths = [tmp_path / "good.parquet", tmp_path / "bad.parquet"]
    for path, latency_ns in zip(paths, (1, 1 << 61), strict=True):
        new_trace(path, {}, submit_ns=np.arange(3), latency_ns=latency_ns)
    with pytest.raises(TraceError, match="bad.parquet: rows have times"):
        measure_fleet(paths)
    with pytest.raises(TraceError, match="bad.parquet: rows have times"):
        measure(paths[1])


def test_a_trace_that_was_replaced_while_it_was_read_is_not_taken_for_the_one_named(tmp_path):
    first, second = (write_trace(tmp_path / f"{seconds}.parquet", seconds=seconds) for seconds in (2, 3))
    with pytest.raises(TraceError, match="changed while it was read"):
        measure_fleet([first], read_options=ReadOptions(keep=False),
                      on_rows=lambda *_: second.replace(first) if second.exists() else None)
