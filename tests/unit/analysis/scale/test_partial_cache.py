"""Figures kept beside traces: a second look moves no rows, and never believes what is stale, damaged or another's."""

import json
import os
import shutil
import zlib
from dataclasses import replace

import fsspec
import pytest
from figures_compared import same_figures
from range_server import serving
from synthetic_runs import write_run, write_trace

from blkreel.analysis.metrics.partials.partial_file import MAGIC, VERSION, dump, load
from blkreel.analysis.scale import ReadOptions, measure_fleet, partial_cache
from blkreel.analysis.scale import fleet as scale_fleet
from blkreel.traces.format.reader import open_trace


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """A directory of three runs and a trace, of few rows, whose figures are kept nevertheless."""
    monkeypatch.setattr(partial_cache, "MIN_ROWS", 0)
    for number in range(3):
        write_run(tmp_path / "fleet" / f"run-{number}", f"drive {number}", seed=number, seconds=6)
    write_trace(tmp_path / "fleet" / "captured.parquet", seconds=6)
    return tmp_path / "fleet"


def kept_files(directory):
    return sorted(directory.rglob(f".*{partial_cache.SUFFIX}"))


def look(named, **options):
    return measure_fleet(named if isinstance(named, list) else [named], read_options=ReadOptions(jobs=1, **options))


def test_a_second_look_decodes_no_row_and_gives_the_same_digits(fleet, decoded):
    first = look(fleet)
    assert len(decoded) == 4 and first.cache["written"] == 4 and first.cache["read"] == 0
    del decoded[:]
    second = look(fleet)
    assert decoded == [] and second.cache == {"traces": 4, "read": 4, "written": 0, "not_written": None}
    for mine, theirs in zip(second.measured, first.measured, strict=True):
        assert mine.path == theirs.path
        same_figures(mine, theirs)


def test_of_a_remote_fleet_only_footers_and_figures_move(fleet):
    """The partials are published beside the traces; a reader transfers no rows."""
    first = look(fleet)
    with serving(fleet.parent) as server:
        second = look(f"{server.url}/fleet")
        assert not server.whole, "no page that lists nothing"
        moved = {}
        for path, begin, end in server.ranges:
            moved[path] = moved.get(path, 0) + end - begin
    by_name = {str(each.path).rpartition("/")[2]: each for each in second.measured}
    for theirs in first.measured:
        same_figures(by_name[theirs.path.name], theirs)
    assert second.cache["read"] == 4
    figures = {f"/{path.relative_to(fleet.parent)}": path.stat().st_size for path in kept_files(fleet)}
    # A byte more, from which the size of a file is known.
    assert {path: moved.pop(path) for path in figures} == {path: size + 1 for path, size in figures.items()}
    for path, count in moved.items():
        records = (fleet.parent / path.lstrip("/")).read_bytes()
        footer = int.from_bytes(records[-8:-4], "little") + 8
        assert count <= max(64 << 10, footer) + 4, f"{path}: {count} bytes of {len(records)}"


def test_in_storage_that_may_be_written_figures_are_kept_too(fleet, decoded):
    storage = fsspec.filesystem("memory")
    try:
        storage.put(f"{fleet}/", "/kept-fleet/", recursive=True)
        first = look("memory://kept-fleet")
        assert first.cache["written"] == 4 and len(storage.glob("/kept-fleet/*/.records*" + partial_cache.SUFFIX)) == 3
        del decoded[:]
        second = look("memory://kept-fleet")
        assert decoded == [] and second.cache["read"] == 4
        same_figures(second.measured[0], first.measured[0])
    finally:
        storage.store.clear()


@pytest.mark.parametrize("what", ["gap", "exact"])
def test_other_parameters_are_other_figures(fleet, decoded, what):
    look(fleet)
    del decoded[:]
    changed = {"gap_ns": 5_000_000} if what == "gap" else {"exact": False}
    found = measure_fleet([fleet], read_options=ReadOptions(jobs=1), **changed)
    fresh = measure_fleet([fleet], read_options=ReadOptions(jobs=1, keep=False), **changed)
    assert found.cache["read"] == 0
    for mine, theirs in zip(found.measured, fresh.measured, strict=True):
        same_figures(mine, theirs)
    assert len(kept_files(fleet)) == 8, "both are kept"


def test_whether_distributions_are_exact_is_of_all_that_is_named(fleet, monkeypatch):
    """Figures side by side are of one kind: each of these is below the limit, together they are above."""
    monkeypatch.setattr(scale_fleet, "EXACT_ROWS", 8000)

    def errors(named, **options):
        return {each.partial.read.latency.error for each in look(named, keep=False, **options).measured}

    assert look(fleet / "run-0").measured[0].rows < 8000
    assert errors(fleet / "run-0") == {0.0}
    assert len(errors(fleet)) == 1 and 0 < min(errors(fleet)) < 0.01
    assert errors(fleet, exact=True) == {0.0}


def test_another_trace_under_the_same_name_is_read_anew(fleet, decoded):
    look(fleet)
    shutil.rmtree(fleet / "run-1")
    other = write_run(fleet.parent / "other", "another", seed=77, seconds=6)
    (fleet / "run-1").mkdir()
    shutil.copy(other / "records.parquet", fleet / "run-1")
    shutil.copy(kept_files(fleet / "run-0")[0], fleet / "run-1")
    del decoded[:]
    found = look(fleet / "run-1")
    assert decoded == [str(fleet / "run-1/records.parquet")], "what is kept of run-0 is not run-1's"
    same_figures(found.measured[0], look(other, keep=False).measured[0])


