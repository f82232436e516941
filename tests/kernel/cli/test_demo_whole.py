"""The whole way once: from a real program to the answer in one sentence, and what each step left behind. Then the same,
interrupted: it ends soon, says so, and leaves nothing.

One file, because the emulated drive of a demo has one name on the machine: two workers would wait for each other.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from blkreel.analysis.report.html.rendering import unbroken
from blkreel.cli.demo import workspace as demo_workspace
from blkreel.common.emulated import LINKS, RUN
from blkreel.replay.simulated.spec import typical_drives
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(900)]

PAIRS = 3
DATASET_BYTES = 100_000_000
# `demo --quick` with a dataset and pairs of its own, and a short time of writes before the simulated loads.
QUICK = """
import sys
sys.argv[0], dataset_bytes, pairs = sys.argv[1], int(sys.argv.pop(2)), int(sys.argv.pop(2))
from blkreel.cli.demo import run, typical
from blkreel.cli.main import main
run.QUICK, typical._LEAD = run.Size(dataset_bytes, pairs), ("--background-lead", "2s")
del sys.argv[1]
main()
"""
LABELS = {"disk": "disk image", "emulated": "emulated SATA QLC"}


def quick(dataset_bytes, pairs):
    """The words of the demo."""
    return [sys.executable, "-P", "-c", QUICK, Path(sys.executable).with_name("blkreel"), str(dataset_bytes),
            str(pairs), "demo", "--quick"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Output directory, and what was printed."""
    if os.geteuid() != 0:
        pytest.skip("needs root: run `sudo make test`")
    if not Path("/dev/fuse").exists():
        pytest.skip("needs /dev/fuse: modprobe fuse")
    work = tmp_path_factory.mktemp("demo")
    result = subprocess.run([*quick(DATASET_BYTES, PAIRS), "-o", work / "out", "--work", work], capture_output=True,
                            text=True, timeout=800,
                            env={**os.environ, "COLUMNS": "80", "BLKREEL_STATE_DIR": str(work / "state")})
    assert result.returncode in (0, 3), result.stderr
    assert not loop_devices_over(work), "the demo keeps loop devices"
    assert not (RUN / "demo-sata-qlc").exists(), "the demo keeps its emulated drive"
    return work / "out", result


def loop_devices_over(directory):
    """Those whose file lies there. Which others there are may change meanwhile: they are not the demo's."""
    listed = subprocess.run(["losetup", "--json", "--list"], capture_output=True, text=True, check=True).stdout
    return {entry["name"] for entry in json.loads(listed or '{"loopdevices": []}')["loopdevices"]
            if Path(entry["back-file"]).is_relative_to(directory)}


def accounts(output, key):
    return [open_trace(output / "runs" / f"{key}-{number + 1}").metadata["run"] for number in range(PAIRS)]


def test_the_trace_holds_the_reads_of_the_program_and_of_nothing_else(demo):
    output, _ = demo
    trace = open_trace(output / "source.parquet")
    frame = trace.table().to_pandas()
    names = frame["tid"].astype(str).map({tid: entry["comm"] for tid, entry in trace.metadata["threads"].items()})
    read_by = frame[frame.op == 0].groupby(names).length_bytes.sum()
    assert read_by["python3"] > 0.98 * DATASET_BYTES and read_by["python3"] > 0.95 * read_by.sum()
    assert trace.metadata["lost"]["total"] == 0


def test_both_drives_replayed_the_capture_whole_beside_the_writes(demo):
    output, _ = demo
    rows = open_trace(output / "source.parquet").rows
    for key, label in LABELS.items():
        for number, account in enumerate(accounts(output, key)):
            assert account["label"] == label
            assert account["planned_ops"] == account["completed_ops"] == rows
            assert account["error_ops"] == 0 and not account["partial"] and account["unwritten_bytes"] == 0
            (background,) = account["background"]
            assert background["words"] == "writes of 110 MB/s" and background["bytes"] > 0
            frame = open_trace(output / "runs" / f"{key}-{number + 1}").table(["flags", "length_bytes"]).to_pandas()
            of_background = frame.length_bytes[(frame["flags"] & FLAGS["role_background"]) != 0]
            assert background["bytes"] == of_background.sum()
            assert bool(account["emulated"]) == (key == "emulated")


def test_the_emulated_drive_is_a_sata_drive(demo):
    """The program and the replay read at most at the rate of its link."""
    output, result = demo
    for account in accounts(output, "emulated"):
        assert account["baseline"]["load_time_ns"] > 0.95 * DATASET_BYTES / 550e6 * 1e9
    assert "nil:sata-qlc" in result.stderr


def test_the_last_line_is_the_answer_and_the_title_of_the_page(demo):
    output, result = demo
    *_, page_line, answer = result.stdout.splitlines()
    assert page_line == f"Page: {output / 'compare.html'}"
    assert answer.startswith("Data scan beside writes of 110 MB/s: ") and "; the program itself: " in answer
    html = (output / "compare.html").read_text()
    assert f"<title>{answer}: blkreel compare</title>" in html
    assert f"<h1>{unbroken(answer)}</h1>" in html


def test_program_and_replay_stand_side_by_side_on_both_drives_and_typical_ones_are_simulated(demo):
    output, result = demo
    html = (output / "compare.html").read_text()
    for text in (result.stdout, html):
        for words in (*LABELS.values(), "program", "replay", "SATA TLC", "USB stick", "3D XPoint"):
            assert words in text
    assert "late" in result.stdout, "the late answers of the emulated drive are not shown"
    assert len([path for path in (output / "runs").iterdir() if path.is_dir()]) == 2 * PAIRS + len(typical_drives())


# Step 3: beside the program runs a writer. Step 5: on the emulated drive.
@pytest.mark.usefixtures("require_root")
@pytest.mark.parametrize(("number", "code", "step"), [(signal.SIGTERM, 143, 3), (signal.SIGINT, 130, 5)])
def test_an_interrupted_demo_gives_its_drives_back(blkreel, tmp_path, number, code, step):
    work = tmp_path / "work"
    work.mkdir()
    demo = subprocess.Popen([*quick(20_000_000, 1), "--work", work, "-o", tmp_path / "out"], stderr=subprocess.PIPE,
                            text=True, env=blkreel.environment)
    try:
        for line in demo.stderr:
            if line.startswith(f"{step}/"):
                break
        below = f"{work}/{demo_workspace.WORKSPACE_NAME}/"
        assert below in losetup_list()
        demo.send_signal(number)
        rest = demo.stderr.read()
        assert demo.wait(timeout=300) == code, rest
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
