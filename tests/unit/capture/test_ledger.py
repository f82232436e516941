"""What a capture says about its own completeness."""

from types import SimpleNamespace

import pytest

from blkreel.capture.flight_recorder import Ring
from blkreel.capture.ledger import ended, incomplete, is_trustworthy, metadata_of, missing, unseen_share
from blkreel.traces.format.metadata_types import missing_ios

COUNTS = ("reused", "unmatched", "in_flight_at_start", "unissued", "empty_flushes", "requeued", "merged", "other_ops",
          "out_of_range")


def end_block(issued=1000, seen=1000, lost=0, **ledger):
    return {"ledger": {**dict.fromkeys(COUNTS, 0), **ledger}, "lost": {"total": lost, "per_cpu": {}, "intervals": []},
            "in_flight_at_end": 0, "queued_at_end": 0, "recursion_misses": 0, "cpu_ns": 1,
            "drives": [{"device": "7:0", "diskstats": {"read": issued}, "seen": {"read": seen}}]}


@pytest.fixture(autouse=True)
def counters(monkeypatch):
    """Those of the kernel are switched on."""
    monkeypatch.setattr("blkreel.capture.ledger._counts_io", lambda drive: True)


def words(**end):
    """What is missing in the words of the user, for an end block."""
    return missing(metadata_of(end_block(**end), ["loop0"]))


def test_a_whole_capture_has_nothing_to_say():
    assert words() == []


@pytest.mark.parametrize("end, text", [
    (dict(seen=900, lost=100), "100 I/Os were lost because the ring was full"),
    (dict(seen=900, unmatched=100), "100 I/Os completed whose issue was not seen"),
    (dict(out_of_range=5), "5 events had a tag"),
    (dict(seen=900), "the kernel's counters say 1,000 I/Os, the capture accounts for 900"),
])
def test_each_way_to_lose_an_io_is_told(end, text):
    found = words(**end)
    assert len(found) == 1 and text in found[0]


@pytest.mark.parametrize(("level", "counted"), [("", 1000 + 5 + 3 + 7), ("raid1", 1000 + 3 + 7), ("raid0", 1000 + 7)])
@pytest.mark.parametrize("lost", [0, 4, -2])
def test_a_volume_counts_parts_and_an_array_no_flushes(monkeypatch, tmp_path, level, counted, lost):
    """Neither can hide an I/O that is missing, or one that is there twice."""
    monkeypatch.setattr("blkreel.capture.ledger.SYS", tmp_path)
    array = tmp_path / "block/volume/md"
    if level:
        array.mkdir(parents=True)
        (array / "level").write_text(f"{level}\n")
    end = end_block(issued=counted + lost, parts=7)
    end["drives"][0]["seen"] = {"read": 1000, "flush": 5, "discard": 3}
    assert metadata_of(end, ["volume"])["diskstats"]["difference"] == lost


@pytest.mark.parametrize(("drive", "counts", "told"), [
    ({"gone": True}, dict(issued=0, seen=900),
     ["nvme4n1 is gone: it was taken away during the capture; see: dmesg"]),
    ({"paths_added": 0, "paths_removed": 1, "diskstats": None}, dict(seen=900), [])], ids=["gone", "path removed"])
def test_what_was_taken_away_is_not_held_against_the_counters(drive, counts, told):
    end = end_block(**counts)
    end["drives"][0] |= drive
    metadata = metadata_of(end, ["nvme4n1"])
    assert metadata["diskstats"]["difference"] is None and missing(metadata) == told


@pytest.mark.parametrize(("drive", "end", "parts"), [
    ({"paths_added": 1, "paths_removed": 0}, {},
     ["paths of loop0 were added during the capture (1)", "not recorded"]),
    ({"stuck": 2}, {}, ["no row for 2 I/Os of loop0, in flight during the whole capture", "loop0/inflight"]),
    ({}, {"write_error": 28, "unwritten_rows": 1234}, ["No space left", "1,234 I/Os"])],
    ids=["path added", "stuck", "not written"])
def test_what_happened_to_a_drive_or_its_rows_is_told(drive, end, parts):
    whole = end_block() | end
    whole["drives"][0] |= drive
    metadata = metadata_of(whole, ["loop0"])
    message, = missing(metadata)
    assert all(part in message for part in parts)
    assert metadata["ledger"]["stuck"] == ({"loop0": 2} if "stuck" in drive else {})


def test_what_a_source_cannot_count_is_unknown_and_accuses_nobody():
    end = end_block()
    end["ledger"] = dict.fromkeys(COUNTS)
    metadata = metadata_of(end, ["loop0"])
    assert metadata["unmatched"] is None and metadata["in_flight_at_start"] is None
    assert missing(metadata) == [] and incomplete(metadata, "bpftrace") == []


