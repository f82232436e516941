"""What a machine cannot reach of a drive."""

import pytest
from emulated_accounts import calibration

from blkreel.replay.emulated.session import beyond, with_size
from blkreel.replay.simulated import spec

SLOW = "nil:1GiB,read_latency=100us,write_latency=100us,channels=4,read_bandwidth=500MB/s,write_bandwidth=500MB/s"


def test_a_slow_drive_is_within_all_limits():
    assert beyond(spec.parse(SLOW), calibration()) == []


@pytest.mark.parametrize(("change", "part"), [
    ("read_latency=29us", "read latency 29.0 µs (from 30.0 µs on)"),
    ("write_latency=29us", "write latency 29.0 µs (from 30.0 µs on)"),
    ("flush_latency=44us", "flush latency 44.0 µs (from 45.0 µs on)"),
    ("read_bandwidth=4.1GB/s", "read bandwidth 4.10 GB/s (up to 4.00 GB/s)"),
    ("write_bandwidth=4.1GB/s", "write bandwidth 4.10 GB/s (up to 4.00 GB/s)"),
    ("cache=1GiB,cache_bandwidth=5GB/s", "write bandwidth 5.00 GB/s (up to 4.00 GB/s)"),
    ("channels=9", "90,000 read IOPS (up to 80,000)")])
def test_each_part_beyond_a_limit_is_named_with_both_figures(change, part):
    words = dict(word.split("=") for word in SLOW.split(",")[1:]) | dict(word.split("=") for word in change.split(","))
    drive = spec.parse(",".join(["nil:1GiB", *(f"{key}={word}" for key, word in words.items())]))
    assert part in beyond(drive, calibration())


def test_iops_are_bounded_by_the_bandwidth_too():
    drive = spec.parse(SLOW.replace("channels=4", "channels=32").replace("500MB", "100MB"))
    assert beyond(drive, calibration()) == []


def test_a_link_and_the_commands_at_once_bound_them_too():
    fast = SLOW.replace("channels=4", "channels=32").replace("500MB", "9GB")
    assert len(beyond(spec.parse(fast), calibration())) == 4
    assert beyond(spec.parse(f"{fast},link=400MB/s,commands=4"), calibration(write_iops=40_001)) == []


def test_another_size_is_that_of_the_model_too():
    drive = with_size(spec.parse(SLOW), 1 << 20)
    assert (drive.size_bytes, drive["capacity_bytes"]) == (1 << 20, 1 << 20)
    assert drive.spec.startswith("nil:1048576,")
    assert spec.parse(with_size(spec.parse("nil:sata-tlc"), 1 << 30).spec).size_bytes == 1 << 30
