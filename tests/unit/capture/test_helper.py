"""What the helper says, spoken by a stand-in: no root needed."""

import sys
import textwrap
import threading

import pytest

from blkreel.capture import helper as helper_module
from blkreel.capture.helper import Helper
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import TRACE_SCHEMA
from blkreel.traces.spool.spool import Spool

PROLOGUE = """
import json, os, sys
import numpy as np
from blkreel.traces.spool.blocks import BlockWriter
rows = open(int(sys.argv[sys.argv.index("--rows-fd") + 1]), "wb", buffering=0)
COLUMNS = [("submit_ns", "i8"), ("latency_ns", "i8"), ("offset_bytes", "i8"), ("length_bytes", "i8"), ("op", "i1")]
def say(note, **fields):
    print(json.dumps({"note": note, **fields}), flush=True)
def block(count):
    return {name: np.zeros(count, code) for name, code in COLUMNS}
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a helper whose program is `body`; returns it once it has ended, and the rows that it left."""
    def run(body):
        program = tmp_path / "helper"
        program.write_text(f"#!{sys.executable}\n" + PROLOGUE + textwrap.dedent(body))
        program.chmod(0o755)
        monkeypatch.setattr(helper_module, "HELPER", program)
        changed = threading.Event()
        spool = Spool(tmp_path / "t.parquet", TRACE_SCHEMA, {})
        helper = Helper([], spool, changed.set)
        assert changed.wait(300)
        helper.stop()
        return helper, open_trace(spool.finish({})).rows

    return run


def test_rows_and_totals_arrive(run):
    helper, rows = run("""
        writer = BlockWriter(rows, "capture", COLUMNS, checksums=True)
        say("attached", source_format="bpf:tp_btf", epoch_ns=5)
        say("progress", events=3, lost=1)
        writer.rows(block(3)); writer.rows(block(2))
        writer.end({})
        say("end", events=5, lost={"total": 1})
    """)
    assert rows == 5
    assert helper.attached == {"source_format": "bpf:tp_btf", "epoch_ns": 5}
    assert helper.end["events"] == helper.events == 5 and helper.lost == 1 and helper.error is None


def test_the_words_of_a_helper_that_cannot_begin_reach_the_user(run):
    helper, _ = run('sys.exit("no permission to load BPF programs; run it as root")')
    assert helper.died
    assert helper.error.message == "no permission to load BPF programs" and helper.error.remedy == "run it as root"


def test_a_helper_killed_in_mid_stream_is_told_from_an_end(run):
    helper, rows = run("""
        writer = BlockWriter(rows, "capture", COLUMNS, checksums=True)
        writer.rows(block(4))
        rows.write(b"BLK1 half a block")
        sys.stdout.write('{"note": "en'); sys.stdout.flush()
        os.kill(os.getpid(), 9)
    """)
    assert rows == 4 and helper.died and "signal 9" in str(helper.error) and helper.end is None


def test_words_that_are_not_its_own_end_the_capture(run):
    helper, _ = run("""
        print("what?", flush=True)
        sys.stdin.read()
    """)
    assert helper.error is not None and helper.end is None


def test_names_of_threads_are_utf8_and_invalid_bytes_are_replaced():
    """The helper sends bytes as code points."""
    helper = Helper.__new__(Helper)
    helper.names = {}
    comm = "Überspiel".encode()[:15].decode("latin-1")
    helper._take({"note": "threads", "threads": [[7, 5, comm, "cut \xc3", "/cgroup"]]})
    assert helper.names == {7: (5, "Überspiel", "cut \ufffd")}
