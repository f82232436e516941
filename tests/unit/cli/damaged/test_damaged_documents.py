"""Every kind of document on the disk, damaged in every key: a command says so in one line, or makes it anew."""

import json
import shutil
import zlib

import numpy as np
import pytest
from damaged import damaged, each_damage, outcome
from small_trace import new_trace, some_rows
from spooled import TOTALS
from synthetic_catalog import run_of

from blkreel.common.files.typed_document import parse_json
from blkreel.replay.plan import survey_cache
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import TRACE_SCHEMA
from blkreel.traces.format.trace_survey import survey_in, surveyed_bytes
from blkreel.traces.spool.block_file import BlockFile
from blkreel.traces.spool.blocks import LAYOUT, BlockWriter
from blkreel.traces.spool.spool import ROWS_FILE, Spool
from blkreel.traces.telemetry.reader import read_telemetry
from blkreel.traces.telemetry.spool import spool_of as telemetry_spool_of

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def catalog(tmp_path):
    run_of(tmp_path / "run")
    assert outcome("results", "add", tmp_path / "run", "--catalog", tmp_path / "catalog") is None
    return tmp_path / "catalog"


def test_the_header_of_a_catalog(catalog):
    path = catalog / "catalog.json"
    for _ in each_damage(path):
        message = outcome("results", "list", "--catalog", catalog)
        assert message and str(path) in message


def test_the_manifest_of_a_site(catalog, tmp_path):
    site = tmp_path / "site"
    assert outcome("results", "site", "--catalog", catalog, "-o", site) is None
    path = site / "manifest.json"
    whole = json.loads(path.read_text())
    whole["files"] = dict(list(whole["files"].items())[:1])
    before = sorted(site.rglob("*"))
    for _ in each_damage(path, whole):
        message = outcome("results", "site", "--catalog", catalog, "-o", site)
        assert message is None or str(path) in message, message
        assert sorted(site.rglob("*")) == before


METADATA = {"command": ["game"], "title": "t", "epoch_ns": 5, "source_format": "bpf:5", "kernel": "6.12",
            "clock_pairs": [{"monotonic_ns": 5, "realtime_ns": 6}], "devices": [{"name": "sda", "size_bytes": 1 << 30}],
            "threads": {"7": {"pid": 7, "comm": "a", "process": "a", "names": ["a"]}},
            "files": [{"filesystem": "8:1", "inode": 3, "path": "/a"}], "import_warnings": ["w"],
            "spool_begin_bytes": 0, "spool_origin_ns": 3, "spool_trace_inode": None, "spool_whole": True}
NOTES = [{"note": "threads", "threads": [[7, 5, "game", "game", "/slice"]]},
         {"note": "files", "files": [{"filesystem": "8:1", "inode": 4, "path": "/b"}]},
         {"note": "attached", "source_format": "bpf:5", "epoch_ns": 5, "realtime_ns": 6, "clock_resolution_ns": 1,
          "capture_layer": "request", "queue_time_source": "kernel"}]


def spool(output, write=lambda writer: None):
    left = Spool(output, TRACE_SCHEMA, METADATA)
    left.append(some_rows(10 + np.arange(100), tid=7))
    left.flush()
    left._write(write)
    left._close()
    return left.directory


def recovered(output):
    """The number of rows of the trace that `recover` leaves."""
    assert outcome("recover", output, "--force") is None
    return open_trace(output).rows


def test_the_metadata_of_a_spool(tmp_path):
    output = tmp_path / "t.parquet"
    directory = spool(output)
    whole = json.loads((directory / "metadata.json").read_text())
    shutil.copytree(directory, tmp_path / "kept")
    for text in damaged(whole):
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(tmp_path / "kept", directory)
        (directory / "metadata.json").write_bytes(text)
        assert recovered(output) == 100
        outcome("check", output)


@pytest.mark.parametrize("kind, document", [*((3, note) for note in NOTES), (4, TOTALS)],
                         ids=lambda value: value.get("note", "end") if isinstance(value, dict) else "")
