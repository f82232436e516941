"""A trace whose rows another program changed is refused by every command; `blkreel check --repair` makes it valid."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from small_trace import new_trace
from transformed import columns_of, valid_rows
from tree import GAME_LOAD

import blkreel
from blkreel.common.errors import BlkreelError, TraceError
from blkreel.traces.format.reader import open_trace
from blkreel.traces.transform.repair import repair


def rewritten(path, change, output):
    pq.write_table(change(pq.read_table(path)), output)
    return output


def without_some(table):
    return table.filter(pc.not_equal(table["tid"], pc.mode(table["tid"])[0].as_py()["mode"]))


def without_checksums(table):
    metadata = dict(table.schema.metadata)
    del metadata[b"blkreel.integrity"]
    return table.replace_schema_metadata(metadata)


def swapped(table):
    order = np.arange(table.num_rows)
    order[:-1:2], order[1::2] = order[1::2].copy(), order[:-1:2].copy()
    return table.take(order)


def faster(table):
    index = table.schema.get_field_index("submit_ns")
    return table.set_column(index, table.schema.field(index), pc.divide(table["submit_ns"], 2))


CUTS = {"cut at the start": lambda table: table.slice(100), "cut at the end": lambda table: table.slice(0, 500),
        "without a thread": without_some, "twice": lambda table: pa.concat_tables([table, table])}
CHANGES = {"sorted by offset": lambda table: table.sort_by("offset_bytes"), "swapped": swapped, "other times": faster}


@pytest.fixture(scope="module")
def game(tmp_path_factory):
    """A trace with checksums, of the rows of a sample."""
    path = tmp_path_factory.mktemp("game") / "game.parquet"
    return blkreel.write_trace(path, blkreel.open(GAME_LOAD).frame(), like=GAME_LOAD)


REPAIR = r"changed after it was written.*check --repair .*changed.parquet -o "


@pytest.mark.parametrize(("change", "words"), [
    *((change, REPAIR) for change in (*CUTS.values(), *CHANGES.values())),
    *((lambda table, cut=cut: without_checksums(cut(table)), "2,906") for cut in CUTS.values())],
    ids=[*CUTS, *CHANGES, *(f"{name}, without checksums" for name in CUTS)])
def test_changed_rows_are_refused(game, tmp_path, change, words):
    """By the checksums, with the command that repairs them, and a cut of a trace without them by its survey."""
    path = rewritten(game, change, tmp_path / "changed.parquet")
    with pytest.raises(TraceError, match=words):
        open_trace(path)


def test_a_trace_without_checksums_stays_readable(game, tmp_path):
    trace = open_trace(rewritten(game, without_checksums, tmp_path / "old.parquet"))
    assert "integrity" not in trace.metadata and trace.rows == 2906


def test_a_copy_by_another_program_is_accepted(game, tmp_path):
    """Compression, row groups and offsets of I/Os may change: no dependency rests on them."""
    table = pq.read_table(game)
    index = table.schema.get_field_index("offset_bytes")
    table = table.set_column(index, table.schema.field(index), pc.add(table["offset_bytes"], 4096))
    pq.write_table(table, tmp_path / "copy.parquet", row_group_size=700, compression="snappy")
    assert open_trace(tmp_path / "copy.parquet").rows == 2906


@pytest.mark.parametrize("words", [
    ["check"], ["replay", "--on", "nil:64GiB,clock=virtual", "-o", "r"], ["compare", GAME_LOAD], ["report", "--json"]],
    ids=" ".join)
def test_each_command_refuses(game, tmp_path, blkreel, words):
    rewritten(game, CUTS["cut at the start"], tmp_path / "cut.parquet")
    result = blkreel(words[0], "cut.parquet", *words[1:], code=1, cwd=tmp_path)
    assert "check --repair cut.parquet -o cut-repaired.parquet" in result.stderr + result.stdout
    assert not (tmp_path / "r").exists()


def test_a_cut_at_the_start_loses_only_dependencies_on_rows_that_are_missing(game, tmp_path):
    cut = rewritten(game, CUTS["cut at the start"], tmp_path / "cut.parquet")
    done = repair(open_trace(cut, verify=False), tmp_path / "repaired.parquet")
    before, after = columns_of(game), valid_rows(done.path)
    expected = np.where(before["waited_on"][100:] >= 100, before["waited_on"][100:] - 100, -1)
    assert (after["waited_on"] == expected).all()
    assert done.dropped == int(((before["waited_on"][100:] >= 0) & (before["waited_on"][100:] < 100)).sum()) > 0
    assert (after["think_ns"][expected < 0] == 0).all()
    assert (after["submit_ns"] == before["submit_ns"][100:]).all()


def test_shuffled_rows_are_restored(game, tmp_path):
    for name, change in (("offset", CHANGES["sorted by offset"]), ("swapped", swapped)):
        path = rewritten(game, change, tmp_path / f"{name}.parquet")
        done = repair(open_trace(path, verify=False), tmp_path / f"{name}-repaired.parquet")
        after = valid_rows(done.path)
        for column, values in columns_of(game).items():
            assert (after[column] == values).all(), column
        assert done.steps_back > 0 and done.dropped == 0


@cases(8)
@given(data=st.data())
def test_any_selection_and_order_of_rows_can_be_repaired(game, tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("any")
    table = pq.read_table(game).slice(0, data.draw(st.integers(1, 400)))
    rows = data.draw(st.lists(st.integers(0, table.num_rows - 1), min_size=1, max_size=200, unique=True))
    if data.draw(st.booleans()):
        rows.sort()
    path = directory / "changed.parquet"
    pq.write_table(table.take(rows), path)
    done = repair(open_trace(path, verify=False), directory / "repaired.parquet")
    repaired, whole = valid_rows(done.path), columns_of(game)
    # Each dependency between rows that are left is restored.
    rows.sort()
    expected = [rows.index(parent) if (parent := int(whole["waited_on"][row])) in rows else -1 for row in rows]
    assert repaired["waited_on"].tolist() == expected


def test_an_ambiguous_dependency_is_dropped(tmp_path):
    path = new_trace(tmp_path / "t.parquet", {}, submit_ns=[0, 10, 100], latency_ns=[50, 40, 5], think_ns=[0, 0, 50],
                     waited_on=[-1, -1, 1])
    changed = rewritten(path, lambda table: table.set_column(11, table.schema.field(11), pa.array([-1, -1, 7])),
                        tmp_path / "changed.parquet")
    done = repair(open_trace(changed, verify=False), tmp_path / "repaired.parquet")
    assert (done.dependencies, done.renumbered, done.dropped) == (1, 0, 1)


def test_the_command_repairs_and_says_what_was_lost(game, tmp_path, blkreel):
    rewritten(game, CUTS["cut at the start"], tmp_path / "cut.parquet")
    result = blkreel("check", "--repair", "cut.parquet", "-o", "whole.parquet", check=False, cwd=tmp_path)
    assert result.returncode == 3 and "dependencies dropped" in result.stderr
    assert (tmp_path / "whole.parquet").stat().st_mode & 0o777 == 0o600
    document = json.loads(blkreel("check", "whole.parquet", "--json", check=False, cwd=tmp_path).stdout)
    assert document["errors"] == [] and any("2,806 rows" in text for text in document["warnings"])
    metadata = open_trace(tmp_path / "whole.parquet").metadata
    assert metadata["history"][-1]["command"] == "check --repair" and "survey" in metadata
    assert metadata["devices"] == open_trace(game).metadata["devices"]
    result = blkreel("replay", "whole.parquet", "--on", "nil:64GiB,clock=virtual", "--dry-run", code=0,
                     cwd=tmp_path)


def test_repair_needs_an_output(game, blkreel):
    assert blkreel("check", "--repair", game, check=False).returncode == 2
    assert blkreel("check", game, "-o", "x.parquet", check=False).returncode == 2


def test_a_run_and_impossible_values_are_not_repaired(game, tmp_path, blkreel):
    blkreel("replay", game, "--on", "nil:64GiB,clock=virtual", "-o", tmp_path / "run", "--pace", "dependent")
    records = rewritten(tmp_path / "run/records.parquet", CUTS["cut at the start"], tmp_path / "run/cut.parquet")
    with pytest.raises(BlkreelError, match="replay the trace again"):
        open_trace(records)
    with pytest.raises(TraceError, match="records of a run"):
        repair(open_trace(records, verify=False), tmp_path / "repaired.parquet")
    wrong = rewritten(game, lambda table: table.set_column(5, table.schema.field(5), pa.array(
        np.full(table.num_rows, 99, np.int8))), tmp_path / "op.parquet")
    with pytest.raises(TraceError, match="cannot be repaired: 2,906 rows: unknown op"):
        repair(open_trace(wrong, verify=False), tmp_path / "repaired.parquet")
    assert not (tmp_path / "repaired.parquet").exists()
