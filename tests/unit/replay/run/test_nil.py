"""A replay on no drive at all: all of blkreel, and nothing behind it."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from empty_image import empty_image
from small_trace import new_trace
from tree import APP_START

from blkreel.common.errors import UsageError
from blkreel.common.units import counted
from blkreel.traces.format.check import check_order
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS, WRITE_FLAGS

ROWS = 3000


@pytest.fixture
def trace(tmp_path):
    random = np.random.default_rng(3)
    return new_trace(tmp_path / "t.parquet", drive_bytes=1 << 30, offset_bytes=random.integers(0, 1 << 18, ROWS) * 4096,
                     op=random.integers(0, 2, ROWS) * OPS["write"])


@pytest.mark.parametrize("arguments", [("--pace", "asap", "--no-prefill"),
                                       ("--pace", "depth=4", "--map", "tile=3"), ("--pace", "original")])
def test_it_issues_everything_and_does_not_pass_for_a_measurement(blkreel, trace, tmp_path, arguments):
    result = blkreel("replay", trace, "--on", "nil:4GiB", "-o", tmp_path / "run", "--json", *arguments, code=3)
    run = json.loads(result.stdout)["run"]
    assert run["completed_ops"] == run["planned_ops"] == ROWS * run["map"].get("copies", 1)
    assert run["as_planned"]
    assert run["verdict"]["level"] == "invalid"
    assert any("no drive" in reason["text"] for reason in run["verdict"]["reasons"])
    assert len(run["source"]["sha256"]) == 64


def test_priorities_alter_nothing_on_a_simulated_drive(blkreel, tmp_path):
    """It has none: neither the rights of the caller nor the operation matter."""
    trace = new_trace(tmp_path / "t.parquet", drive_bytes=1 << 20, offset_bytes=np.arange(2) * 4096,
                      op=[OPS["read"], OPS["flush"]], length_bytes=[4096, 0], flags=FLAGS["priority_realtime"])
    result = blkreel("replay", trace, "--on", "nil:1MiB,clock=virtual", "-o", tmp_path / "run", "--json", check=False)
    assert json.loads(result.stdout)["run"]["altered"] == {}


def test_each_write_hint_has_its_bytes(blkreel, tmp_path):
    """No drive takes all of them; a file has one hint for all its writes, and no atomic ones."""
    flags = [FLAGS[name] for name in WRITE_FLAGS] + [0, FLAGS["hint_none"] | FLAGS["atomic"]]
    trace = new_trace(tmp_path / "t.parquet", drive_bytes=1 << 20, offset_bytes=np.arange(8) * 65536,
                      length_bytes=np.arange(1, 9) * 4096, op=OPS["write"], flags=flags)
    sums = {name: {"trace_bytes": count * 4096, "issued_bytes": count * 4096}
            for name, count in zip(WRITE_FLAGS, [1 + 8, 2, 3, 4, 5, 6 + 8], strict=True)}
    result = blkreel("replay", trace, "--on", "nil:1MiB", "-o", tmp_path / "nil", "--json", check=False)
    run = json.loads(result.stdout)["run"]
    assert (run["write_flags"], run["altered"]) == (sums, {})
    assert "issued" not in result.stderr
    empty_image(tmp_path / "image", 1 << 20)
    result = blkreel("replay", trace, "--on", tmp_path / "image", "-o", tmp_path / "run", "--json", check=False)
    run = json.loads(result.stdout)["run"]
    assert run["write_flags"] == {name: {**sums[name], "issued_bytes": 0} for name in sums}
    assert run["altered"] == {"write_hint": 5, "atomic": 2}
    assert "2 I/Os altered: atomic" in [reason["text"] for reason in run["verdict"]["reasons"]]
    assert "94.2 KB of writes are issued without their write hint: a file has one hint for all" in result.stderr
    assert "2 atomic writes are issued as plain ones: the drive has none" in result.stderr
    dry_run = blkreel("replay", trace, "--on", tmp_path / "image", "--dry-run")
    assert "2 atomic writes are issued as plain ones: the drive has none" in dry_run.stderr
    assert json.loads(blkreel("info", tmp_path / "run", "--json").stdout)["write_flags"] == {}


def test_what_a_background_writes_without_its_hint_is_said(blkreel, tmp_path):
    flags = [FLAGS[name] for name in WRITE_FLAGS]
    background = new_trace(tmp_path / "b.parquet", drive_bytes=1 << 20, op=OPS["write"], flags=flags,
                           length_bytes=np.arange(1, 7) * 4096, submit_ns=np.arange(6) * 1_000_000)
    trace = new_trace(tmp_path / "t.parquet", drive_bytes=1 << 20, submit_ns=np.arange(20) * 1_000_000)
    empty_image(tmp_path / "image", 8 << 20)
    arguments = ("replay", trace, "--background", background, "--background-lead", "10ms", "--json")
    result = blkreel(*arguments, "--on", tmp_path / "image", "-o", tmp_path / "run", check=False)
    of_pass = f"writes in each pass of {background} are issued"
    assert f"61.4 KB of {of_pass} without their write hint: a file has one hint" in result.stderr
    assert f"1 atomic {of_pass} as plain ones: the drive has none" in result.stderr
    run = json.loads(result.stdout)["run"]
    # A disk that others write to may complete no whole pass.
    assert run["altered"]["write_hint"] >= max(1, 5 * run["altered"].get("atomic", 0) - 5)
    texts = [reason["text"] for reason in run["verdict"]["reasons"]]
    assert f"{counted(run['altered']['write_hint'], 'I/O')} altered: write_hint" in texts and run["write_flags"] == {}
    assert "issued" not in blkreel(*arguments, "--on", "nil:8MiB", "-o", tmp_path / "nil", check=False).stderr


def test_it_goes_without_pandas(blkreel, trace, tmp_path):
    """A process of a replay is to stay small and to start soon."""
    result = blkreel("replay", trace, "--on", "nil:1GiB", "-o", tmp_path / "run", code=3,
                     env={"PYTHONPROFILEIMPORTTIME": "1"})
    imported = [line.rpartition("|")[2].strip() for line in result.stderr.splitlines() if "|" in line]
    assert "blkreel.replay.run.run" in imported
    # An import that was prevented is in the list too, by its own name alone.
    assert not [name for name in imported if name.startswith("pandas.")]


@pytest.mark.parametrize("words", [("nil:0",), ("nil:",), ("nil:x",), ("0=nil:1GiB", "--on", "1=/dev/null")])
def test_words_that_are_no_target(blkreel, trace, tmp_path, words):
    result = blkreel("replay", trace, "--on", *words, "-o", tmp_path / "run", code=2)
    assert len(result.stderr.strip().splitlines()) == 1


def test_there_is_nothing_to_prepare(blkreel):
    assert "blkreel drives" in blkreel("precondition", "nil:1GiB", "--state", "full", code=2).stderr


def test_rows_of_one_time_stamp_keep_their_order(blkreel, tmp_path):
    """Without a model nothing completes before anything else."""
    new_trace(tmp_path / "at-once.parquet", submit_ns=np.arange(ROWS) // 50 * 100_000)
    blkreel("replay", tmp_path / "at-once.parquet", "--on", "nil:1GiB", "-o", tmp_path / "run", "--pace", "asap",
            check=False)
    rows = open_trace(tmp_path / "run").table(["source_row", "submit_ns"]).to_pandas()
    assert rows["submit_ns"].nunique() < ROWS, "some were submitted by one call"
    assert rows["source_row"].tolist() == list(range(ROWS))


@pytest.fixture
def stepping_back(tmp_path):
    """A trace without checksums, whose rows another tool wrote with the survey of the original; two are exchanged."""
    new_trace(tmp_path / "t.parquet", drive_bytes=1 << 30, submit_ns=np.arange(ROWS) * 1000)
    table = pq.read_table(tmp_path / "t.parquet")
    order = np.arange(ROWS)
    order[[1000, 1001]] = 1001, 1000
    metadata = {key: value for key, value in table.schema.metadata.items() if key != b"blkreel.integrity"}
    pq.write_table(table.take(order).replace_schema_metadata(metadata), tmp_path / "back.parquet")
    return tmp_path / "back.parquet"


@pytest.mark.parametrize("words", [
    ["info", "TRACE"], ["replay", "TRACE", "--on", "IMAGE", "-o", "RUN"],
    ["replay", "TRACE", "--on", "IMAGE", "-o", "RUN", "--pace", "dependent"],
    ["replay", "TRACE", "--on", "IMAGE", "-o", "RUN", "--pace", "asap"],
    ["replay", "TRACE", "--on", "IMAGE", "--dry-run"],
    ["precondition", "IMAGE", "--state", "trace", "--trace", "TRACE"],
    ["test", "trace", "--on", "IMAGE", "-o", "RUN", "--set", "trace=TRACE", "--set", "states=fresh"]])
def test_a_trace_that_steps_back_is_refused_before_anything_is_written(blkreel, stepping_back, tmp_path, words):
    image = empty_image(tmp_path / "image", 64 << 20)
    names = {"TRACE": str(stepping_back), "IMAGE": str(image), "RUN": str(tmp_path / "run")}
    words = [names.get(word, word) for word in words]
    result = blkreel(*(word.replace("=TRACE", f"={stepping_back}") for word in words), code=2)
    assert "step back 1 times, first at row 1,001" in result.stderr and "blkreel check" in result.stderr
    assert image.stat().st_blocks == 0, "not a byte of the prefill"
    assert not (tmp_path / "run").exists()


def test_a_step_back_between_row_groups_is_found(stepping_back, tmp_path):
    table = pq.read_table(stepping_back).sort_by("submit_ns")
    swapped = pa.concat_tables([table.slice(1500), table.slice(0, 1500)])
    pq.write_table(swapped, tmp_path / "groups.parquet", row_group_size=1500)
    with pytest.raises(UsageError, match="step back 1 times, first at row 1,500"):
        check_order(open_trace(tmp_path / "groups.parquet"))
    pq.write_table(table, tmp_path / "sorted.parquet", row_group_size=1500)
    check_order(open_trace(tmp_path / "sorted.parquet"))


def test_data_that_were_written_for_the_replay_leave_no_full_cache(blkreel, tmp_path):
    """A cache that is folded meanwhile made the reads of a QLC drive slower, alone more than beside writes."""
    def load_time_ns(drive, *words):
        result = blkreel("replay", APP_START, "--on", drive, "-o", tmp_path / "run", "--force", "--pace",
                         "dependent", "--json", *words, check=False)
        return json.loads(result.stdout)["run"]["reads"]["load_time_ns"]

    assert load_time_ns("nil:sata-qlc,cache=50MB") == load_time_ns("nil:sata-qlc,cache=50MB", "--no-prefill")
