"""The file of what was measured beside a run: whole, damaged, killed on the way."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from blkreel.common.errors import BlkreelError, OutputExists, TraceError
from blkreel.common.files.output_lock import OutputInUse
from blkreel.traces.telemetry.file import FILE, Telemetry, sensor, write_telemetry
from blkreel.traces.telemetry.reader import read_telemetry, recover_telemetry
from blkreel.traces.telemetry.spool import TelemetrySpool, spool_of


def some(count=10):
    return Telemetry({"power_w": sensor("W", "meter", 2.0), "link_width": sensor("lanes", "sysfs", missing="none")},
                     {"before": {"media_errors": 3}}, 1000,
                     {"power_w": (np.arange(count) * 500_000_000, np.linspace(1, 2, count))})


def test_what_is_written_is_read(tmp_path):
    write_telemetry(tmp_path / FILE, some())
    found = read_telemetry(tmp_path)
    assert found.series("power_w")[1].tolist() == np.linspace(1, 2, 10).tolist()
    assert found.sensors["power_w"]["samples"] == 10
    assert [len(part) for part in found.series("link_width")] == [0, 0]
    assert found.sensors["link_width"]["missing"] == "none"
    assert found.smart == {"before": {"media_errors": 3}}
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_run_of_which_nothing_is_known_has_a_file_that_says_why(tmp_path):
    write_telemetry(tmp_path / FILE, Telemetry({"power_w": sensor("W", "", missing="no meter")}))
    found = read_telemetry(tmp_path)
    assert found.sensors["power_w"]["missing"] == "no meter"
    assert len(found.series("power_w")[0]) == 0
    assert len(pd.read_parquet(tmp_path / FILE)) == 0


def test_no_number_is_no_sample(tmp_path):
    values = np.array([1, np.nan, np.inf, 2.0])
    write_telemetry(tmp_path / FILE, Telemetry({"a": sensor("W", "")}, samples={"a": (np.arange(4), values)}))
    assert read_telemetry(tmp_path).series("a")[1].tolist() == [1, 2]


def test_nothing_is_overwritten_unasked(tmp_path):
    write_telemetry(tmp_path / FILE, some())
    with pytest.raises(OutputExists):
        write_telemetry(tmp_path / FILE, some(3))
    write_telemetry(tmp_path / FILE, some(3), force=True)
    assert read_telemetry(tmp_path).sensors["power_w"]["samples"] == 3
    assert read_telemetry(tmp_path / "nowhere") is None


@pytest.mark.parametrize("spoil", [lambda data: data[:-9], lambda data: b"", lambda data: b"PAR1 and no more"])
def test_a_damaged_file_is_an_error_with_a_remedy(tmp_path, spoil):
    write_telemetry(tmp_path / FILE, some(1000))
    (tmp_path / FILE).write_bytes(spoil((tmp_path / FILE).read_bytes()))
    with pytest.raises(TraceError) as raised:
        read_telemetry(tmp_path)
    assert FILE in raised.value.message and raised.value.remedy


def test_a_flipped_bit_is_told_or_does_no_harm(tmp_path):
    write_telemetry(tmp_path / FILE, some(1000))
    data, told = (tmp_path / FILE).read_bytes(), 0
    for at in range(4, len(data), 41):
        (tmp_path / FILE).write_bytes(data[:at] + bytes([data[at] ^ 8]) + data[at + 1:])
        try:
            found = read_telemetry(tmp_path)
        except TraceError as error:
            told += bool(error.remedy)
        else:
            assert found.series("power_w")[1].tolist() in ([], np.linspace(1, 2, 1000).tolist()), at
    assert told > len(data) // 41 // 2


def test_other_parquet_and_later_versions_are_refused(tmp_path):
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / FILE)
    with pytest.raises(TraceError, match="not telemetry"):
        read_telemetry(tmp_path)
    write_telemetry(tmp_path / FILE, some(), force=True)
    # The version stands in plain bytes of the footer.
    data = (tmp_path / FILE).read_bytes()
    assert data.count(b'{"version":1') == 1
    (tmp_path / FILE).write_bytes(data.replace(b'{"version":1', b'{"version":9'))
    with pytest.raises(TraceError, match="version 9.*update blkreel"):
        read_telemetry(tmp_path)


def filled(directory, epoch=True):
    spool = TelemetrySpool(directory)
    spool.sensor("power_w", "W", "meter", 2.0)
    spool.sensor("temperature_c", "C", "", missing="modprobe drivetemp")
    for second in range(5):
        spool.samples((100 + second) * 10**9, {"power_w": second / 10})
        if second == 1 and epoch:
            spool.epoch(101 * 10**9 + 500)
    spool.gap("power_w", 102 * 10**9, 103 * 10**9)
    spool.note("power_w", "it blinked")
    spool.smart("before", {"media_errors": 1})
    return spool


def test_the_spool_becomes_the_file_on_the_runs_clock(tmp_path):
    spool = filled(tmp_path)
    assert list(tmp_path.iterdir()) == [spool_of(tmp_path)]
    spool.finish(spool.read())
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    found = read_telemetry(tmp_path)
    assert found.epoch_ns == 101 * 10**9 + 500
    assert found.series("power_w")[0].tolist() == [(second - 1) * 10**9 - 500 for second in range(5)]
    entry = found.sensors["power_w"]
    assert entry["gaps"] == [[10**9 - 500, 2 * 10**9 - 500]] and entry["notes"] == ["it blinked"]
    assert found.sensors["temperature_c"]["missing"] == "modprobe drivetemp"


def test_a_line_that_was_cut_costs_that_line(tmp_path):
    spool = filled(tmp_path)
    spool.close()
    with open(spool.path, "r+b") as file:
        file.truncate(file.seek(0, 2) - 10)
    found = read_telemetry(tmp_path)
    assert found.sensors["power_w"]["samples"] == 5 and found.smart == {}
    assert any("unreadable lines" in note for note in found.sensors["power_w"]["notes"])


@pytest.mark.parametrize("rubbish", [b"\x00\xff\n", b"[1,2]\n", b"7\n", b'{"t":1}\n', b'{"t":"x","v":{"a":1}}\n',
                                     b'{"t":1,"v":{"power_w":"x"}}\n', b'{"note":"nobody","text":""}\n', b"null\n"])
def test_rubbish_between_the_lines_costs_nothing_else(tmp_path, rubbish):
    spool = filled(tmp_path)
    spool.close()
    data = spool.path.read_bytes().splitlines(keepends=True)
    spool.path.write_bytes(b"".join([*data[:4], rubbish, *data[4:]]))
    found = read_telemetry(tmp_path)
    assert found.series("power_w")[1].tolist() == [0, 0.1, 0.2, 0.3, 0.4]


def test_a_spool_that_still_has_a_writer_is_not_recovered(tmp_path):
    spool = filled(tmp_path)
    with pytest.raises(OutputInUse, match="is being written"):
        recover_telemetry(tmp_path)
    spool.close()
    assert recover_telemetry(tmp_path) == tmp_path / FILE
    assert recover_telemetry(tmp_path) is None
    assert "recovered" in read_telemetry(tmp_path).sensors["power_w"]["notes"][-1]


def test_a_run_that_died_before_its_start_keeps_its_samples(tmp_path):
    filled(tmp_path, epoch=False).close()
    recover_telemetry(tmp_path)
    found = read_telemetry(tmp_path)
    assert found.epoch_ns is None
    assert found.series("power_w")[0].tolist() == [second * 10**9 for second in range(5)]
    assert any("start" in note for note in found.sensors["power_w"]["notes"])


WRITER = """
import sys, time
from blkreel.traces.telemetry.spool import TelemetrySpool
spool = TelemetrySpool(sys.argv[1])
spool.sensor("power_w", "W", "meter", 100.0)
spool.epoch(0)
for index in range(100000):
    spool.samples(index, {"power_w": index})
    print(index, flush=True)
    time.sleep(0.001)
