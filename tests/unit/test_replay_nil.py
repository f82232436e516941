"""A replay on no drive at all: all of blkreel, and nothing behind it."""

import json

import numpy as np
import pytest

from blkreel.traces.schema import OPS
from blkreel.traces.writer import TraceWriter

ROWS = 3000


@pytest.fixture
def trace(tmp_path):
    random = np.random.default_rng(3)
    with TraceWriter(tmp_path / "t.parquet") as out:
        out.write({"submit_ns": np.arange(ROWS) * 1000, "latency_ns": np.full(ROWS, 100),
                   "offset_bytes": random.integers(0, 1 << 18, ROWS) * 4096, "length_bytes": np.full(ROWS, 4096),
                   "op": random.integers(0, 2, ROWS) * OPS["write"]})
        out.close({"devices": [{"name": "src", "size_bytes": 1 << 30}]})
    return tmp_path / "t.parquet"


@pytest.mark.parametrize("arguments", [("--pace", "asap"), ("--pace", "asap", "--no-prefill"),
                                       ("--pace", "depth=4", "--map", "tile=3"), ("--pace", "original")])
def test_it_issues_everything_and_does_not_pass_for_a_measurement(blkreel, trace, tmp_path, arguments):
    result = blkreel("replay", trace, "--on", "nil:4GiB", "-o", tmp_path / "run", "--json", *arguments,
                     check=False)
    assert result.returncode == 3, result.stderr
    run = json.loads(result.stdout)["run"]
    assert run["completed_ops"] == run["planned_ops"] == ROWS * run["map"].get("copies", 1)
    assert run["as_planned"]
    assert run["verdict"]["level"] == "invalid"
    assert any("no drive" in reason["text"] for reason in run["verdict"]["reasons"])
    assert len(run["source"]["sha256"]) == 64


def test_it_goes_without_pandas(blkreel, trace, tmp_path):
    """A process of a replay is to stay small and to start soon."""
    result = blkreel("replay", trace, "--on", "nil:1GiB", "-o", tmp_path / "run", check=False,
                     env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert result.returncode == 3
    imported = [line.rpartition("|")[2].strip() for line in result.stderr.splitlines() if "|" in line]
    assert "blkreel.replay.run" in imported
    # An import that was prevented is in the list too, by its own name alone.
    assert not [name for name in imported if name.startswith(("pandas.", "altair"))]


@pytest.mark.parametrize("words", [("nil:0",), ("nil:",), ("nil:x",), ("0=nil:1GiB", "--on", "1=/dev/null")])
def test_words_that_are_no_target(blkreel, trace, tmp_path, words):
    result = blkreel("replay", trace, "--on", *words, "-o", tmp_path / "run", check=False)
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1


def test_there_is_nothing_to_prepare(blkreel):
    result = blkreel("precondition", "nil:1GiB", "--state", "full", check=False)
    assert result.returncode == 2
    assert "blkreel drives" in result.stderr