def test_what_became_known_of_a_run_later_is_shown_though_its_figures_were_kept(fleet, decoded):
    look(fleet / "run-0")
    (fleet / "run-0/amended.json").write_text(json.dumps({"version": 1, "epoch_ns": 0, "run": {"label": "renamed"}}))
    del decoded[:]
    assert look(fleet / "run-0").measured[0].account.label == "renamed" and decoded == []


@pytest.mark.parametrize("harm", [lambda content: content[:-1], lambda content: content[:20], lambda content: b"",
                                  lambda content: content.replace(b'"exact": true', b'"exact": trux'),
                                  lambda content: content[:-40] + b"\0" + content[-39:],
                                  lambda content: content.replace(b'"blkreel": "', b'"blkreel": "9')])
def test_what_is_damaged_or_of_another_version_is_not_believed_and_mended(fleet, decoded, harm):
    look(fleet / "run-0")
    (path,) = kept_files(fleet / "run-0")
    whole = path.read_bytes()
    path.write_bytes(harm(whole))
    assert path.read_bytes() != whole
    del decoded[:]
    assert look(fleet / "run-0").cache["written"] == 1 and len(decoded) == 1
    assert path.read_bytes() == whole


def test_a_place_that_may_not_be_written_is_no_error_and_told_once(fleet, monkeypatch):
    def refuse(*_arguments, **_named):
        tried.append(1)
        raise PermissionError(13, "Permission denied")

    tried = []
    monkeypatch.setattr(partial_cache, "write_file", refuse)
    write_trace(fleet / "second.parquet", seconds=6)
    found = look([fleet / "captured.parquet", fleet / "second.parquet"])
    assert len(found.measured) == 2 and kept_files(fleet) == []
    assert found.cache["not_written"] == {"locations": 1, "first": str(fleet), "why": "Permission denied"}
    assert len(tried) == 1, "not once for each of a thousand traces"


def test_nothing_is_kept_where_that_was_asked_or_is_not_worth_it(fleet, monkeypatch):
    look(fleet, keep=False)
    assert kept_files(fleet) == []
    monkeypatch.setattr(partial_cache, "MIN_ROWS", 10**6)
    look(fleet)
    look("sample:download")
    assert kept_files(fleet) == []


def test_what_is_kept_of_a_private_trace_is_as_private(fleet):
    (fleet / "captured.parquet").chmod(0o600)
    if os.geteuid() == 0:
        os.chown(fleet / "captured.parquet", 1234, 1234)
    look(fleet / "captured.parquet")
    status = kept_files(fleet)[0].stat()
    assert status.st_mode & 0o777 == 0o600
    assert status.st_uid == (1234 if os.geteuid() == 0 else os.geteuid())


def test_a_partial_that_another_user_made_is_not_believed(fleet, decoded, tmp_path, monkeypatch):
    """A user who can write beside a trace could give it other results."""
    look(fleet)
    decoded.clear()
    monkeypatch.setenv("BLKREEL_STATE_DIR", str(tmp_path / "another"))
    look(fleet)
    assert decoded, "the rows are read again"


@pytest.mark.parametrize("forged", [
    lambda partial: replace(partial, read=replace(partial.read, ops=partial.read.ops + 1)),
    lambda partial: replace(partial, read=replace(partial.read, unseen_ops=partial.read.unseen_ops - 1)),
    lambda partial: replace(partial, runs=2),
    lambda partial: replace(partial, read=replace(partial.read, bytes=2 * partial.read.bytes)),
    lambda partial: replace(partial, write=replace(partial.write, unseen_bytes=partial.write.unseen_bytes + 512)),
    lambda partial: partial + partial,
])
def test_a_partial_of_other_rows_is_computed_again_though_its_checksum_holds(fleet, decoded, forged):
    """As a faulty version of blkreel, or another program of this user, may write it."""
    first = look(fleet / "captured.parquet").measured[0]
    (path,) = kept_files(fleet)
    whole = path.read_bytes()
    trace = open_trace(fleet / "captured.parquet")
    key = partial_cache.PartialKey(first.identity, first.partial.gap_ns, True, trace.rows, None)
    partial_cache.PartialCache().put(first.records, trace.rows, key, lambda: dump(first.partial))
    assert path.read_bytes() == whole, "as blkreel writes it"
    partial_cache.PartialCache().put(first.records, trace.rows, key, lambda: dump(forged(first.partial)))
    assert path.read_bytes() != whole
    decoded.clear()
    again = look(fleet / "captured.parquet")
    assert len(decoded) == 1 and again.cache["read"] == 0 and again.cache["written"] == 1
    same_figures(again.measured[0], first)
    assert path.read_bytes() == whole


def test_a_partial_cannot_expand_without_end():
    packer = zlib.compressobj()
    first, again = (packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    bomb = MAGIC + bytes([VERSION]) + first + again * 399
    assert len(bomb) < 1 << 20
    with pytest.raises(ValueError, match="more than 2"):
        load(bomb)
