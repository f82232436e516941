"""The helper as a process: one that cannot start, and one that does not end."""

import errno
import os
from pathlib import Path

import pytest

from blkreel.common.errors import BlkreelError
from blkreel.replay.engine import engine
from blkreel.replay.engine.engine import RECORD_COLUMNS, EngineOptions, Lane, run_engine
from blkreel.replay.simulated.spec import ZERO_LATENCY
from blkreel.traces.spool.blocks import BlockWriter

GIB = 1 << 30


def descriptors():
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("name", ["blkreel.replay.engine.engine.subprocess.Popen",
                                  "blkreel.replay.simulated.state.Running.files"])
def test_a_helper_that_cannot_start_leaves_no_descriptor(a_plan, monkeypatch, name):
    def refuse(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/file")

    monkeypatch.setattr(name, refuse)
    before = descriptors()
    with pytest.raises(BlkreelError, match="cannot start the replay helper: /tmp/file: No space left") as error:
        run_engine(EngineOptions(nil_bytes=GIB, simulated=(ZERO_LATENCY,)),
                   [Lane([a_plan([0])], 1), Lane([a_plan([0])], 1)], lambda rows: None, lambda note: None)
    del error  # its traceback refers to the files of the function that failed
    assert descriptors() == before


def test_a_full_temporary_directory_is_named(a_plan, monkeypatch, tmp_path):
    """The message blamed the helper, and named doctor, which finds nothing."""
    def write(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")  # without a name, as by write(2)

    monkeypatch.setattr("blkreel.replay.simulated.state.Running.files", write)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(BlkreelError, match=f"no space left for temporary files in {tmp_path}.*TMPDIR"):
        run_engine(EngineOptions(nil_bytes=GIB, simulated=(ZERO_LATENCY,)), [Lane([a_plan([0])])], lambda rows: None,
                   lambda note: None)


@pytest.mark.parametrize("ends_its_stream", [True, False])
def test_a_helper_that_does_not_end_is_killed_and_waited_for(a_plan, monkeypatch, tmp_path, ends_its_stream):
    with open(tmp_path / "stream", "wb") as file:
        writer = BlockWriter(file, "records", RECORD_COLUMNS, checksums=False)
        if ends_its_stream:
            writer.end({})
    helper = tmp_path / "helper"
    helper.write_text(f"#!/bin/sh\ntrap '' TERM\necho $$ > {tmp_path}/pid\ncat {tmp_path}/stream\nexec >&-\n"
                      "exec sleep 1000\n")
    helper.chmod(0o755)
    monkeypatch.setattr(engine, "HELPER", helper)
    monkeypatch.setattr(engine, "_END_TIMEOUT_S", 0.2)
    with pytest.raises(BlkreelError, match="the replay helper did not end within 0.2 s"):
        run_engine(EngineOptions(nil_bytes=GIB), [Lane([a_plan([0])])], lambda rows: None, lambda note: None)
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # it would be a zombie
