"""What is known of a trace before its replay: by one pass, from its writer, or from the replay before."""

import os

import numpy as np
import pytest
from empty_image import empty_image
from small_trace import new_trace

from blkreel.replay.drive.target import find_target
from blkreel.replay.plan import survey_cache
from blkreel.replay.plan.mapping import choose_mapping
from blkreel.replay.plan.pace import ALL_IDLE, parse_idle
from blkreel.replay.plan.survey import choose_device, device_ios, read_first_on, survey_trace
from blkreel.traces.format import trace_survey
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS
from blkreel.traces.format.trace import Trace

READ, WRITE, FLUSH = (OPS[name] for name in ("read", "write", "flush"))
ROWS = 4000


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own, for traces of any length."""
    monkeypatch.setenv("BLKREEL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(survey_cache, "MIN_ROWS", 1)
    return tmp_path / "cache"


@pytest.fixture
def no_survey(monkeypatch):
    """Traces as other tools and earlier versions write them, and those whose sets are too large."""
    monkeypatch.setattr(trace_survey, "_MOST_METADATA_BYTES", 0)


@pytest.fixture
def no_pass(monkeypatch):
    """From here on, reading rows fails."""
    def forbid():
        def batches(self, columns=None, rows=0):
            raise AssertionError("the rows were read")

        monkeypatch.setattr(Trace, "batches", batches)

    return forbid


def write(path, **columns):
    return new_trace(path, {"devices": [{"name": "a", "size_bytes": 1 << 30}, {"name": "b"}]}, **columns)


def random_trace(path, seed=1, devices=2):
    random = np.random.default_rng(seed)
    op = random.integers(0, 2, ROWS)
    return write(path, submit_ns=np.cumsum(random.integers(0, 3000, ROWS)), latency_ns=random.integers(1, 2000, ROWS),
                 offset_bytes=random.integers(0, 1 << 15, ROWS) * 4096, length_bytes=random.integers(1, 9, ROWS) * 4096,
                 op=op, device=random.integers(0, devices, ROWS))


def told(found):
    """All that a survey says, for comparison."""
    return (found.first_submit_ns, found.last_submit_ns, found.removed_ns, {
        device: (one.ios, one.bytes, one.unfinished, one.left_out, one.rounded, one.longest_bytes,
                 one.touched.bytes, len(one.touched), one.read_first.bytes, len(one.read_first))
        for device, one in found.by_device.items()})


def test_several_devices_are_on_one_clock(tmp_path):
    path = write(tmp_path / "t.parquet", submit_ns=[100, 1000, 5000], latency_ns=[50, 100, 10],
                 offset_bytes=[0, 512, 4096], length_bytes=[4096, 512, 4096], op=[READ, WRITE, READ], device=[0, 1, 0])
    found = survey_trace(open_trace(path), [0, 1], parse_idle("cap=100ns"), {1: 4096})
    # Gaps of 850 and 3900 ns, less 100 each; either device alone would have had one of 4850.
    assert (found.first_submit_ns, found.last_submit_ns, found.removed_ns) == (100, 5000, 750 + 3800)
    assert found.total_ios == 3
    assert found.duration_ns == 4900 - 4550
    assert found.by_device[0].read_first.bytes == 8192
    assert (found.by_device[1].rounded, found.by_device[1].touched.bytes) == (1, 512)
    alone = survey_trace(open_trace(path), [0], parse_idle("cap=100ns"))
    assert (alone.removed_ns, alone.last_submit_ns) == (4750, 5000)
    assert survey_trace(open_trace(path), [1], ALL_IDLE).first_submit_ns == 1000


def test_what_the_writer_left_is_what_a_pass_finds(tmp_path, no_pass, monkeypatch):
    path = random_trace(tmp_path / "t.parquet")
    with monkeypatch.context() as patch:
        patch.setattr("blkreel.replay.plan.survey.survey_in", lambda metadata, places: None)
        patch.setenv("BLKREEL_CACHE_DIR", "/proc/nowhere")
        passed = told(survey_trace(open_trace(path), [0, 1], ALL_IDLE))
    no_pass()
    trace = open_trace(path)
    assert told(survey_trace(trace, [0, 1], ALL_IDLE)) == passed
    assert choose_device(trace, 1) == 1


@pytest.mark.parametrize("idle", ["original", "cap=1us"])
def test_the_second_replay_reads_no_rows(tmp_path, no_survey, no_pass, idle):
    path = random_trace(tmp_path / "t.parquet")
    first = survey_trace(open_trace(path), [0, 1], parse_idle(idle))
    no_pass()
    again = open_trace(path)
    assert device_ios(again) == {device: one.total_ios for device, one in first.by_device.items()}
    assert told(survey_trace(again, [0, 1], parse_idle(idle))) == told(first)
    with pytest.raises(AssertionError, match="rows were read"):
        survey_trace(open_trace(path), [0], parse_idle("cap=2us"))


def test_so_it_is_where_a_map_folds(tmp_path, no_pass):
    empty_image(tmp_path / "image", 1 << 20)
    trace = open_trace(random_trace(tmp_path / "t.parquet", devices=1))
    found = survey_trace(trace, [0], ALL_IDLE).by_device[0]

    def placed(name):
        mapping = choose_mapping(name, found.touched, find_target(tmp_path / "image"), "t",
                                 longest_bytes=found.longest_bytes)
        return read_first_on(trace, found, mapping).bytes

    folded = {name: placed(name) for name in ("wrap", "scale")}
    assert all(0 < size < found.read_first.bytes for size in folded.values())
    no_pass()
    assert {name: placed(name) for name in folded} == folded


def test_the_only_device_is_known_without_its_rows(tmp_path, no_survey, no_pass):
    trace = open_trace(random_trace(tmp_path / "t.parquet", devices=1))
    no_pass()
    assert choose_device(trace, None) == 0
    assert device_ios(trace) == {0: ROWS}


def test_nothing_is_believed_of_a_file_that_was_changed(tmp_path, no_survey):
    path = random_trace(tmp_path / "t.parquet", 1)
    first = told(survey_trace(open_trace(path), [0, 1], ALL_IDLE))
    random_trace(path, 2)
    second = told(survey_trace(open_trace(path), [0, 1], ALL_IDLE))
    assert second != first
    random_trace(path, 1)
    assert told(survey_trace(open_trace(path), [0, 1], ALL_IDLE)) == first


def test_a_damaged_entry_is_none(tmp_path, no_survey, cache):
    path = random_trace(tmp_path / "t.parquet")
    first = told(survey_trace(open_trace(path), [0, 1], ALL_IDLE))
    (entry,) = cache.iterdir()
    whole = entry.read_bytes()
    places = [0, 5, 20, len(whole) // 2, len(whole) - 200, len(whole) - 13, len(whole) - 9, len(whole) - 1]
    for data in [b"", whole[:-1], whole + b"x", whole[:100],
                 *(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:] for at in places)]:
        entry.write_bytes(data)
        assert survey_cache.load(open_trace(path), "survey") is None
        assert told(survey_trace(open_trace(path), [0, 1], ALL_IDLE)) == first
        assert entry.read_bytes() == whole, "it is made again"


def test_a_cache_that_cannot_be_written_is_none(tmp_path, no_survey, monkeypatch):
    path = random_trace(tmp_path / "t.parquet")
    blocked = tmp_path / "file"
    blocked.write_text("")
    for place in ("/proc/nowhere", str(blocked), str(blocked / "below")):
        monkeypatch.setenv("BLKREEL_CACHE_DIR", place)
        assert survey_trace(open_trace(path), [0, 1], ALL_IDLE).total_ios == ROWS


def test_the_cache_is_bounded(tmp_path, no_survey, cache, monkeypatch):
    paths = [random_trace(tmp_path / f"{seed}.parquet", seed) for seed in range(5)]
    for age, path in enumerate(paths[:3]):
        survey_trace(open_trace(path), [0, 1], ALL_IDLE)
        newest = max(cache.iterdir(), key=lambda entry: entry.stat().st_mtime_ns)
        os.utime(newest, (age, age))
    size = max(entry.stat().st_size for entry in cache.iterdir())
    monkeypatch.setattr(survey_cache, "_MAX_BYTES", 2 * size + size // 2)
    survey_cache.load(open_trace(paths[0]), "survey")
    survey_trace(open_trace(paths[3]), [0, 1], ALL_IDLE)
    kept = [survey_cache.load(open_trace(path), "survey") is not None for path in paths]
    assert kept == [True, False, False, True, False], "the one used last and the new one"
    monkeypatch.setattr(survey_cache, "_MAX_ENTRY_BYTES", 10)
    survey_trace(open_trace(paths[4]), [0, 1], ALL_IDLE)
    assert survey_cache.load(open_trace(paths[4]), "survey") is None


def test_short_traces_are_not_kept(tmp_path, no_survey, cache, monkeypatch):
    monkeypatch.setattr(survey_cache, "MIN_ROWS", ROWS + 1)
    survey_trace(open_trace(random_trace(tmp_path / "t.parquet")), [0, 1], ALL_IDLE)
    assert not cache.exists()
