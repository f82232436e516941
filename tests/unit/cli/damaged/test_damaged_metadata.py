"""Metadata of a trace and of a run in which any key is missing or has another value: no command ends in a stack."""

import shutil
from functools import reduce

import pytest
from cases import is_fuzzing
from damaged import ABSENT, StoredMetadata, outcome, placed, places
from tree import APP_START

from blkreel.traces.format.metadata_types import wrong_metadata
from blkreel.traces.format.reader import open_trace

pytestmark = pytest.mark.usefixtures("no_pictures")
# One of each kind: missing, null, the end of a type, a name that is no UTF-8, another type.
VALUES = {"absent": ABSENT, "null": None, "largest": (1 << 63) - 1, "large": 1e308,
          "name": "\udcff\x1b", "list": [], "object": {}}
MORE = {"least": -1 << 63, "negative": -1, "zero": 0, "empty": "", "text": "x", "true": True, "fraction": 1.5,
        "path": "../x", "null in it": [None], "nested": [[[[5]]]], "objects": {"a": {"b": [None]}}}
REFUSED = {"too large": 1 << 63, "a list": [[[[5]]]], "an object": {"a": {"b": [None]}}, "true": True}
DRIVE = "nil:64GiB,read_latency=90us,clock=virtual"
# Commands refuse these with a message of their own, and would not reach the others.
OWN_MESSAGES = {("schema_version",), ("run",), ("clock_resolution_ns",), ("times_step_ns",), ("devices",),
                ("devices", 0), ("devices", 0, "size_bytes"), ("run", "drive"), ("run", "drive", "size_bytes"),
                ("run", "verdict"), ("run", "verdict", "level"), ("run", "source", "device")}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A directory with a slice of a recorded trace and a replay of it."""
    root = tmp_path_factory.mktemp("recorded")
    assert outcome("slice", APP_START, "--from", "0.5s", "--to", "1s", "-o", root / "t.parquet") is None
    outcome("replay", root / "t.parquet", "--on", DRIVE, "--pace", "dependent", "-o", root / "run")
    (root / "drive.toml").write_text('size = "64GiB"\nread_latency = "90us"\n')
    return root


@pytest.fixture
def files(recorded, tmp_path):
    return shutil.copytree(recorded, tmp_path / "files")


def of_both(path, files, out):
    """The commands that read a trace or a run."""
    yield "check", path
    yield "info", path
    yield "report", path
    yield "compare", path, files / "other"
    yield "slice", path, "--from", "1ms", "-o", out / "slice.parquet"
    yield "anonymize", path, "-o", out / "anonymous.parquet"
    yield "merge", path, files / "other", "-o", out / "merged.parquet"
    yield "concat", files / "other", path, "-o", out / "joined.parquet"
    yield "export", path, "--format", "csv", "-o", out / "rows.csv"
    yield "export", path, "--format", "perfetto", "-o", out / "trace.pftrace"
    yield "replay", path, "--on", DRIVE, "--dry-run"
    yield "predict", path, files / "drive.toml"


def of_trace(path, files, out):
    yield from of_both(path, files, out)
    yield "check", "--repair", path, "-o", out / "repaired.parquet"
    yield "export", path, "--format", "iolog3", "-o", out / "iolog"
    yield "export", path, "--format", "blktrace", "-o", out / "blktrace"
    yield "export", path, "--format", "blkparse", "-o", out / "blkparse"


def of_run(path, files, out):
    yield from of_both(path, files, out)
    yield "report", path, "-o", out / "page.html"
    yield "report", path, "--json"
    yield "results", "add", path, "--catalog", out / "catalog"
    yield "model-drive", path, "-o", out / "fitted.toml"


@pytest.fixture(params=["trace", "run"])
def kind(request, files):
    """(the metadata, the commands that read it with an output directory)."""
    path = {"trace": files / "t.parquet", "run": files / "run"}[request.param]
    if request.param == "run":
        shutil.copytree(path, files / "other")
    else:
        shutil.copy(path, files / "other")
    of_kind = {"trace": of_trace, "run": of_run}[request.param]
    return StoredMetadata(open_trace(path).path), lambda out: of_kind(path, files, out)


def with_value(metadata, paths, value):
    """The metadata with the value at all of these places."""
    return reduce(lambda changed, path: placed(changed, path, value), paths, metadata)


def wrong_with(metadata, path, value):
    """The error of the reader for the value at that place; of keys that it checks each alone."""
    return wrong_metadata(placed({path[0]: metadata[path[0]]}, path, value))


def accepted(metadata, value):
    """The places where the reader accepts a value, in groups of which no place is inside of another."""
    groups = {}
    known = list(places(metadata))
    outer = {path[:length] for path in known for length in range(1, len(path))}
    for path in known:
        if path not in OWN_MESSAGES and path[0] != "integrity" and not wrong_with(metadata, path, value):
            groups.setdefault(len(path) if path in outer else 0, []).append(path)
    return groups.values()


@pytest.mark.parametrize("name", [*VALUES, *(MORE if is_fuzzing() else ())])
def test_values_that_are_accepted_stop_no_command(kind, tmp_path, name):
    """All places at once, and some commands in turn; in `make fuzz` each place alone too, and all commands."""
    stored, commands = kind
    value, turn = {**VALUES, **MORE}[name], [*VALUES, *MORE].index(name)
    for number, group in enumerate(accepted(stored.whole, value)):
        for paths in [group] + [[path] for path in group if is_fuzzing()]:
            stored.replace(with_value(stored.whole, paths, value))
            out = tmp_path / "out"
            out.mkdir()
            for words in list(commands(out))[slice(None) if is_fuzzing() else slice((turn + number) % 8, None, 8)]:
                message = outcome(*words)
                assert message is None or str(tmp_path) in message, (words, message)
                if words[:2] == ("results", "add") and (out / "catalog").exists():
                    for use in (["list"], ["verify"], ["site", "-o", out / "site"]):
                        assert outcome("results", *use, "--catalog", out / "catalog") is None
            shutil.rmtree(out)


@pytest.mark.parametrize("name", REFUSED)
def test_values_of_other_types_are_named(kind, name):
    """By file and key, with what was expected. Commands open a trace in one place; one of them each time."""
    stored, commands = kind
    refused = [path for path in places(stored.whole)
               if path != ("schema_version",) and wrong_with(stored.whole, path, REFUSED[name])]
    assert len(refused) > 100
    for number, path in enumerate(refused):
        if number % 20 and not is_fuzzing():
            assert path[0] in wrong_with(stored.whole, path, REFUSED[name])
            continue
        stored.replace(with_value(stored.whole, [path], REFUSED[name]))
        known = list(commands(stored.path.parent / "out"))
        message = outcome(*known[number // 20 % 12])
        assert message.startswith(f"{stored.path} is damaged (metadata: {path[0]}")
        assert " is not " in message or " is out of range" in message or " is missing" in message


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b"9" * 5000, b'"\\ud800"', b"NaN"])
def test_a_key_that_is_not_json_is_named(kind, tmp_path, text):
    stored, commands = kind
    stored.replace({**stored.whole, "devices": text})
    for words in list(commands(tmp_path))[:3]:
        message = outcome(*words)
        assert message.startswith(f"{stored.path} is damaged (metadata: devices is not ")


def test_a_time_that_no_clock_has_is_out_of_range():
    assert wrong_metadata({"epoch_ns": 1 << 62}) == "epoch_ns is out of range"
