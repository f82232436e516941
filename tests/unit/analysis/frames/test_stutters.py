"""Which stutters waited for I/O, on made traces of which each cause is known: none may be confused."""

import json
import os
import shutil
import time

import numpy as np
import pytest
from rendering import (
    BY_COMPUTING,
    BY_IO,
    LOADER,
    MS,
    PATH,
    RENDERER,
    STALL_NS,
    STREAMER,
    Rows,
    capframex,
    frame_ends,
    loading,
    mangohud,
    presentmon,
    rendered,
)
from tree import TREE

from blkreel.analysis.frames.document import FrameOptions, report_frames
from blkreel.common.errors import UsageError
from blkreel.traces.format.reader import open_trace

GAME_CHANGED_NS = 1795746232170772736  # realtime of the last change of its log


def joined(trace, log, **options):
    return report_frames(open_trace(trace), FrameOptions(log, **options)).document


class Played:
    """rendered(), its trace and its log of MangoHud."""

    def __init__(self, directory, *rendering, zero_ns=400 * MS, has_waits=True, **more):
        self.rows, self.ends, self.time_ns = rendered(*rendering, **more)
        self.trace = self.rows.write(directory / "t.parquet", has_waits=has_waits)
        self.log = mangohud(directory, self.ends, self.time_ns, zero_ns=zero_ns)

    def document(self, **options):
        return joined(self.trace, self.log, **options)


@pytest.fixture
def played(tmp_path):
    return Played(tmp_path)


def causes(document):
    return {stutter["frame"]: stutter["cause"] for stutter in document["stutters"]}


EXPECTED = {**dict.fromkeys(BY_IO, "io"), **dict.fromkeys(BY_COMPUTING, "other")}


@pytest.mark.parametrize("tid", [RENDERER, LOADER])
@pytest.mark.parametrize(("unit", "methods", "within_ns"), [(MS, {"changed"}, 10 * MS),
                                                             (1000, {"changed", "fitted"}, 60 * MS)])
def test_no_stutter_is_confused(tmp_path, tid, unit, methods, within_ns):
    """Whether the thread that renders reads, or another one that it waits for; beside a thread that always waits."""
    rows, ends, time_ns = rendered(tid)
    document = joined(rows.write(tmp_path / "t.parquet"), mangohud(tmp_path, ends, time_ns, unit=unit))
    assert causes(document) == EXPECTED
    clock = document["clock"]
    assert abs(clock["offset_ns"] - 400 * MS) <= clock["uncertainty_ns"] <= within_ns
    assert "by the time of the last change of the log" in clock["words"] and clock["method"] in methods
    for stutter in document["stutters"]:
        if stutter["cause"] == "io":
            longest = stutter["waits"][0]
            assert (longest["tid"], longest["path"], longest["offset_bytes"]) == (tid, PATH, stutter["frame"] << 20)
            assert abs(stutter["lost_ns"] - STALL_NS) <= MS
        else:
            assert stutter["lost_ns"] < 10 * MS
    assert document["sentence"] == ("6 of 12 stutters waited for I/O, which took 900 ms, mostly for level.pak")
    assert document["waits"]["program"] == "kart" and document["waits"]["evidence"] == "blocked"


def test_streaming_alone_holds_no_frame_up(tmp_path):
    """Stutters by computing, some of them just as the streaming thread waits as long."""
    document = Played(tmp_path, by_io=()).document()
    assert causes(document) == dict.fromkeys(BY_COMPUTING, "other")
    assert document["sentence"] == "0 of 6 stutters waited for I/O"


def test_a_read_that_is_over_before_its_thread_waits_holds_nothing_up(tmp_path):
    """In flight for a whole stutter, but its thread was computing: blocked for a millisecond only."""
    ends, time_ns = frame_ends(dict.fromkeys(BY_COMPUTING, STALL_NS))
    rows = Rows()
    for frame in BY_COMPUTING:
        rows.read(RENDERER, int(ends[frame]) - STALL_NS, STALL_NS - 5 * MS, blocked_ns=MS)
    rows.read(RENDERER, int(ends[-1]), MS)
    document = joined(rows.write(tmp_path / "t.parquet"), mangohud(tmp_path, ends, time_ns))
    assert causes(document) == dict.fromkeys(BY_COMPUTING, "other")


