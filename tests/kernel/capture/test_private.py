"""A private capture: no name of a program, thread, host or image, and no command line."""

import platform
import shutil
import subprocess

import pyarrow.parquet as pq
import pytest

from blkreel.traces.format.metadata_types import computed_at_least
from blkreel.traces.format.reader import open_trace

pytestmark = pytest.mark.kernel
NAME = "plantedname"


def held(path):
    """All bytes of a trace that anyone could read: as stored, its metadata, and the text of its columns."""
    table = pq.read_table(path)
    texts = [path.read_bytes(), repr(pq.read_metadata(path).metadata).encode()]
    return b"".join(texts) + repr([table[name].to_pylist() for name in table.column_names]).encode()


@pytest.mark.parametrize("options, names", [([], True), (["--private"], False)])
def test_names_of_programs_and_the_command_line(loop_drive, blkreel, tmp_path, options, names):
    drive, trace = loop_drive(), tmp_path / "t.parquet"
    program = shutil.copy(shutil.which("dd"), tmp_path / NAME)
    image = subprocess.run(["losetup", "-nO", "BACK-FILE", drive], capture_output=True, text=True).stdout.strip()
    blkreel("capture", drive, "-o", trace, "--json", *options, "--", program, f"if={drive}", "of=/dev/null", "bs=4096",
            "count=50", "iflag=direct", "status=none")
    data = held(trace)
    assert all((word.encode() in data) == names for word in (NAME, "iflag=direct", image))
    # A host may be called by any word.
    assert open_trace(trace).metadata["host"] == (platform.node() if names else "")
    rows = open_trace(trace).table(["tid", "flags"])
    assert rows.num_rows >= 50 and all(tid > 0 for tid in rows["tid"].to_pylist())
    assert computed_at_least(open_trace(trace).metadata)[0] > 0
    info = blkreel("info", trace).stdout
    assert ("names: docs/import.md" in info) != names


def test_it_excludes_the_names_of_files(loop_drive, blkreel, tmp_path):
    result = blkreel("capture", loop_drive(), "-o", tmp_path / "t.parquet", "--private", "--files", "--", "true",
                     check=False)
    assert result.returncode == 2 and "--private records no names" in result.stderr
    assert not (tmp_path / "t.parquet").exists()
