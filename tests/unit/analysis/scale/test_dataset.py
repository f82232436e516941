"""What a directory, a pattern or a URL stands for."""

import fsspec
import pytest
from range_server import serving

from blkreel.analysis.scale.dataset import expand
from blkreel.common.errors import TraceError, UsageError

FILES = ["a/run-2/records.parquet", "a/run-2/telemetry.parquet", "a/run-10/records.parquet", "a/run-10/page.html",
         "a/t.parquet", "a/.t.parquet.tmp/x.parquet", "a/.hidden.parquet", "a/deep/er/run/records.parquet",
         "test/test.json", "test/steps/1/records.parquet", "none/readme.txt",
         "catalog/catalog.json", "catalog/tables/results.parquet",
         "copied/run/baseline/records.parquet", "copied/run/telemetry.parquet", "copied/other/records.parquet",
         "killed/.records.parquet.spool/rows.blocks", "killed/baseline/records.parquet",
         "versions/baseline/records.parquet", "versions/new/records.parquet"]
IN_A = ["a/deep/er/run", "a/run-2", "a/run-10", "a/t.parquet"]


@pytest.fixture(params=["path", "memory", "http"])
def places(request, tmp_path):
    """(prefix, the names found in what is named below it), of the same files on disk, in storage, on a server."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")

    def found(*named):
        result = expand([f"{prefix}/{name}".rstrip("/") for name in named])
        return [str(each).removeprefix(prefix + "/") for each in result.locations]

    if request.param == "path":
        prefix = str(tmp_path)
        yield prefix, found
    elif request.param == "memory":
        prefix = "memory://dataset"
        fsspec.filesystem("memory").put(f"{tmp_path}/", "/dataset/", recursive=True)
        yield prefix, found
        fsspec.filesystem("memory").store.clear()
    else:
        with serving(tmp_path) as server:
            prefix = server.url
            yield prefix, found


def test_a_directory_holds_its_runs_and_traces(places):
    _, found = places
    assert found("a") == IN_A
    assert found("a/run-2") == ["a/run-2"]
    assert found("a/t.parquet", "a/run-10") == ["a/t.parquet", "a/run-10"], "in the order named"


def test_the_baseline_of_a_run_without_records_does_not_stand_for_the_run(places):
    """It was reported as the run, alone on the drive."""
    _, found = places
    assert found("copied") == ["copied/other", "copied/run"]
    assert found("killed") == ["killed"]
    assert found("versions") == ["versions/baseline", "versions/new"]


def test_a_pattern_stands_for_what_matches(places):
    prefix, found = places
    assert found("a/run-*") == ["a/run-2", "a/run-10"]
    assert found("a/*.parquet") == ["a/t.parquet"]
    if "http" not in prefix:  # there it begins a query
        assert found("a/run-?") == ["a/run-2"]


def test_tests_are_told_apart(places):
    prefix, found = places
    assert not any(name.startswith("test") for name in found(""))
    assert expand([prefix]).tests == [f"{prefix}/test"]
    with pytest.raises(TraceError, match=r"holds tests only.*; (copy them here first, then|compare them as "
                                         r"tests): blkreel compare .*test"):
        found("test")


def test_a_catalog_is_no_trace(places):
    prefix, found = places
    with pytest.raises(TraceError, match="holds no trace" if "://" in prefix else r"is a catalog .*compare --catalog"):
        found("catalog")


def test_nothing_there_and_what_is_named_twice_is_said(places):
    _, found = places
    for name in ("none", "a/*.csv", "none/*"):
        with pytest.raises(TraceError, match="holds no trace and no run; name files that end in .parquet"):
            found(name)
    with pytest.raises(UsageError, match=r"t\.parquet is named twice"):
        found("a", "a/t.parquet")


def test_a_link_that_leads_back_ends_and_a_name_with_brackets_is_a_name(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/records.parquet").touch()
    (tmp_path / "again").symlink_to(tmp_path)
    assert expand([tmp_path]).locations == [tmp_path / "run"]
    (tmp_path / "t[1].parquet").touch()
    assert expand([tmp_path / "t[1].parquet"]).locations == [tmp_path / "t[1].parquet"]
