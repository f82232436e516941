"""An import of the bytes or the text of one file."""

import pytest

from blkreel.traces.format.reader import open_trace
from blkreel.traces.importers import ImportOptions, import_recording


@pytest.fixture
def run(tmp_path):
    """run(data, format_name) is (frame, result)."""
    def import_data(data, format_name=None, **options):
        (tmp_path / "recording").write_bytes(data.encode() if isinstance(data, str) else data)
        result = import_recording([tmp_path / "recording"], tmp_path / "t.parquet", force=True,
                                  format_name=format_name, options=ImportOptions(**options))
        return open_trace(result.path).table().to_pandas(), result

    return import_data
