"""Replays on a zoned drive: whatever a zoned drive took while it was recorded, it takes again."""

import re
from dataclasses import replace

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from small_trace import new_trace

from blkreel.common.errors import BlkreelError, UsageError
from blkreel.replay.drive.target import find_target
from blkreel.replay.drive.zones import Zones
from blkreel.replay.plan import zoned
from blkreel.replay.plan.pace import Pace, parse_idle
from blkreel.replay.plan.planner import plan_trace
from blkreel.replay.prepare.states import state_for
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OP_NAMES, OPS, WRITES, ZONE_MANAGEMENT

KIB, ZONE, ZONES, CAPACITY = 1 << 10, 1 << 20, 6, 768 << 10
DEVICE = {"name": "zns", "size_bytes": ZONES * ZONE, "zoned": "host-managed", "zone_bytes": ZONE}
# Zone, kind of I/O, and its length in KiB.
IOS = st.lists(st.tuples(st.integers(1, ZONES - 1), st.sampled_from(["read", *WRITES, *ZONE_MANAGEMENT]),
                         st.sampled_from([4, 64, 300])), min_size=1, max_size=40)
POINTERS = st.lists(st.integers(0, CAPACITY // (4 * KIB)), min_size=ZONES, max_size=ZONES)


class ZonedDrive:
    """Zone 0 takes writes anywhere, the others at their pointers. Raises AssertionError for what a drive refuses."""

    def __init__(self, pointers):
        self.pointers = list(pointers)

    def execute(self, op, offset_bytes, length_bytes):
        """The offset of the I/O on the drive."""
        zone, at = divmod(offset_bytes, ZONE)
        if op == "zone_reset_all":
            self.pointers[1:] = [0] * (ZONES - 1)
        elif op in ("zone_reset", "zone_finish"):
            assert at == 0 < zone
            self.pointers[zone] = 0 if op == "zone_reset" else CAPACITY
        elif op in WRITES and zone:
            at = self.pointers[zone] if op == "zone_append" else at
            assert at == self.pointers[zone] and at + length_bytes <= CAPACITY, f"{op} of zone {zone} at {at}"
            self.pointers[zone] = at + length_bytes
        return zone * ZONE + at


def recorded(ios, pointers):
    """The rows that a drive took: those of `ios` that fit."""
    drive, rows = ZonedDrive(pointers), []
    for zone, op, kib in ios:
        offset, length = zone * ZONE, 0 if op in ZONE_MANAGEMENT else kib * KIB
        if op == "write":
            offset += drive.pointers[zone]
        if op in WRITES and drive.pointers[zone] + length > CAPACITY:
            continue
        offset = 0 if op == "zone_reset_all" else drive.execute(op, offset, length)
        if op == "zone_reset_all":
            drive.execute(op, 0, 0)
        rows.append((OPS[op], offset, length))
    return rows, drive.pointers


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """A factory: the plan of rows (op, offset, length) on a zoned drive whose zones have these pointers."""
    def plan(rows, pointers, device=DEVICE, most_active=0, **options):
        number = np.arange(ZONES)
        zones = Zones(ZONE, number > 0, number * ZONE + np.where(number > 0, CAPACITY, ZONE),
                      number * ZONE + [ZONE, *pointers[1:]], most_active)
        monkeypatch.setattr(zoned, "zones_of", lambda target: zones)
        op, offset, length = (np.array(column, np.int64) for column in zip(*rows, strict=True))
        trace = open_trace(new_trace(tmp_path / "t.parquet", {"devices": [device]}, op=op.astype(np.int8),
                                     offset_bytes=offset, length_bytes=length))
        target = find_target(f"nil:{ZONES * ZONE}")
        target = replace(target, drive=replace(target.drive, zoned="host-managed", zone_bytes=ZONE))
        options = {"pace": Pace("asap"), "idle": parse_idle("original")} | options
        return plan_trace(trace, target, **options)

    return plan


def issued(plan, pointers):
    """The write pointers after a replay on a drive whose zones have these pointers."""
    drive = ZonedDrive(pointers)
    (of_drive,) = plan.drives
    for start in of_drive.zones.resets.tolist():
        drive.execute("zone_reset", start, 0)
    for part in of_drive.prefill.batches():
        for start, end in zip(part.start.tolist(), part.end.tolist(), strict=True):
            for at in range(start, end, 64 * KIB):
                drive.execute("write", at, min(64 * KIB, end - at))
    for batch in plan.batches():
        for op, offset, length in zip(batch["op"].tolist(), batch["offset_bytes"].tolist(),
                                      batch["length_bytes"].tolist(), strict=True):
            assert drive.execute(OP_NAMES[op], offset, length) == offset or OP_NAMES[op] == "zone_reset_all"
    return drive.pointers


@cases(60)
@given(IOS, POINTERS, POINTERS)
def test_what_a_drive_took_it_takes_again(planned, ios, found, left):
    """found: the write pointers before the recording. left: those before the replay."""
    found, left = ([4 * KIB * pointer for pointer in pointers] for pointers in (found, left))
    rows, after = recorded(ios, found)
    if not rows:
        return
    pointers = issued(planned(rows, left), left)
    changed = {offset // ZONE for op, offset, _ in rows if OP_NAMES[op] in ("write", "zone_append", "zone_finish")}
    assert [pointers[zone] for zone in sorted(changed)] == [after[zone] for zone in sorted(changed)]


def test_each_kind_of_refusal_has_its_count_and_first_row(planned):
    write, reset = OPS["write"], OPS["zone_reset"]
    rows = [(write, ZONE, 4 * KIB), (write, ZONE + 8 * KIB, 4 * KIB), (write, ZONE, 4 * KIB),
            (write, ZONE + 4 * KIB, ZONE - 4 * KIB), (reset, 0, 0), (write, 2 * ZONE, 4 * KIB)]
    with pytest.raises(BlkreelError, match="would refuse 5 of 6 writes and zone operations") as error:
        planned(rows, [0] * ZONES, most_active=1)
    kinds = error.value.message.partition("zone operations: ")[2]
    assert re.findall(r"(\d) (\w+ \w+ \w+ \w+)[^;]*row (\d)", kinds) == [
        ("2", "writes that are not", "1"), ("1", "writes beyond the capacity", "3"),
        ("1", "operations on a zone", "4"), ("1", "writes to an empty", "5")]


def test_zone_management_needs_no_place_on_a_drive_without_zones(tmp_path):
    """The drive is smaller than the offset of the zone; only the engine leaves the reset out, and counts it."""
    ops = [OPS["zone_reset"], OPS["zone_append"]]
    trace = open_trace(new_trace(tmp_path / "t.parquet", {"devices": [DEVICE]}, op=ops,
                                 offset_bytes=[5 * ZONE, 5 * ZONE], length_bytes=[0, 4 * KIB]))
    plan = plan_trace(trace, find_target(f"nil:{ZONE}"), pace=Pace("asap"), idle=parse_idle("original"))
    (batch,) = plan.batches()
    assert [OP_NAMES[op] for op in batch["op"].tolist()] == ["zone_reset", "zone_append"]
    assert batch["offset_bytes"].tolist() == [0, 0] and batch["length_bytes"].tolist() == [0, 4 * KIB]


def test_without_prefill_the_pointers_of_the_drive_count(planned):
    rows = [(OPS["write"], ZONE + 64 * KIB, 4 * KIB)]
    assert issued(planned(rows, [0, 64 * KIB, 0, 0, 0, 0], prefill=False), [0, 64 * KIB, 0, 0, 0, 0])[1] == 68 * KIB
    with pytest.raises(BlkreelError, match="not at the write pointer") as error:
        planned(rows, [0] * ZONES, prefill=False)
    assert "--prefill" in error.value.remedy


@pytest.mark.parametrize(("most_active", "filled"), [(0, 68 * KIB), (3, CAPACITY)])
def test_without_the_writes_what_they_wrote_is_filled(planned, most_active, filled):
    """The zones were left empty, and a drive answers reads of them without its flash. A full zone is not active."""
    write, read, reset = OPS["write"], OPS["read"], OPS["zone_reset"]
    rows = [(reset, ZONE, 0), (write, ZONE, 128 * KIB), (read, ZONE + 64 * KIB, 4 * KIB)]
    plan = planned(rows, [0] * ZONES, without=("writes",), most_active=most_active)
    assert issued(plan, [0] * ZONES)[1] == filled and not plan.drives[0].unwritten.bytes
    plan = planned([(read, 2 * ZONE - 4 * KIB, 4 * KIB)], [0] * ZONES, without=("writes",))
    assert plan.drives[0].unwritten.bytes == 4 * KIB, "behind the capacity"


def test_what_is_read_after_a_reset_is_not_filled(planned):
    """A replay was refused for zones that it had filled up to such reads, more than the drive allows."""
    rows = [row for at in (ZONE, 2 * ZONE) for row in (
        (OPS["zone_reset"], at, 0), (OPS["write"], at, CAPACITY), (OPS["read"], at, 4 * KIB))]
    assert not planned(rows, [0] * ZONES, most_active=1).drives[0].prefill.bytes


def test_resets_of_zones_count_as_discards(planned):
    """A drive whose zones a replay had all reset was still in the state full, with all of it filled."""
    rows = [(OPS["write"], ZONE, 64 * KIB), (OPS["zone_reset"], ZONE, 0), (OPS["zone_reset_all"], 0, 0)]
    (drive,) = planned(rows, [0] * ZONES).drives
    assert drive.max_bytes == (64 * KIB, ZONE + ZONES * ZONE)


@pytest.mark.parametrize("options, says", [
    ({"pace": Pace("dependent")}, "--pace dependent"), ({"threads": 2}, "--threads 2"),
    ({"map_name": "wrap"}, "--map wrap"), ({"device": DEVICE | {"zone_bytes": 2 * ZONE}}, "zones of 2.10 MB")])
def test_what_does_not_keep_zones_in_order_is_refused(planned, options, says):
    rows = [(OPS["write"], ZONE, 4 * KIB)]
    with pytest.raises((UsageError, BlkreelError), match=says):
        planned(rows, [0] * ZONES, **options)
    assert planned(rows, [0] * ZONES, threads="auto").sharding.threads == 1


@pytest.mark.parametrize("state, written", [("full", ZONES * CAPACITY), ("data", CAPACITY + 128 * KIB), ("fresh", 0)])
def test_states_write_the_capacity_of_zones_from_their_starts(state, written):
    zones = Zones(ZONE, np.ones(ZONES, bool), np.arange(ZONES) * ZONE + CAPACITY, np.arange(ZONES) * ZONE)
    spans = [(ZONE, 2 * ZONE + 128 * KIB)] if state == "data" else None
    steps = state_for(state, ZONES * ZONE, 4096, seed=1, spans=spans, zones=zones).steps
    drive = ZonedDrive([CAPACITY] * ZONES)
    for step in steps:
        for batch in step.plan(0):
            for op, offset, length in zip(batch["op"].tolist(), batch["offset_bytes"].tolist(),
                                          batch["length_bytes"].tolist(), strict=True):
                drive.execute(OP_NAMES[op], offset, length)
    assert sum(drive.pointers[1:]) == written - (CAPACITY if state == "full" else 0)
    for name, given_spans in (("client", None), ("enterprise", None), ("pts", None), ("data", [(4096, ZONE)])):
        with pytest.raises(UsageError, match="zone"):
            state_for(name, ZONES * ZONE, 4096, seed=1, spans=given_spans, zones=zones)