"""


def test_a_killed_writer_loses_no_sample_that_it_had_written(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, text=True)
    time.sleep(0.01)
    for line in process.stdout:
        if int(line) == 50:
            break
    process.send_signal(signal.SIGKILL)
    last = int((["50"] + process.stdout.read().split())[-1])
    process.wait()
    process.stdout.close()
    assert not (tmp_path / FILE).exists()
    assert len(read_telemetry(tmp_path).series("power_w")[0]) >= last + 1
    recover_telemetry(tmp_path)
    value = read_telemetry(tmp_path).series("power_w")[1]
    assert len(value) >= last + 1 and value.tolist() == list(range(len(value)))


def test_a_disk_that_is_full_keeps_what_was_there(tiny_filesystem):
    spool = filled(tiny_filesystem)
    with open(tiny_filesystem / "filler", "wb", buffering=0) as filler:
        try:
            while filler.write(bytes(1 << 12)):
                pass
        except OSError:
            pass
    for second in range(1000):
        spool.samples((200 + second) * 10**9, {"power_w": 9})
    assert "space" in spool.failed
    with pytest.raises(BlkreelError, match="no space left"):
        spool.finish(Telemetry({"a": sensor("W", "")}, samples={"a": (np.arange(9999), np.random.rand(9999))}))
    assert spool.path.exists() and not (tiny_filesystem / FILE).exists()
    (tiny_filesystem / "filler").unlink()
    spool.samples(3000 * 10**9, {"power_w": 3})
    spool.close()
    recover_telemetry(tiny_filesystem)
    value = read_telemetry(tiny_filesystem).series("power_w")[1].tolist()
    assert value[:5] == [0, 0.1, 0.2, 0.3, 0.4] and value[-1] == 3
    assert json.loads(json.dumps(read_telemetry(tiny_filesystem).sensors))["power_w"]["samples"] == len(value)
