"""Rows of traces that tools made of others, and what holds of each such trace."""

import numpy as np

import blkreel
from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS
from blkreel.traces.format.trace_survey import survey_in


def of_another_machine(name, path):
    """A copy of a trace with another host, so that its clock, threads and drive are not those of the others."""
    return blkreel.write_trace(path, blkreel.open(name).frame(), like=name, metadata={"host": "other"})


def columns_of(path):
    table = open_trace(path).table()
    return {name: table[name].to_numpy() for name in table.column_names}


def valid_rows(path):
    """The columns of a trace without an error, of which dependencies agree with times."""
    assert check(open_trace(path)).errors == []
    rows = columns_of(path)
    linked = np.flatnonzero(rows["waited_on"] >= 0)
    complete_ns = rows["submit_ns"] + rows["latency_ns"]
    assert (rows["submit_ns"][linked] - rows["think_ns"][linked] == complete_ns[rows["waited_on"][linked]]).all()
    return rows


def assert_valid(path):
    """valid_rows(), and each thread and file in the table has a row."""
    trace, rows = open_trace(path), valid_rows(path)
    assert (rows["flags"][rows["waited_on"] < 0] & FLAGS["inherited"] == 0).all()
    assert {int(tid) for tid in trace.metadata.get("threads") or {}} <= set(rows["tid"].tolist())
    assert {file["inode"] for file in trace.metadata.get("files") or []} <= set(rows.get("inode", np.empty(0)).tolist())
    assert survey_in(trace.metadata, trace.row_groups_at) is not None
    return rows
