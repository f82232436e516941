"""`blkreel report --frames`: the document, the page, another drive, and what is refused."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from damaged import StoredMetadata
from documents import valid_document
from rendering import BY_COMPUTING, BY_IO, STALL_NS, mangohud, rendered

BLKREEL = Path(sys.executable).with_name("blkreel")
FAST = "nil:1GiB,clock=virtual,read_latency=100us"
SLOW = "nil:1GiB,clock=virtual,read_latency=40ms"


@pytest.fixture(scope="module")
def run(command_server):
    def run(directory, *words, code=0):
        result = command_server.run([BLKREEL, *words], cwd=directory, timeout=300,
                                    env={**os.environ, "COLUMNS": "200"})
        assert result.returncode == code, result.stderr
        return result

    return run


@pytest.fixture(scope="module")
def directory(tmp_path_factory, run):
    """A trace, its frame log, and replays at dependent pace on a fast and a slow drive."""
    directory = tmp_path_factory.mktemp("frames")
    rows, ends, time_ns = rendered(stream=False)
    rows.write(directory / "t.parquet")
    mangohud(directory, ends, time_ns).rename(directory / "kart.csv")
    for name, drive, *options in (("fast", FAST, "--pace", "dependent"), ("slow", SLOW, "--pace", "dependent"),
                                  ("original", FAST)):
        run(directory, "replay", "t.parquet", "--on", drive, "-o", name, *options)
    return directory


@pytest.mark.parametrize(("drive", "gone"), [("fast", len(BY_IO)), ("slow", 0)])
def test_another_drive_ends_the_stutters_that_it_serves_fast_enough(run, directory, drive, gone):
    """40 ms beyond a usual frame of 10 ms is a stutter still."""
    result = run(directory, "report", "t.parquet", "--frames", "kart.csv", "--frames-run", drive, "--json")
    frames = valid_document("report", result.stdout)["frames"]
    assert frames["other_drive"]["gone"] == gone and frames["other_drive"]["verdict"]["level"] == "valid"
    assert f"{gone} of 6 would be gone on" in frames["sentence"]
    for stutter in frames["stutters"]:
        if stutter["cause"] == "io":
            assert stutter["gone"] == (gone > 0)
            expected_ns = stutter["time_ns"] - STALL_NS + (100_000 if gone else 40_000_000)
            assert abs(stutter["other_time_ns"] - expected_ns) < 2_000_000
        else:
            assert stutter["gone"] is None


def test_the_terminal_leads_with_the_stutters(run, directory):
    lines = run(directory, "report", "t.parquet", "--frames", "kart.csv", "--all").stdout.splitlines()
    assert lines[0] == "6 of 12 stutters waited for I/O, which took 900 ms, mostly for level.pak"
    assert sum("I/O: 150 ms, read of level.pak by kart" in line for line in lines) == len(BY_IO)
    assert sum(line.endswith("not I/O") for line in lines) == len(BY_COMPUTING)
    assert any("Clocks aligned by the time of the last change" in line for line in lines)


def test_the_page_and_its_tables(run, directory):
    run(directory, "report", "t.parquet", "--frames", "kart.csv", "--frames-run", "fast", "-o", "t.html")
    page = (directory / "t.html").read_text()
    assert "6 of 12 stutters waited for I/O" in page and 'id="frame-times"' in page and "Clocks aligned" in page
    table = run(directory, "report", "t.parquet", "--frames", "kart.csv", "--format", "csv", "--chart",
                "stutters").stdout
    assert table.count("read of level.pak by kart") >= len(BY_IO)


@pytest.mark.parametrize(("words", "message"), [
    (["t.parquet", "--frames", "none.csv"], "none.csv: No such file or directory"),
    (["t.parquet", "--frames-run", "fast"], "--frames-run has no effect without --frames"),
    (["t.parquet", "--frames-start", "1s"], "--frames-start has no effect without --frames"),
    (["t.parquet", "--frames", "kart.csv", "--frames-run", "original"], "replayed at original pace"),
    (["t.parquet", "--frames", "kart.csv", "--frames-run", "t.parquet"], "is a trace, not a replay"),
    (["sample:game-small", "--frames", "kart.csv"], "no start time"),
    (["sample:game-small", "--frames", "kart.csv", "--frames-start", "1s", "--frames-run", "fast"],
     "a replay of another trace"),
    (["fast", "--frames", "kart.csv"], "is a replay, and frames are of the captured application"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_refusals(run, directory, words, message):
    error = run(directory, "report", *words, code=2).stderr
    assert message in error and len(error.strip().splitlines()) == 1, error


def test_an_invalid_replay_shows_nothing(run, directory):
    """Its latencies are not those of a drive."""
    invalid = shutil.copytree(directory / "fast", directory / "invalid")
    stored = StoredMetadata(invalid / "records.parquet")
    verdict = {"level": "invalid", "reasons": [{"level": "invalid", "text": "I/O errors"}]}
    stored.replace({**stored.whole, "run": {**stored.whole["run"], "verdict": verdict}})
    (invalid / "amended.json").unlink(missing_ok=True)
    result = run(directory, "report", "t.parquet", "--frames", "kart.csv", "--frames-run", "invalid", "--json")
    frames = valid_document("report", result.stdout)["frames"]
    assert frames["other_drive"]["gone"] is None and "the replay is invalid" in frames["sentence"]
    assert {stutter["other_time_ns"] for stutter in frames["stutters"]} == {None}
