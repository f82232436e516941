"""The stream of the helper, spoken by a stand-in: no root needed."""

import sys
import textwrap
import threading

import pytest

from blkreel.capture import helper as helper_module
from blkreel.capture.helper import COLUMNS, Helper
from blkreel.traces.schema import TRACE_SCHEMA, layout_of

PROLOGUE = """
import os, sys
import numpy as np
from blkreel.traces.blocks import BlockWriter
from blkreel.capture.helper import COLUMNS
out = open(1, "wb", buffering=0)
def rows(count, op=0):
    columns = {name: np.zeros(count, code) for name, code in COLUMNS}
    columns["op"][:] = op
    columns["length_bytes"][:] = 4096
    return columns
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a helper whose program is `body`; returns it once it has ended."""
    def run(body, append=lambda columns: None):
        program = tmp_path / "helper"
        program.write_text(f"#!{sys.executable}\n" + PROLOGUE + textwrap.dedent(body))
        program.chmod(0o755)
        monkeypatch.setattr(helper_module, "HELPER", program)
        changed = threading.Event()
        helper = Helper([], append, lambda: None, changed.set)
        assert changed.wait(30)
        helper.stop()
        return helper

    return run


def test_the_columns_are_those_of_a_trace():
    known = dict(layout_of(TRACE_SCHEMA))
    assert {name: known[name] for name, _ in COLUMNS} == dict(COLUMNS)


def test_rows_names_and_totals_arrive(run):
    taken = []
    helper = run("""
        w = BlockWriter(out, "capture", COLUMNS)
        w.rows(rows(3)); w.rows(rows(2, op=1))
        w.note({"note": "threads", "threads": [[7, 5, "n\\u00c3\\u00a4h", "main"], [7, 5, "renamed", "main"]]})
        w.note({"note": "threads", "threads": [[8, 5, "cut\\u00c3", "main"]]})
        w.end({"events": 5, "lost": {"total": 1}})
    """, lambda columns: taken.append(len(columns["op"])))
    assert taken == [3, 2]
    assert helper.ios.tolist() == [3, 2, 0, 0, 0] and helper.bytes.tolist()[:2] == [3 * 4096, 2 * 4096]
    assert helper.threads[7] == {"pid": 5, "comm": "renamed", "process": "main", "names": ["näh", "renamed"]}
    assert helper.threads[8]["comm"] == "cut�", "a name cut inside a character"
    assert helper.end["events"] == 5 and helper.lost == 1 and helper.error is None


def test_the_words_of_a_helper_that_cannot_begin_reach_the_user(run):
    helper = run('sys.exit("no permission to load BPF programs; run it as root")')
    assert helper.died
    assert helper.error.message == "no permission to load BPF programs" and helper.error.remedy == "run it as root"


def test_a_helper_killed_in_mid_stream_is_told_from_an_end(run):
    taken = []
    helper = run("""
        w = BlockWriter(out, "capture", COLUMNS)
        w.rows(rows(4))
        os.kill(os.getpid(), 9)
    """, lambda columns: taken.append(len(columns["op"])))
    assert taken == [4] and helper.died and "signal 9" in str(helper.error) and helper.end is None


def test_rows_that_cannot_be_kept_end_the_helper(run):
    def full(columns):
        raise OSError(28, "No space left on device")

    helper = run("""
        w = BlockWriter(out, "capture", COLUMNS)
        try:
            while True:
                w.rows(rows(1000))
        except BrokenPipeError:
            pass
    """, full)
    assert not helper.died and helper.error.errno == 28


def test_another_layout_is_refused_with_the_remedy(run):
    helper = run("""
        BlockWriter(out, "capture", COLUMNS[:-1])
        sys.stdin.read()
    """)
    assert "make install" in str(helper.error)
