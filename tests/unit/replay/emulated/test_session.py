"""What an emulated drive needs of its machine: directories in /run, counts of the host, and limits."""

import pytest
from emulated_accounts import calibration

from blkreel.common.errors import UsageError
from blkreel.replay.emulated.directory import claimed, link, sweep
from blkreel.replay.emulated.host import HostCounter, memory_bytes
from blkreel.replay.emulated.session import beyond, with_size
from blkreel.replay.simulated import spec


@pytest.fixture
def places(tmp_path):
    return tmp_path / "run", tmp_path / "dev"


def test_a_name_belongs_to_one_drive(places):
    run, links = places
    with claimed("sata", run, links) as (directory, _):
        assert (directory / "drive").is_file()
        assert link("sata", "/dev/null", links).resolve().name == "null"
        sweep(run, links)  # held by a lock
        with pytest.raises(UsageError, match="sata runs already"), claimed("sata", run, links):
            pass
        with claimed("nvme", run, links):
            pass
        assert directory.is_dir()
    assert not directory.exists() and not links.exists()


def test_what_a_killed_drive_left_is_removed(places):
    run, links = places
    (run / "old").mkdir(parents=True)
    (run / "old/lock").touch()
    (run / "other").mkdir()  # not of a drive
    link("old", "/dev/null", links)
    sweep(run, links)
    assert [path.name for path in run.iterdir()] == ["other"]
    assert not links.exists()


def test_a_failed_start_leaves_nothing(places):
    with pytest.raises(KeyError), claimed("sata", *places):
        raise KeyError
    assert list(places[0].iterdir()) == []


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_counts_since_the_start(tmp_path):
    for task, waited_ns in ((7, 100), (8, 50)):
        write(tmp_path / f"7/task/{task}/schedstat", f"1 {waited_ns} 3\n")
    write(tmp_path / "stat", "cpu 1 2 3 4 5 6 7 8 9 10\n")
    write(tmp_path / "reported_kib", "1000\n")
    counter = HostCounter(7, tmp_path, tmp_path / "reported_kib")
    write(tmp_path / "7/task/8/schedstat", "1 90 3\n")
    write(tmp_path / "stat", "cpu 1 2 3 4 5 6 7 108 9 10\n")
    write(tmp_path / "reported_kib", "5000\n")
    assert counter.counts() == {"waited_ns": 40, "stolen_ns": 1_000_000_000, "reported_kib": 4000}
    (tmp_path / "7/task/7/schedstat").unlink()  # a thread that ended
    write(tmp_path / "7/task/9/schedstat", "1 5 3\n")
    assert counter.counts()["waited_ns"] == 45


def test_missing_counts_are_none(tmp_path):
    assert HostCounter(7, tmp_path, tmp_path / "none").counts() == {
        "waited_ns": None, "stolen_ns": None, "reported_kib": None}


def test_available_memory(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  2048 kB\n")
    assert memory_bytes("MemAvailable", tmp_path) == 2 << 20


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
