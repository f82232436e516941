"""`blkreel test` as a user calls it, on a loop device: refusals, figures, and interruptions under way."""

import hashlib
import json
import os
import signal
from pathlib import Path

import pytest
from helpers import helpers_of
from loop_device import ext4
from small_benchmark import TWO_DEPTHS
from waiting import wait_until

from blkreel.traces.format.reader import open_trace

pytestmark = pytest.mark.kernel

MIB = 1 << 20
DRIVE_BYTES = 64 * MIB
RECIPE = TWO_DEPTHS.replace("50ms", "300ms").replace(
    "[[steps]]\neach", '[[steps]]\ndo = "state"\nstate = "full"\n[[steps]]\neach')


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "two-depths.toml"
    path.write_text(RECIPE)
    return path


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


def test_from_the_state_to_the_figures(blkreel, recipe, loop_drive, tmp_path):
    drive = loop_drive(DRIVE_BYTES)
    result = blkreel("test", recipe, "--on", drive, "-o", tmp_path / "out", "--json", check=False)
    assert result.returncode in (0, 3), result.stderr
    document = json.loads(result.stdout)
    assert (document["version"], document["test"], document["quick"]) == (1, "two-depths", False)
    assert document == json.loads((tmp_path / "out/results.json").read_text())
    assert_whole(tmp_path / "out")
    assert "step 1 of 3: state full (left: at most 600 ms, plus 1 step without a time limit)" in result.stderr
    # Done is done: what is asked for again is shown, and nothing is issued.
    before = told(tmp_path / "out")
    again = blkreel("test", "--resume", tmp_path / "out", check=False)
    assert "two depths" in again.stdout
    assert told(tmp_path / "out")["steps"] == before["steps"]
    assert blkreel("test", recipe, "--on", drive, "-o", tmp_path / "out", check=False).returncode == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interruption_costs_one_step(blkreel, started_test, recipe, loop_drive, tmp_path, how):
    output = tmp_path / "out"
    drive = loop_drive(DRIVE_BYTES)
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
    result = blkreel("test", "--resume", output, "--on", drive, check=False)
    assert result.returncode in (0, 3), result.stderr
    assert "state full" not in result.stderr
    assert_whole(output)
    assert [path.name for path in (output / "steps").glob("*.interrupted-1")] == ["02-depth-1.interrupted-1"]


def test_what_cannot_be_is_refused_before_anything_is_touched(blkreel, recipe, loop_drive, tmp_path):
    drive = loop_drive(DRIVE_BYTES)
    image = loop_drive.image_of(drive)
    before = hashlib.sha256(image.read_bytes()).hexdigest()
    out = tmp_path / "out"
    recipe_of_nowhere = tmp_path / "nowhere.toml"
    recipe_of_nowhere.write_text(RECIPE.replace('state = "full"', 'state = "pristine"'))
    for arguments, exit_code, words in (
            ([recipe_of_nowhere, "--on", drive, "-o", out], 2, ["pristine"]),
            ([recipe, "--on", drive, "-o", out, "--set", "time"], 2, ["--set: 'time' has no value"]),
            ([recipe, "--on", "nil:1GiB", "-o", out], 2, ["not a drive"]),
            (["trace", "--on", drive, "-o", out], 1, ["--map wrap"]),
            ([recipe, "--on", drive], 2, ["missing option '-o'"])):
        result = blkreel("test", *arguments, check=False)
        assert result.returncode == exit_code, (arguments, result.stderr)
        for word in words:
            assert word in result.stderr, arguments
        assert not out.exists()
    with ext4(drive, tmp_path / "mounted"):
        result = blkreel("test", recipe, "--on", drive, "-o", out, check=False)
        assert result.returncode == 5
        assert "in use" in result.stderr
        assert not out.exists()
    assert before != hashlib.sha256(image.read_bytes()).hexdigest()  # by mkfs, so the check above can see a change
