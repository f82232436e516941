"""The export for Perfetto, read with the official schema of its format."""

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema
from small_trace import write_trace
from tree import APP_START, GAME_DOWNLOAD

from blkreel.traces.exporters import FORMATS, export_trace
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OP_NAMES, UNKNOWN

BEGIN, END, INSTANT = (getattr(schema.TrackEvent, f"TYPE_{name}") for name in ("SLICE_BEGIN", "SLICE_END", "INSTANT"))


class Read:
    """What a reader makes of a file. slices: [track, start, end or None, name, arguments, the event]."""

    def __init__(self, path):
        content = path.read_bytes()
        message = schema.Trace.FromString(content)
        assert message.SerializeToString(deterministic=True) == content, "not as the official encoder writes it"
        assert message.IsInitialized()
        for packet in message.packet:
            assert_known(packet)
            assert packet.trusted_packet_sequence_id == 1
        first, *rest = message.packet
        assert first.sequence_flags == schema.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        interned = first.interned_data
        categories, names, arguments = ({each.iid: each.name for each in entries} for entries in (
            interned.event_categories, interned.event_names, interned.debug_annotation_names))
        self.packets = len(message.packet)
        self.tracks, events = {}, []
        for packet in rest:
            if packet.HasField("track_descriptor"):
                own = packet.track_descriptor
                assert own.uuid and (own.uuid not in self.tracks or own.HasField("process"))
                assert not own.parent_uuid or own.parent_uuid in self.tracks
                self.tracks[own.uuid] = own
            else:
                assert packet.sequence_flags == schema.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
                assert packet.track_event.track_uuid in self.tracks
                events.append(packet)
        self.slices, running, last = [], {}, {}
        for packet in sorted(events, key=lambda packet: packet.timestamp):
            event = packet.track_event
            if event.type == END:
                running.pop(event.track_uuid)[2] = packet.timestamp
                continue
            assert [categories[iid] for iid in event.category_iids] == ["io"]
            values = {arguments[each.name_iid]: getattr(each, each.WhichOneof("value"))
                      for each in event.debug_annotations}
            self.slices.append([event.track_uuid, packet.timestamp, None, names[event.name_iid], values, event])
            if event.type == BEGIN:
                assert event.track_uuid not in running, "slices of a lane overlap"
                running[event.track_uuid] = self.slices[-1]
            assert last.get(event.track_uuid, -1) <= packet.timestamp
            last[event.track_uuid] = packet.timestamp
        assert not running

    def title(self, uuid):
        track = self.tracks[uuid]
        return track.thread.thread_name or track.name or track.process.process_name

    def ancestors(self, uuid):
        while uuid := self.tracks[uuid].parent_uuid:
            yield self.title(uuid)


def assert_known(message):
    """Each field is in the schema."""
    assert not len(UnknownFieldSet(message)), message
    for field, value in message.ListFields():
        if field.message_type:
            for each in value if field.is_repeated else [value]:
                assert_known(each)


def of_rows(read):
    """(the slices with the values of a row, those that only name it), each by row."""
    full = {each[4]["row"]: each for each in read.slices if len(each[4]) > 1}
    return full, {each[4]["row"]: each for each in read.slices if len(each[4]) == 1}


