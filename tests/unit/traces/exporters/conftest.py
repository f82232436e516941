"""Fixtures of the tests of exports."""

import pytest
from small_trace import write_trace

from blkreel.traces.exporters import FORMATS, export_trace
from blkreel.traces.format.reader import open_trace


@pytest.fixture
def trace(tmp_path):
    return open_trace(write_trace(tmp_path / "t.parquet"))


@pytest.fixture
def exported(tmp_path):
    """exported(trace, format): the path of the file, and the account."""
    def export(opened, name):
        result = export_trace(opened, tmp_path / f"out.{name}", FORMATS[name])
        assert result.file_bytes == result.path.stat().st_size
        assert result.account.rows == opened.rows
        return result.path, result.account

    return export