@pytest.mark.parametrize("reason", ["empty_flushes", "in_flight_at_start", "reused", "unissued",
                                    "failed_over"])
def test_what_the_counters_count_and_the_trace_does_not_is_explained(reason):
    assert words(seen=950, **{reason: 50}) == []


def test_an_io_without_latency_is_incomplete_and_not_missing():
    metadata = metadata_of(end_block(seen=998, reused=2), ["loop0"])
    assert incomplete(metadata, "bpf:tp_btf") == [
        "no latency for 2 I/Os (0.200 %), because the kernel runs no BPF program in some interrupts; "
        "--source ftrace records them"]
    assert unseen_share(metadata) == 0.002


@pytest.mark.parametrize(("count", "what"), [("uses_lost", "first uses of pages"),
                                             ("wakes_lost", "wake-ups of threads")])
def test_events_that_the_ring_lost_are_told_with_the_remedy(count, what):
    end = end_block()
    end["ledger"] |= {count: 1234}
    (message,) = incomplete(metadata_of(end, ["loop0"]), "bpf:tp_btf")
    assert message.startswith(f"1,234 {what}") and message.endswith("--ring-size")


@pytest.mark.parametrize("unseen, trustworthy", [(0, True), (10, True), (11, False)])
def test_more_than_one_percent_without_latency_is_not_trustworthy(unseen, trustworthy):
    metadata = metadata_of(end_block(seen=1000 - unseen, reused=unseen), ["loop0"])
    assert missing(metadata) == [] and is_trustworthy(metadata) == trustworthy


def test_an_io_that_the_kernel_counts_as_completed_was_not_in_flight_at_the_end():
    """The end of a short capture by bpftrace, which misses completions."""
    metadata = metadata_of({**end_block(seen=900), "in_flight_at_end": 105}, ["loop0"])
    assert (metadata["ledger"]["reused"], metadata["in_flight_at_end"]) == (100, 5)
    assert "no latency for 100 I/Os (10.0 %)" in incomplete(metadata, "bpftrace")[0]
    assert not missing(metadata) and not is_trustworthy(metadata)


def test_a_trace_keeps_each_reason_why_it_is_not_complete():
    """`blkreel check` ends as the capture did, and a replay is qualified. Lost events are stated by their number."""
    end = {**end_block(seen=900, lost=7, unmatched=3), "monotonic_ns": 1, "realtime_ns": 1, "stopped_ns": 1}
    metadata = ended(end, {"devices": [{"name": "loop0"}]})
    (counters,) = metadata["import_warnings"]
    assert missing_ios(metadata) == [counters, "3 I/Os completed whose issue was not seen"]
    assert counters.startswith("the kernel's counters say 1,000 I/Os")


@pytest.mark.parametrize("source_format", ["bpf:tp_btf", "bpftrace", "ftrace:blk", "blktrace"])
def test_an_io_without_latency_has_a_reason_and_a_remedy_for_each_source(source_format):
    (message,) = incomplete(metadata_of(end_block(seen=900, reused=100), ["loop0"]), source_format)
    assert message.startswith("no latency for 100 I/Os (10.0 %), because ") and "--" in message.partition("; ")[2]


def test_switched_off_counters_accuse_nobody(monkeypatch):
    monkeypatch.setattr("blkreel.capture.ledger._counts_io", lambda drive: drive != "pmem0")
    end = end_block(issued=0)
    end["drives"][0]["diskstats"]["flush"] = 1  # which the kernel counts all the same
    metadata = metadata_of(end, ["pmem0"])
    assert metadata["diskstats"]["difference"] is None and missing(metadata) == []
    end = end_block()
    end["drives"].append({"device": "259:0", "diskstats": {"read": 0}, "seen": {"read": 9}})
    assert missing(metadata_of(end, ["loop0", "pmem0"])) == []
    assert "the kernel's counters say 1,000" in missing(metadata_of(end, ["loop0", "loop1"]))[0]


def test_losses_keep_their_unit_and_those_without_a_time():
    """ftrace counts events, and not all of them have an interval."""
    intervals = [{"cpu": 0, "first_ns": 1, "last_ns": 5, "count": 3},
                 {"cpu": 1, "first_ns": 20, "last_ns": 30, "count": 4}]
    lost = {"total": 10, "per_cpu": {"0": 5, "1": 5}, "intervals": intervals, "unit": "events"}
    held = Ring.lost_since_begin(SimpleNamespace(dropped_until_ns=10), lost)
    assert held == {"total": 7, "per_cpu": {"0": 2, "1": 5}, "intervals": intervals[1:], "unit": "events"}
    assert Ring.lost_since_begin(SimpleNamespace(dropped_until_ns=None), lost) == lost
