"""`blkreel test` as a user calls it, on a loop device: interruptions under way."""

import json
import os
import signal
from pathlib import Path

import pytest
from helpers import helpers_of
from small_benchmark import TWO_DEPTHS
from waiting import wait_until

from blkreel.traces.format.reader import open_trace

pytestmark = pytest.mark.kernel

MIB = 1 << 20
DRIVE_BYTES = 64 * MIB
RECIPE = TWO_DEPTHS.replace("50ms", "300ms").replace("steps = [", 'steps = [{ do = "state", state = "full" }, ')


@pytest.fixture
def started_test(blkreel):
    """Starts `blkreel test` in a session of its own; whatever is left of it in the end is killed."""
    processes = []

    def start(*arguments):
        processes.append(blkreel.start("test", *arguments, start_new_session=True))
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def told(output):
    return json.loads((output / "test.json").read_text())


def statuses(output):
    try:
        return [step["status"] for step in told(output)["steps"]]
    except FileNotFoundError:
        return []


def measuring(output, step):
    """Whether records of that step are being written."""
    spools = list((output / "steps").glob(f"{step}*/.records.parquet.spool/rows.blocks"))
    return any(path.stat().st_size > 10_000 for path in spools)


def assert_whole(output, depths=(1, 8)):
    document = told(output)
    assert [step["status"] for step in document["steps"]] == ["done"] * 3
    for step, depth in zip(document["steps"][1:], depths, strict=True):
        run = open_trace(output / step["directory"]).metadata["run"]
        assert run["partial"] is None
        assert run["as_planned"]
        assert run["source"]["labels"] == {"depth": depth}
        assert run["state"]["name"] == "full"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interruption_costs_one_step(blkreel, started_test, loop_drive, tmp_path, how):
    output = tmp_path / "out"
    drive = loop_drive(DRIVE_BYTES)
    recipe = tmp_path / "two-depths.toml"
    recipe.write_text(RECIPE)
    process = started_test(recipe, "--on", drive, "-o", output, "--set", "time=20s")
    wait_until(lambda: measuring(output, "02"), process)
    helpers = helpers_of(process.pid)
    os.kill(process.pid, how)
    _, err = process.communicate(timeout=300)
    if how == signal.SIGKILL:
        # The helper sees that nobody reads, and lets the drive go.
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in helpers))
    else:
        assert process.returncode == 130
        assert "interrupted at 'depth 1'" in err
        assert f"blkreel test --resume {output} --on {drive}" in err
    assert statuses(output) == ["done", "failed", "waiting"]
    # As it was begun, but shorter: who resumes cannot change the test.
    stored = told(output)
    stored["overrides"]["time"] = "300ms"
    (output / "test.json").write_text(json.dumps(stored))
    result = blkreel("test", "--resume", output, "--on", drive, code=(0, 3))
    assert "state full" not in result.stderr
    assert_whole(output)
    assert [path.name for path in (output / "steps").glob("*.interrupted-1")] == ["02-depth-1.interrupted-1"]