def test_a_later_wake_up_by_another_thread_hides_no_read(tmp_path):
    """As an interpreter lock is passed on, a thread inherits the completion of the one that held it."""
    rows, ends, time_ns = rendered()
    streamed = [row for row in rows.rows if row["tid"] == STREAMER]
    for row in rows.rows:
        if row["tid"] == RENDERER and row["cause"] is not None:
            done = [other for other in streamed if other["submit_ns"] + other["latency_ns"] <= row["submit_ns"]]
            row["cause"] = done[-1]["key"] if done else None
            row["think_ns"] = row["submit_ns"] - done[-1]["submit_ns"] - done[-1]["latency_ns"] if done else 0
    document = joined(rows.write(tmp_path / "t.parquet"), mangohud(tmp_path, ends, time_ns))
    assert causes(document) == EXPECTED


def test_a_thread_that_takes_part_in_all_frames_holds_them_up(tmp_path):
    """A loading screen, of which each frame waits for I/O: a longer one waits for more, or computes."""
    rows, ends, time_ns = loading(stalls := (20, 35, 60), by_computing := (28, 50, 70))
    trace, log = rows.write(tmp_path / "t.parquet", seconds=90), mangohud(tmp_path, ends, time_ns)
    expected = dict.fromkeys(stalls, "io") | dict.fromkeys(by_computing, "other")
    document = joined(trace, log)
    assert causes(document) == expected
    for stutter in document["stutters"]:
        assert stutter["cause"] == "other" or stutter["waits"][0]["tid"] == RENDERER
    os.utime(log)
    copied = joined(trace, log)
    assert causes(copied) == expected and copied["clock"]["method"] == "fitted"
    assert abs(copied["clock"]["offset_ns"] - 400 * MS) <= copied["clock"]["uncertainty_ns"] < 50 * MS
    # The streaming thread alone waits for more of the time.
    assert set(causes(joined(trace, mangohud(tmp_path, ends, time_ns), process="streamer")).values()) == {"other"}


def test_a_real_game(tmp_path):
    """0 A.D. under MangoHud 0.6.8, from a drive with reads of 12 ms: its rendering thread loads a map, with frames that
    take much longer than others, one of them by computing for 21 s; then it is played."""
    log, = (TREE / "tests/golden/frames").glob("pyrogenesis_*.csv")
    path = tmp_path / log.name
    path.write_bytes(log.read_bytes())
    trace, offsets_ns = TREE / "tests/golden/frames/game.parquet", []
    copied = joined(trace, path)
    os.utime(path, ns=(GAME_CHANGED_NS, GAME_CHANGED_NS))
    for document in (joined(trace, path), copied):
        assert document["log"]["frames"] == 341 and document["log"]["rejected"] == 0
        assert causes(document) == {**dict.fromkeys((1, 31, 32, 34), "io"),
                                    **dict.fromkeys((41, 42, 250, 270, 315), "other")}
        for stutter in document["stutters"]:
            if stutter["cause"] == "io":
                assert (stutter["waits"][0]["path"], stutter["waits"][0]["thread"]) == (
                    "/games/0ad/mods/public/public.zip", "main")
                assert stutter["lost_ns"] > 0.6 * stutter["time_ns"]
        assert document["clock"]["method"] == "fitted" and document["clock"]["uncertainty_ns"] < 15 * MS
        offsets_ns.append(document["clock"]["offset_ns"])
    assert abs(offsets_ns[0] - offsets_ns[1]) < 15 * MS, "by its last change, and by its name"


def test_without_recorded_waits_the_assumption_is_said(tmp_path):
    document = Played(tmp_path, has_waits=False).document()
    assert document["waits"]["evidence"] == "assumed" and causes(document) == EXPECTED
    assert any("records no waits" in note for note in document["notes"])


