"""Metadata that others changed: wrong types, nulls, deep nesting and long integers are refused with the key."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from small_trace import new_trace
from synthetic_runs import write_run

from blkreel.analysis.report import present
from blkreel.common.errors import BlkreelError, TraceError
from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import KEY_PREFIX

WRONG = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just([]), st.just({}),
                  st.just(10**4000), st.just([[[[]]]]), st.just({"": {"": None}}))


def with_metadata(table, path, texts):
    pq.write_table(table.replace_schema_metadata({f"{KEY_PREFIX}{key}": text for key, text in texts.items()}), path)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(rows, metadata) of a run."""
    trace = open_trace(write_run(tmp_path_factory.mktemp("run") / "run", seconds=1))
    return trace.table(), trace.metadata


def places(value, path=()):
    """The path of each part of a document."""
    yield path
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(part, (*path, key))


def replaced(value, path, part):
    if not path:
        return part
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], part)
    return copy


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("changed") / "t.parquet"


@cases(13)
@given(data=st.data())
def test_a_changed_part_is_refused_or_harmless(run, scratch, data):
    table, metadata = run
    path = data.draw(st.sampled_from([path for path in places(metadata) if path]))
    changed = replaced(metadata, path, data.draw(WRONG))
    texts = {}
    for key, value in changed.items():
        try:
            texts[key] = json.dumps(value)
        except ValueError:  # Python does not print an integer of so many digits, but a file may have it
            texts[key] = "9" * 5000
    with_metadata(table, scratch, texts)
    try:
        trace = open_trace(scratch)
        check(trace)
        present.report(str(scratch), None)
    except BlkreelError as error:
        assert str(scratch) in str(error)


@pytest.mark.parametrize("key, text, reason", [
    ("devices", "[{\"path\": 5}]", "devices[0].path is not a string"),
    ("devices", "null", "devices is not a list"),
    ("threads", "[]", "threads is not an object"),
    ("lost", "{}", "lost.total is missing"),
    ("run", "{\"verdict\": {\"level\": \"valid\", \"reasons\": [{}]}}", "run.verdict.reasons[0].level is missing"),
    ("run", "{\"verdict\": {\"level\": \"\", \"reasons\": []}}", "run.verdict.level is not one of 'valid'"),
    ("epoch_ns", "99999999999999999999999", "epoch_ns is out of range"),
    ("ledger", "[" * 50_000, "nested too deeply"),
    ("epoch_ns", "9" * 5000, "is damaged")])
def test_the_refusal_names_the_key(tmp_path, key, text, reason):
    new_trace(tmp_path / "t.parquet", {}, submit_ns=np.arange(2), offset_bytes=0, length_bytes=512)
    texts = {"schema_version": "1", key: text}
    changed = with_metadata(open_trace(tmp_path / "t.parquet").table(), tmp_path / "changed.parquet", texts)
    with pytest.raises(TraceError) as error:
        open_trace(changed)
    assert reason in str(error.value) and str(changed) in str(error.value)