@pytest.mark.parametrize("source", ["own", APP_START, GAME_DOWNLOAD])
def test_slices_arguments_and_flows_are_those_of_the_rows(source, trace, exported):
    opened = trace if source == "own" else open_trace(source)
    path, account = exported(opened, "perfetto")
    read, rows = Read(path), opened.table().to_pandas()
    assert account.records == read.packets and not account.omitted
    full, copies = of_rows(read)
    assert sorted(full) == list(range(len(rows))) and sorted(copies) == rows.index[rows.tid >= 0].tolist()
    for row in rows.itertuples():
        for event in filter(None, (full[row.Index], copies.get(row.Index))):
            assert event[1] == row.submit_ns and event[3] == OP_NAMES[row.op]
            assert event[2] == (None if row.latency_ns < 0 else row.submit_ns + row.latency_ns)
            assert event[5].type == (INSTANT if row.latency_ns < 0 else BEGIN)
        expected = {"row": row.Index} | {
            name: getattr(row, name) for name in ("offset_bytes", "length_bytes", "queue_ns", "cpu", "status",
                                                  "waited_on", "think_ns")
            if name not in UNKNOWN or getattr(row, name) != UNKNOWN[name]}
        if row.flags:
            expected["flags"] = "+".join(name for name, bit in FLAGS.items() if row.flags & bit)
        assert full[row.Index][4] == expected
        thread = read.tracks[full[row.Index][0]]
        while not thread.HasField("thread") and thread.parent_uuid:
            thread = read.tracks[thread.parent_uuid]
        assert thread.thread.tid == max(row.tid, 0)
    begins = {number: event[4]["row"] for event in full.values() for number in event[5].flow_ids}
    ends = {number: event[4]["row"] for event in full.values() for number in event[5].terminating_flow_ids}
    assert begins.keys() == ends.keys()
    waits = rows[rows.waited_on >= 0]
    assert {ends[number]: begins[number] for number in ends} == dict(waits.waited_on)
    if source == "own":
        titles = {tuple([read.title(each[0]), *read.ancestors(each[0])]) for each in read.slices}
        assert titles == {('qu"ote, comma', 'qu"ote, comma'), ("writer", "writer"), ("nvme0n1", "device nvme0n1"),
                          ("nvme0n1 2", "device nvme0n1"), ("disk_two", "device disk_two"),
                          ('qu"ote, comma 2', 'qu"ote, comma', 'qu"ote, comma')} & titles
        assert len(titles) >= 4 and account.not_expressed == {}
    else:
        assert any(read.title(uuid).endswith(" 2") for uuid in read.tracks)


def test_rows_in_several_batches_give_the_same(tmp_path, monkeypatch):
    opened = open_trace(APP_START)
    whole = export_trace(opened, tmp_path / "whole", FORMATS["perfetto"]).path.read_bytes()
    monkeypatch.setattr("blkreel.traces.exporters.perfetto._ROWS", 7)
    assert export_trace(opened, tmp_path / "parts", FORMATS["perfetto"]).path.read_bytes() == whole


def test_flows_beyond_the_limits_are_counted(trace, tmp_path, exported, monkeypatch):
    """All rows waited for the first, except one that waited for the fifth."""
    opened = open_trace(write_trace(tmp_path / "w.parquet", waited_on=[-1, 0, 0, 0, 0, 4, 0], latency_ns=[9] * 7))
    monkeypatch.setattr("blkreel.traces.exporters.perfetto._REACH_ROWS", 4)
    monkeypatch.setattr("blkreel.traces.exporters.perfetto._MOST_ARROWS", 2)
    path, account = exported(opened, "perfetto")
    assert account.not_expressed == {"waited_on beyond 4 rows, as an arrow": 1,
                                     "waited_on of more than 2 I/Os for one, as an arrow": 2}
    full, _ = of_rows(Read(path))
    assert {row: list(event[5].flow_ids) for row, event in full.items() if event[5].flow_ids} == {0: [2, 3], 4: [6]}
    assert {row for row, event in full.items() if event[5].terminating_flow_ids} == {1, 2, 5}


def test_an_io_before_the_time_0_is_left_out(tmp_path, exported):
    """A timestamp has no sign."""
    path, account = exported(open_trace(write_trace(tmp_path / "w.parquet", submit_ns=[-5, *range(6)])), "perfetto")
    assert account.omitted == {"submitted before the time 0 of the trace": 1}
    assert sorted(of_rows(Read(path))[0]) == [1, 2, 3, 4, 5, 6]


def test_threads_with_numbers_beyond_those_of_a_kernel_have_tracks_of_their_own(tmp_path, exported):
    """An import gives processes numbers from 2^24 on, and a merge threads; they were taken for devices."""
    tid = [1 << 24, (1 << 24) + 1, -1, 41, 1 << 24, (1 << 31) - 1, 42]
    path, account = exported(open_trace(write_trace(tmp_path / "w.parquet", tid=tid)), "perfetto")
    read = Read(path)
    assert account.records == read.packets
    full, copies = of_rows(read)
    assert [read.tracks[full[row][0]].thread.tid for row in range(7)] == [max(number, 0) for number in tid]
    assert {read.title(copies[row][0]).split()[0] for row in copies} == {"nvme0n1", "disk_two"}