def test_presentmon_by_its_dates(played, tmp_path):
    log = presentmon(tmp_path / "frames.csv", played.ends - played.time_ns, played.time_ns)
    document = joined(played.trace, log)
    assert causes(document) == EXPECTED and document["clock"]["method"] == "recorded"
    assert document["waits"]["program"] == "kart.exe"


def test_a_log_without_a_start_needs_one(played, tmp_path):
    log = capframex(tmp_path / "record.json", played.ends - 400 * MS, played.time_ns)
    with pytest.raises(UsageError, match="no start time recorded; add --frames-start TIME"):
        joined(played.trace, log)
    document = joined(played.trace, log, start_ns=400 * MS)
    assert causes(document) == EXPECTED
    assert "not checked" in document["clock"]["words"]


def test_a_copied_log_is_aligned_by_its_stalls(tmp_path):
    """Its name has whole seconds only. The stutters fit the waits at one shift of the clocks."""
    played = Played(tmp_path, stream=False, zero_ns=450 * MS)
    os.utime(played.log)
    document = played.document()
    assert document["clock"]["method"] == "fitted" and document["clock"]["uncertainty_ns"] < 50 * MS
    assert abs(document["clock"]["offset_ns"] - 450 * MS) <= document["clock"]["uncertainty_ns"]
    assert causes(document) == EXPECTED


def test_what_the_clocks_do_not_decide_is_unclear(tmp_path):
    """Two stutters 300 ms apart, one by I/O, with clocks that may be 700 ms off: neither has a cause."""
    ends, time_ns = frame_ends({400: STALL_NS, 420: STALL_NS})
    rows = Rows()
    rows.read(RENDERER, int(ends[400]) - STALL_NS - 5 * MS, STALL_NS)
    rows.read(RENDERER, int(ends[-1]), MS)
    log = mangohud(tmp_path, ends, time_ns)
    trace = rows.write(tmp_path / "t.parquet")
    assert causes(joined(trace, log)) == {400: "io", 420: "other"}
    os.utime(log)
    document = joined(trace, log)
    assert causes(document) == {400: "unclear", 420: "unclear"} and document["clock"]["method"] == "named"
    assert any("Unclear: 2 stutters," in note for note in document["notes"])


def test_a_log_of_another_time_zone_is_found(played, monkeypatch):
    """The log is named in the zone of this machine."""
    try:
        monkeypatch.setenv("TZ", "Asia/Kathmandu")
        time.tzset()
        assert causes(played.document()) == EXPECTED
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_log_of_another_day_is_refused(played, tmp_path):
    renamed = shutil.copy(played.log, tmp_path / "frames.csv")
    with pytest.raises(UsageError, match="renamed and changed after the capture; add --frames-start"):
        joined(played.trace, renamed)
    with pytest.raises(UsageError, match="no frame within the trace"):
        played.document(start_ns=40 * 10**9)


def test_stutters_outside_of_the_trace_are_left_out(played, tmp_path):
    """The capture ended in the middle of the log."""
    played.rows.rows = [row for row in played.rows.rows if row["submit_ns"] < 11 * 10**9]
    document = joined(played.rows.write(tmp_path / "cut.parquet", seconds=11), played.log)
    assert 0 < document["totals"]["beyond"] == 12 - document["totals"]["stutters"]
    assert causes(document) == {frame: cause for frame, cause in EXPECTED.items() if played.ends[frame] < 11 * 10**9}


def test_a_process_is_chosen_by_name(played):
    # Of the streaming thread alone no stutter waited for anything.
    assert set(causes(played.document(process="streamer")).values()) == {"other"}
    with pytest.raises(UsageError, match="no I/O of a process 'doom'; name one of: kart"):
        played.document(process="doom")


def test_smooth_frames_have_no_stutter(tmp_path):
    rows, ends, time_ns = rendered(by_io=(), by_computing=())
    time_ns = time_ns + np.random.default_rng(3).integers(-3 * MS, 3 * MS, len(time_ns))
    document = joined(rows.write(tmp_path / "t.parquet"), mangohud(tmp_path, 500 * MS + np.cumsum(time_ns), time_ns))
    assert document["stutters"] == [] and document["sentence"] == "No stutter in 2,000 frames"
    json.dumps(document)
