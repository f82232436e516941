"""Commands estimate the disk space of their output before they start; a shortage is a warning and no refusal."""

import shutil
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from blkreel.capture import drives as capture_drives
from blkreel.capture.options import CaptureOptions
from blkreel.capture.session import space_warning
from blkreel.cli.main import cli
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import COMPRESSED_RUN_SCHEMA
from blkreel.traces.spool.space import shortage

# 101 bytes a row, and of half of that and 256 KiB nine eighths reserved; 15 of a finished run.
PEAK_BYTES, LEAST_BYTES, TRACE_BYTES = 101 * (1 + 9 / 16), (256 << 10) * 9 / 8, 15


@pytest.mark.parametrize("ios, needed_bytes", [
    ([10**6], PEAK_BYTES * 10**6), ([10**6, 10**6], (PEAK_BYTES + TRACE_BYTES) * 10**6),
    ([10**6, 10], PEAK_BYTES * 10**6), ([10**5] * 100, TRACE_BYTES * 99 * 10**5 + PEAK_BYTES * 10**5)])
def test_the_peak_of_recordings_one_after_the_other(monkeypatch, tmp_path, ios, needed_bytes):
    def with_free(free_bytes):
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free_bytes))
        return shortage(tmp_path / "missing/run", ios, COMPRESSED_RUN_SCHEMA)

    assert with_free(needed_bytes + LEAST_BYTES) is None
    assert f"{tmp_path} has " in with_free(needed_bytes + LEAST_BYTES - 1)


def test_a_replay_warns(monkeypatch, tmp_path):
    """Of the baseline and of each repetition too."""
    words = ["sample:game-small", "--on", "nil:64GiB", "--dry-run", "-o", str(tmp_path / "run")]

    def stderr_of(free_bytes, *more):
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free_bytes))
        result = CliRunner().invoke(cli, ["replay", *words, *more])
        assert result.exit_code == 0, result.stderr
        return result.stderr

    rows = open_trace("sample:game-small").rows
    assert "a full disk ends the recording early" in stderr_of(rows * 100)
    enough_bytes = rows * 200 + LEAST_BYTES
    assert "full disk" not in stderr_of(enough_bytes)
    assert "a full disk ends the recording early" in stderr_of(enough_bytes, "--repeat", "30")


def test_a_benchmark_warns(blkreel, tmp_path):
    words = ("test", "consistency", "--on", "nil:64GiB,clock=virtual", "--dry-run", "-o", tmp_path / "out", "--set")
    assert "a full disk ends the recording early" in blkreel(*words, "time=1000000h").stderr
    assert "full disk" not in blkreel(*words, "time=1s").stderr


def test_a_capture_of_a_given_time_warns(monkeypatch, tmp_path):
    (tmp_path / "busy").mkdir()
    (tmp_path / "busy/stat").write_text(" ".join(str(10**15 if number in (0, 4) else 0) for number in range(17)))
    monkeypatch.setattr(capture_drives, "SYS_BLOCK", tmp_path)
    drives = [SimpleNamespace(name="busy")]
    options = {"output": tmp_path / "t.parquet", "devices": ["busy"]}
    hour_ns = 3600 * 10**9
    assert "the average since boot, " in space_warning(CaptureOptions(**options, duration_ns=hour_ns), drives)
    assert space_warning(CaptureOptions(**options), drives) is None
    assert space_warning(CaptureOptions(**options, duration_ns=hour_ns, max_bytes=1 << 30), drives) is None
