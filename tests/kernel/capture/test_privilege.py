"""Only the helper has privileges, and only until its programs are loaded."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from capture_sources import assert_recorded
from waiting import wait_until

from blkreel.capture import helper as capture_helper
from blkreel.traces.format.reader import open_trace

pytestmark = pytest.mark.kernel

NEEDED = "cap_bpf,cap_perfmon"


@pytest.fixture
def open_directory():
    """Of an ordinary user, whose path everybody may walk."""
    directory = Path(tempfile.mkdtemp(prefix="blkreel-test-", dir="/var/tmp"))
    directory.chmod(0o777)
    yield directory
    shutil.rmtree(directory)


def status_of(pid):
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def test_a_helper_that_records_can_do_nothing_else(blkreel, loop_drive, tmp_path):
    """No variable changes that: the helper that keeps its privileges is another program, which is not installed."""
    process = blkreel.start("capture", loop_drive(), "-o", tmp_path / "t.parquet", env={"BLKREEL_KEEP_PRIVILEGE": "1"})
    try:
        metadata = tmp_path / ".t.parquet.spool/metadata.json"
        wait_until(lambda: metadata.exists() and "epoch_ns" in metadata.read_text(), process)
        helper, = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for task in Path(f"/proc/{helper}/task").iterdir():
            status = status_of(f"{helper}/task/{task.name}")
            # The programs' ledger is behind CAP_BPF on some kernels; nothing else may be left.
            assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) in (0, 1 << 39), task.name
            assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == int(status["CapBnd"], 16) == 0
            assert status["NoNewPrivs"] == "1"
            assert set(status["Uid"].split()) == set(status["Gid"].split()) == {"65534"}
            assert not status["Groups"].strip()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=300)[1].count("not complete") == 0
    finally:
        process.kill()
    assert process.returncode == 0
    assert open_trace(tmp_path / "t.parquet").metadata["ledger"]["reused"] == 0, "the ledger was read after that"


def test_an_ordinary_user_captures_by_a_helper_with_capabilities(loop_drive, as_nobody, program, open_directory):
    """The whole installed package is copied: a capability belongs to a file, and that of the machine is left alone."""
    drive, site = loop_drive(), open_directory / "site"
    shutil.copytree(Path(capture_helper.HELPER).parents[1], site / "blkreel")
    helper = site / "blkreel/capture/blkreel-capture"
    if subprocess.run([program("setcap", "libcap2-bin"), f"{NEEDED}+ep", helper], capture_output=True).returncode:
        pytest.skip("needs a file system with file capabilities under /var/tmp")
    run = [*as_nobody, sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv.pop(1));"
           "from blkreel.cli.main import main; sys.exit(main())", site]
    output = open_directory / "t.parquet"
    process = subprocess.Popen([*run, "capture", drive, "-o", output, "--for", "30s"], stderr=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True, cwd="/", env={**os.environ, "HOME": "/"})
    metadata = open_directory / ".t.parquet.spool/metadata.json"
    wait_until(lambda: metadata.exists() and "epoch_ns" in metadata.read_text(), process)
    subprocess.run(["dd", f"if={drive}", "of=/dev/null", "bs=512", "count=300", "iflag=direct", "status=none"],
                   check=True)
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=300)
    assert_recorded(process.returncode, stderr)
    assert open_trace(output).rows == 300 and output.stat().st_uid == 65534
    refused = subprocess.run([*run, "capture", drive, "-o", open_directory / "cold.parquet", "--cold", "--", "true"],
                             capture_output=True, text=True, cwd="/")
    assert refused.returncode == 1 and "drop the page cache" in refused.stderr and "root" in refused.stderr
