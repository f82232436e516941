"""`blkreel demo`, interrupted: it ends soon, says so, and leaves nothing."""

import signal
import subprocess

import pytest

from blkreel.cli.demo import workspace as demo_workspace
from blkreel.common.emulated import LINKS, RUN

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("require_root")]


# Step 3: beside the program runs a writer. Step 5: on the emulated drive.
@pytest.mark.parametrize(("number", "code", "step"), [(signal.SIGTERM, 143, 3), (signal.SIGINT, 130, 5)])
def test_an_interrupted_demo_gives_its_drives_back(blkreel, tmp_path, number, code, step):
    work = tmp_path / "work"
    work.mkdir()
    demo = subprocess.Popen([blkreel.command, "demo", "--quick", "--work", work, "-o", tmp_path / "out"],
                            stderr=subprocess.PIPE, text=True, env=blkreel.environment)
    try:
        for line in demo.stderr:
            if line.startswith(f"{step}/"):
                break
        below = f"{work}/{demo_workspace.WORKSPACE_NAME}/"
        assert below in losetup_list()
        demo.send_signal(number)
        rest = demo.stderr.read()
        assert demo.wait(timeout=60) == code, rest
    finally:
        demo.kill()
    assert "Traceback" not in rest
    assert below not in losetup_list()
    assert not list(work.iterdir())
    assert not (RUN / "demo-sata-qlc").exists() and not (LINKS / "demo-sata-qlc").is_symlink()
    # What a next demo may replace is known as a demo's.
    assert (tmp_path / "out" / demo_workspace.MARK).exists()


def losetup_list():
    return subprocess.run(["losetup", "--list", "--noheadings", "--output", "BACK-FILE"], capture_output=True,
                          text=True, check=True).stdout
