"""What a page finds in single rows is kept beside the traces: another page reads none, and believes nothing stale."""

import hashlib
import json
import re
import shutil
import zlib
from dataclasses import replace

import numpy as np
import pytest
from small_trace import new_trace
from synthetic_runs import write_run

from blkreel.analysis.compare import interference_file, paired, second_pass
from blkreel.analysis.compare.interference import interference
from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.report import document, present
from blkreel.analysis.scale import ReadOptions, measure_fleet, partial_cache
from blkreel.common.errors import TraceError
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS, RUN_SCHEMA


@pytest.fixture(autouse=True)
def keep_all(monkeypatch):
    """Also of few rows."""
    monkeypatch.setattr(partial_cache, "MIN_ROWS", 0)


@pytest.fixture
def runs(tmp_path):
    """Two runs of one drive, two of another."""
    return [write_run(tmp_path / f"{name}-{number}", name, seed=ord(name) + number, seconds=4)
            for name in "ab" for number in (1, 2)]


def page(named, **read_options):
    """The document behind a page of a trace or of several. As JSON: the pictures of a page take most of the time."""
    named = named if isinstance(named, list) else [named]
    options = {"force": True, "read_options": ReadOptions(jobs=1, **read_options)}
    if len(named) == 1:
        return present.report(named[0], named[0].parent / "page.json", **options)
    fleet = measure_fleet(named, read_options=options["read_options"])
    return present.compare_fleet(fleet, named[0].parent / "page.json", **options)


def found_in(told):
    """What was found in single rows."""
    sections = told["sections"] if "sections" in told else [{"entries": [told["entry"]], "paired": None}]
    return [(section["paired"], [entry["interference"] for entry in section["entries"]]) for section in sections]


def kept_files(directory):
    return {path.name.split(".parquet.")[1].partition("-")[0].partition(".")[0]: path
            for path in directory.glob(f".*{partial_cache.SUFFIX}")}


def test_a_second_page_decodes_no_row_and_says_the_same(runs, decoded):
    first = page(runs)
    assert len(decoded) == 3 * len(runs), "for figures, for what writes do, and for the pair"
    (shown, each), = found_in(first)
    assert shown[0]["latency"]["n"] > 1000 and all(one["reads"] for one in each)
    del decoded[:]
    assert found_in(page(runs)) == found_in(first) and decoded == []
    # A report of one of them has been prepared, too.
    assert found_in(page(runs[0]))[0][1][0]["windows"] and decoded == []


@pytest.mark.parametrize(("invalid", "base"), [("a", "b"), ("abc", "a")])
def test_the_base_of_pairs_is_the_first_drive_whose_runs_are_not_invalid(tmp_path, invalid, base):
    """All drives were set against an invalid one, of which no other figure was compared."""
    named = [write_run(tmp_path / name, name, seed=ord(name), seconds=2,
                       verdict="invalid" if name in invalid else "valid")
             for name in "abc"]
    (section,) = page(named)["sections"]
    assert [(pair["base"], pair["other"]) for pair in section["paired"]] == [
        (base, name) for name in "abc" if name != base]


def test_a_pair_is_of_these_runs_in_this_order(runs, decoded):
    a, b = runs[0], runs[2]
    both = page([a, b])
    for named in ([b, a], [a, b, runs[3]], [runs[1], b]):
        del decoded[:]
        assert found_in(page(named)) == found_in(page(named, keep=False))
        assert decoded, "what was kept of another pair is not this one's"
    del decoded[:]
    assert found_in(page([a, b])) == found_in(both) and decoded == [], "and it is still there"


def test_the_drive_under_test_is_the_base_whatever_was_kept_of_another(runs):
    def pairs(keep=False, **more):
        told, sections = document.comparison([measure(run) for run in runs])
        second_pass.read_again(sections, ReadOptions(keep=keep), **more)
        return told["sections"][0]["paired"]

    first, marked = pairs(keep=True), pairs(marked="b", keep=True)
    assert [(one["base"], one["other"]) for one in first + marked] == [("a", "b"), ("b", "a")]
    assert marked[0]["latency"]["geometric_mean"] == pytest.approx(1 / first[0]["latency"]["geometric_mean"])
    assert pairs(marked="b") == marked == pairs(marked="b", most_rows=0, keep=True)
    assert pairs(marked="nobody") == first


@pytest.mark.parametrize("which", ["interference", "paired"])
@pytest.mark.parametrize("harm", [
    lambda content: content[:-1],
    lambda content: re.sub(rb'": (\d+), ', lambda found: b'": %d, ' % (int(found[1]) + 1), content, count=1)])
