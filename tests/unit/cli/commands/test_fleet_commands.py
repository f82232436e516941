"""report and compare of a fleet, as a user types them."""

import json
import shutil

import pytest
from range_server import serving
from synthetic_runs import write_run, write_trace


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    root = tmp_path_factory.mktemp("fleet")
    for number in range(3):
        write_run(root / f"run-{number}", f"drive {number}", seed=number, seconds=4)
    write_trace(root / "captured.parquet", seconds=6)
    return root


def test_info_and_check_take_urls(fleet, blkreel):
    with serving(fleet) as server:
        told = json.loads(blkreel("info", f"{server.url}/captured.parquet", "--json").stdout)
        assert told["file_bytes"] == (fleet / "captured.parquet").stat().st_size and told["rows"] > 1000
        assert "complete and valid" in blkreel("check", f"{server.url}/captured.parquet").stdout
        assert blkreel("compare", f"{server.url}/", f"{server.url}/nothing.parquet", check=False).returncode == 1


def test_one_that_cannot_be_read_stops_or_is_left_out_as_asked(fleet, tmp_path, blkreel):
    shutil.copytree(fleet, tmp_path / "fleet")
    broken = tmp_path / "fleet/run-1/records.parquet"
    broken.write_bytes(broken.read_bytes()[:-100])
    stopped = blkreel("compare", tmp_path / "fleet", check=False)
    assert stopped.returncode == 1 and stopped.stdout == ""
    assert "run-1/records.parquet is truncated" in stopped.stderr
    assert "go on without it: --skip-unreadable" in stopped.stderr and stopped.stderr.count("\n") == 1
    went_on = blkreel("compare", tmp_path / "fleet", "--skip-unreadable", "--json", check=False)
    document = json.loads(went_on.stdout)
    assert went_on.returncode == 3
    assert "blkreel: skipped: " in went_on.stderr and "run-1/records.parquet is truncated" in went_on.stderr
    assert any("1 of 4 traces could not be read" in note and "run-1" in note for note in document["notes"])
    assert document["cache"]["traces"] == 3


def test_none_that_can_be_read(tmp_path, blkreel):
    (tmp_path / "a.parquet").write_text("x" * 100)
    (tmp_path / "b.parquet").write_text("y" * 100)
    assert "none of 2 traces could be read" in blkreel("compare", tmp_path, "--skip-unreadable", code=1).stderr


@pytest.mark.parametrize(("words", "messages"), [
    (["report"], ["holds 4 traces", "blkreel compare"]),
    (["compare", "--jobs", "2", "--cluster", "tcp://127.0.0.1:9"], ["leave out one of them"])])
def test_what_no_fleet_takes_is_refused(fleet, blkreel, words, messages):
    stderr = blkreel(*words, fleet, code=2).stderr
    assert all(message in stderr for message in messages)