def test_the_notes_and_the_end_of_a_spool(tmp_path, kind, document):
    output = tmp_path / "t.parquet"
    for number, text in enumerate(damaged(document)):
        directory = spool(output, lambda writer, text=text: writer._write(kind, 0, text))
        if number % 2:
            (directory / "metadata.json").unlink()
        assert recovered(output) == 100
        output.unlink()


def test_the_layout_of_a_spool(tmp_path):
    output = tmp_path / "t.parquet"
    directory = spool(output)
    with BlockFile(directory / ROWS_FILE) as blocks:
        layout = {"stream": "spool", "version": 1, "columns": [list(each) for each in blocks.columns]}
    content = (directory / ROWS_FILE).read_bytes()[blocks.layout_bytes:]
    shutil.copytree(directory, tmp_path / "kept")
    for text in damaged(layout):
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(tmp_path / "kept", directory)
        with open(directory / ROWS_FILE, "wb", buffering=0) as file:
            writer = BlockWriter(file, "spool", [], checksums=True)
            file.seek(0)
            file.truncate()
            writer._write(LAYOUT, 0, text)
            file.write(content)
        outcome("recover", output, "--force")


LINES = [{"epoch_ns": 0}, {"sensor": "a", "unit": "W", "source": "s", "rate_hz": 1.0, "missing": None},
         {"t": 5, "v": {"a": 1.5}}, {"gap": "a", "from": 6, "to": 8}, {"note": "a", "text": "x"},
         {"smart": "before", "values": {"media_errors": 3}}]


@pytest.mark.parametrize("number", range(len(LINES)), ids=lambda number: next(iter(LINES[number])))
def test_the_telemetry_of_a_killed_run(tmp_path, number):
    run_of(tmp_path / "run")
    for text in damaged(LINES[number]):
        lines = [json.dumps(line).encode() for line in LINES]
        lines[number] = text
        telemetry_spool_of(tmp_path / "run").write_bytes(b"\n".join(lines) + b"\n")
        assert outcome("recover", tmp_path / "run") is None
        assert read_telemetry(tmp_path / "run") is not None


def test_the_survey_in_a_trace(tmp_path):
    trace = open_trace(new_trace(tmp_path / "t.parquet", {}, submit_ns=np.arange(100)))
    assert survey_in(trace.metadata, trace.row_groups_at)[0].ios == {"read": 100}
    for text in damaged(trace.metadata["survey"]):
        try:
            metadata = {"survey": parse_json(text)}
        except ValueError:
            continue  # the reader of the metadata refuses the trace
        moved = surveyed_bytes(metadata, trace.row_groups_at)
        assert moved is None or all(type(count) is int for count in moved.values())
        for survey in (survey_in(metadata, trace.row_groups_at) or {}).values():
            assert all(0 <= count < 1 << 63 for count in [*survey.ios.values(), *survey.unaligned, survey.left_out])


def test_the_cache_of_surveys(tmp_path, monkeypatch):
    monkeypatch.setenv("BLKREEL_CACHE_DIR", str(tmp_path))
    survey_cache.store_facts("key", {"load_time_ns": 5})
    (path,) = tmp_path.iterdir()
    for text in damaged({"facts": {"load_time_ns": 5}, "lengths": {"touched": 0}}):
        content = survey_cache._MAGIC + text + survey_cache._LENGTH.pack(len(text))
        path.write_bytes(content + survey_cache._CHECKSUM.pack(zlib.crc32(content)))
        facts = survey_cache.load_facts("key")
        assert facts is None or isinstance(facts, dict)
    for length in (0, 1 << 40, (1 << 64) - 1):
        content = survey_cache._MAGIC + survey_cache._LENGTH.pack(length)
        path.write_bytes(content + survey_cache._CHECKSUM.pack(zlib.crc32(content)))
        assert survey_cache.load_facts("key") is None