def test_what_is_damaged_or_of_another_trace_is_not_believed_and_mended(runs, decoded, which, harm):
    """scale/test_partial_cache.py has other damage."""
    first = page([runs[0], runs[2]])
    path = kept_files(runs[2])[which]
    whole = path.read_bytes()
    path.write_bytes(harm(whole))
    assert path.read_bytes() != whole
    del decoded[:]
    assert found_in(page([runs[0], runs[2]])) == found_in(first) and decoded
    assert path.read_bytes() == whole


def test_what_was_kept_is_shown_however_many_rows_there_are_and_where_they_are(runs):
    def again(keep, cluster=None, **more):
        told, sections = document.comparison([measure(run) for run in runs])
        second_pass.read_again(sections, ReadOptions(cluster=cluster, keep=keep), **more)
        return found_in(told)

    first = again(keep=True)
    assert again(most_rows=0, keep=True) == first == again(cluster="tcp://10.0.0.1:8786", keep=True)
    kept_files(runs[0])["interference"].unlink()
    for words, more in (("more than the 0", {"most_rows": 0}), ("remote traces", {"cluster": "tcp://10.0.0.1:8786"})):
        (pairs, (a, b)), = again(keep=True, **more)
        assert words in a["why"] and b == first[0][1][1] and pairs == first[0][0]
    assert again(most_rows=0, keep=False)[0][0][0]["why"]
    # Only what is not kept counts.
    rows = measure(runs[0]).rows
    assert again(most_rows=rows, keep=True) == first


def test_a_run_that_became_another_meanwhile_is_not_taken_for_the_one_that_was_measured(runs):
    measured = [measure(run) for run in runs]
    shutil.copy(runs[0] / "records.parquet", runs[2] / "records.parquet")
    with pytest.raises(TraceError, match="changed"):
        second_pass.read_again(document.comparison(measured)[1], ReadOptions())
    assert "interference" not in kept_files(runs[2])
    unknown = [replace(each, identity=None) for each in measured]  # of a caller who has it from elsewhere
    second_pass.read_again(document.comparison(unknown)[1], ReadOptions())
    assert "interference" not in kept_files(runs[2])


# By version: results of interference_file.dump() and paired.paired() for the runs below.
PINNED = {"interference": {6: "7456eaa20a8d4ea5119f8bca1991bb046ae11c85114455851a4c0abf16db28e6"},
          "paired": {1: "b91d6d758cfae7c85c0f9c6f92b2e88a41c97b4310225b1d0edc0dd7b05ebdfa"}}


def made_up(path, slow):
    """Sums only: another numpy draws other numbers."""
    at = np.arange(3000)
    scattered = at * 7919 % 1009
    submit_ns = at * 400_000 + scattered * 100
    new_trace(path / "records.parquet", {"run": {"label": path.name, "source": {"sha256": "f" * 64}}},
              schema=RUN_SCHEMA, submit_ns=submit_ns, latency_ns=40_000 + scattered**2 * slow,
              due_ns=submit_ns - scattered, offset_bytes=scattered * 4096, source_row=at, status=0,
              length_bytes=np.where(scattered % 5, 4096, 65_536), op=np.where(at % 3, OPS["read"], OPS["write"]))
    return measure(path)


def rounded(told):
    """Digits beyond the sixth are the machine's way to add up."""
    if isinstance(told, dict):
        return {key: rounded(value) for key, value in told.items()}
    if isinstance(told, list):
        return [rounded(value) for value in told]
    return float(f"{told:.6g}") if isinstance(told, float) else told


def test_what_is_kept_changes_with_its_version_only(tmp_path):
    sides = []
    for name, slow in (("a", 1), ("b", 3)):
        (tmp_path / name).mkdir()
        sides.append(made_up(tmp_path / name, slow))
    found = interference(open_trace(tmp_path / "a"))
    told = {"interference": rounded(json.loads(zlib.decompress(interference_file.dump(found)))),
            "paired": rounded(paired.paired(*sides))}
    for name, version in (("interference", interference_file.VERSION), ("paired", paired.VERSION)):
        digest = hashlib.sha256(json.dumps(told[name], sort_keys=True).encode()).hexdigest()
        assert PINNED[name].get(version) == digest, (
            f"what is kept of {name} now says something else, or in another form. Raise VERSION of its module, so that "
            "nothing kept before is believed, and pin this digest in place of the old one")
