"""Counts of the host while a drive is emulated."""

from blkreel.replay.emulated.host import HostCounter, available_memory_bytes


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


def test_missing_counts_are_none(tmp_path):
    assert HostCounter(7, tmp_path, tmp_path / "none").counts() == {
        "waited_ns": None, "stolen_ns": None, "reported_kib": None}


def test_available_memory(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  2048 kB\n")
    assert available_memory_bytes(tmp_path) == 2 << 20
