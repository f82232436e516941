"""Traces and runs that other programs wrote: a message instead of an internal error."""

import os

import numpy as np
import pyarrow.parquet as pq
import pytest
from damaged import StoredMetadata
from empty_image import empty_image
from small_trace import new_trace

from blkreel.traces.format.schema import OPS


@pytest.fixture
def trace(tmp_path):
    return new_trace(tmp_path / "t.parquet", drive_bytes=1 << 20, submit_ns=np.arange(10) * 1000, op=OPS["read"])


@pytest.mark.parametrize("words", [["check"], ["slice", "--from", "1us", "-o", "out"], ["replay", "--on", "nil:1GiB",
                                                                                         "-o", "out"]],
                         ids=lambda words: words[0])
def test_a_column_with_a_null(blkreel, trace, tmp_path, words):
    table = pq.read_table(trace)
    index = table.schema.get_field_index("length_bytes")
    pq.write_table(table.set_column(index, "length_bytes", [[None, *table["length_bytes"].to_pylist()[1:]]]), trace)
    result = blkreel(words[0], trace, *words[1:], check=False, cwd=tmp_path)
    assert result.returncode == 1 and "column length_bytes has 1 values missing" in result.stderr


def test_a_name_of_a_bit_that_is_no_number(blkreel, trace):
    stored = StoredMetadata(trace)
    stored.replace({**stored.whole, "flag_names": {"constructor": "x"}})
    result = blkreel("check", trace, check=False)
    assert "flag_names.constructor is not the number of a bit" in result.stderr


def test_names_that_are_no_utf_8(blkreel, trace, tmp_path):
    """Drive, run, catalog and outputs."""
    name = os.fsdecode(b"\xff")
    empty_image(tmp_path / f"{name}.img", 1 << 20)
    run = tmp_path / f"run{name}"
    blkreel("precondition", tmp_path / f"{name}.img", "--state", "full")
    blkreel("replay", trace, "--on", tmp_path / f"{name}.img", "-o", run, code=(0, 3))
    blkreel("info", run)
    blkreel("report", run, "-o", tmp_path / f"{name}.html")
    assert b"run\\xff" in (tmp_path / f"{name}.html").read_bytes()
    blkreel("export", run / "records.parquet", "--format", "csv", "-o", tmp_path / f"{name}.csv")
    assert b"\\xff.img" in (tmp_path / f"{name}.csv").read_bytes()
    blkreel("results", "add", run, "--catalog", tmp_path / f"catalog{name}")
    assert "\\xff" in blkreel("results", "list", "--catalog", tmp_path / f"catalog{name}", "--json").stdout
