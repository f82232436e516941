"""Metadata that others changed: wrong types, nulls, deep nesting and long integers are refused with the key."""


import numpy as np
import pyarrow.parquet as pq
import pytest
from small_trace import new_trace

from blkreel.common.errors import TraceError
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import KEY_PREFIX


def with_metadata(table, path, texts):
    pq.write_table(table.replace_schema_metadata({f"{KEY_PREFIX}{key}": text for key, text in texts.items()}), path)
    return path


@pytest.mark.parametrize("key, text, reason", [
    ("devices", "[{\"path\": 5}]", "devices[0].path is not a string"),
    ("devices", "null", "devices is not a list"),
    ("threads", "[]", "threads is not an object"),
    ("lost", "{}", "lost.total is missing"),
    ("run", "{\"verdict\": {\"level\": \"valid\", \"reasons\": [{}]}}", "run.verdict.reasons[0].level is missing"),
    ("run", "{\"verdict\": {\"level\": \"\", \"reasons\": []}}", "run.verdict.level is not one of 'valid'"),
    ("epoch_ns", "99999999999999999999999", "epoch_ns is out of range"),
    ("epoch_ns", str(1 << 62), "epoch_ns is out of range"),
    ("ledger", "[" * 50_000, "nested too deeply"),
    ("epoch_ns", "9" * 5000, "is damaged")])
def test_the_refusal_names_the_key(tmp_path, key, text, reason):
    new_trace(tmp_path / "t.parquet", {}, submit_ns=np.arange(2), offset_bytes=0, length_bytes=512)
    texts = {"schema_version": "1", key: text}
    changed = with_metadata(open_trace(tmp_path / "t.parquet").table(), tmp_path / "changed.parquet", texts)
    with pytest.raises(TraceError) as error:
        open_trace(changed)
    assert reason in str(error.value) and str(changed) in str(error.value)
