"""An import of bytes or text."""

import pytest

from blkreel.traces.format.reader import open_trace
from blkreel.traces.importers import ImportOptions, import_recording


@pytest.fixture
def run(tmp_path):
    """run(data, format_name) is (frame, result); of a list of (name, data), the import of several files."""
    def import_data(data, format_name=None, name="recording", **options):
        files = data if isinstance(data, list) else [(name, data)]
        for each, content in files:
            (tmp_path / each).write_bytes(content.encode() if isinstance(content, str) else content)
        result = import_recording([tmp_path / each for each, _ in files], tmp_path / "t.parquet", force=True,
                                  format_name=format_name, options=ImportOptions(**options))
        return open_trace(result.path).table().to_pandas(), result

    return import_data
