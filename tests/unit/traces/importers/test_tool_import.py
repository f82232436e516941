"""Recordings of fio, biosnoop and vscsiStats."""

import struct

import pytest
from tool_traces import biosnoop, expected_rows, iolog2, iolog3, rows_of, vscsi

from blkreel.common.errors import TraceError
from blkreel.traces.format.schema import OPS

IOS = [(number, 5_000_000 + 1000 * number, 40 + 900 * (number % 5), 8 * number, 8 * (1 + number), number % 3 == 0)
       for number in range(200)]


def test_iolog_3_has_microseconds_and_a_device_for_each_file(run):
    frame, result = run(iolog3(IOS))
    assert result.metadata["source_format"] == "iolog3"
    assert rows_of(frame[frame.op != OPS["flush"]]) == expected_rows(IOS, with_latency=False)
    assert rows_of(frame[frame.op == OPS["flush"]]) == [[1000 * (IOS[-1][1] - IOS[0][1]), -1, 0, 0, OPS["flush"]]]
    assert [device["name"] for device in result.metadata["devices"]] == ["/dev/sda", "/dev/sdb"]
    assert result.metadata["ledger"]["ignored"]["actions on files: add, open, close"]["count"] == 3
    assert "latency" in result.metadata["source_lacks"]


def test_iolog_2_waits_until_a_time_since_the_start(run):
    frame, result = run(iolog2(IOS))
    assert result.metadata["source_format"] == "iolog2"
    assert rows_of(frame) == expected_rows(IOS, with_latency=False)
    assert result.metadata["clock_resolution_ns"] == 1_000_000
    assert result.metadata["ledger"]["ignored"]["waits"]["count"] == len(IOS)


@pytest.mark.parametrize(("last_ns", "text"), [
    (10_000_000, "fio version 2 iolog\n/d wait 50 0\n/d read 0 512\n/d wait 20 0\n/d read 512 512\n/d wait 60 0\n"
                 "/d read 0 512\n"),
    (40_000_000, "fio version 3 iolog\n50000 /d read 0 512\n20000 /d read 512 512\n60000 /d read 0 512\n")])
def test_a_time_that_goes_back_is_no_delay(run, last_ns, text):
    """Version 2 waits until a time since the start, version 3 for the difference to the record before."""
    frame, result = run(text.encode())
    assert result.metadata["ledger"]["clock_back_steps"] == 1
    assert frame.submit_ns.tolist() == [0, 0, last_ns] and frame.offset_bytes.tolist() == [0, 512, 0]


def test_an_iolog_may_last_for_years(run):
    frame, result = run(b"fio version 3 iolog\n1 /d read 0 512\n31536000000001 /d read 512 512\n")
    assert frame.submit_ns.tolist() == [0, 365 * 86_400 * 10**9] and not result.metadata["ledger"]["rejected"]


def test_an_iolog_without_times_says_so(run):
    _, result = run(b"fio version 2 iolog\n/d read 0 512\n/d write 512 512\n")
    assert any("has no times" in text for text in result.metadata["import_warnings"])


def test_an_iolog_of_another_version_is_refused(run):
    with pytest.raises(TraceError, match="is of version 1, not an I/O log of version 3"):
        run(iolog3(IOS).replace(b"version 3", b"version 1"), "iolog3")


@pytest.mark.parametrize("with_queue", [False, True])
def test_biosnoop_is_stamped_at_completion(run, with_queue):
    frame, result = run(biosnoop(IOS, with_queue))
    assert result.metadata["source_format"] == "biosnoop"
    assert set(frame.queue_ns) == ({250_000} if with_queue else {-1})
    assert rows_of(frame) == expected_rows(IOS)
    assert frame.tid.tolist() == [4000 + io[0] % 2 for io in IOS]
    names = [device["name"] for device in result.metadata["devices"]]
    assert [names[number] for number in frame.device] == [f"nvme{io[0] % 2}n1" for io in IOS]
    assert result.metadata["threads"]["4000"]["comm"] == "my app"
    assert result.metadata["ledger"]["clock_back_steps"] == 0


def test_biosnoop_of_libbpf_has_no_queue_time_of_requests_without_a_scheduler(run):
    frame, _ = run(b"""TIME(s)     COMM           PID     DISK    T    SECTOR     BYTES   QUE(ms) LAT(ms)
0.001000    fio            4711    nvme0n1 RA   2048       4096     -1.000   0.085
0.002000    fio            4711    nvme0n1 WS   4096       8192      0.010   0.190
""", max_rejected=0)
    assert frame[["queue_ns", "latency_ns", "length_bytes"]].to_numpy().tolist() == [[-1, 85_000, 4096],
                                                                                   [10_000, 190_000, 8192]]


def test_biosnoop_with_patterns_and_a_line_before_the_first(run):
    frame, _ = run(b"""TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  P QUE(ms) LAT(ms)
0.000000    fio            99      nvme0n1   R 2048       1310720S    0.01    0.50
-0.000100   fio            99      nvme0n1   W 8          4096   R    0.02    0.10
0.000900    fio            99      nvme0n1   R 4608       1048576?    0.01    0.50
""", max_rejected=0)
    assert frame[["submit_ns", "latency_ns", "queue_ns", "length_bytes"]].to_numpy().tolist() == [
        [0, 500_000, 10_000, 1310720], [300_000, 100_000, 20_000, 4096], [900_000, 500_000, 10_000, 1048576]]


def test_biosnoop_of_its_documentation_and_of_libbpf(run):
    """Rows of the example in biosnoop's documentation, and letters of operations as libbpf-tools print them."""
    frame, _ = run(b"""TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  LAT(ms)
0.000004    supervise      1950   xvda1   W 13092560   4096      0.74
0.000178    supervise      1950   xvda1   W 13092432   4096      0.61
1.002111    ?              0      xvda1   R 0          0         0.20
""", max_rejected=0)
    assert rows_of(frame) == [[0, 740_000, 13092560 * 512, 4096, OPS["write"]],
                           [304_000, 610_000, 13092432 * 512, 4096, OPS["write"]]]
    frame, result = run(b"""root@host:~# biosnoop 2>&1 | tee FILE
TIMESTAMP   COMM           PID     DISK      T    SECTOR     BYTES   LAT(ms)
0.500000    kworker/0:1H   23      sda       FF   0          0         2.500
0.600000    fio            99      sda       WFS  8          512       1.000
lost 12 events on CPU #3!
0.700000    fstrim         98      sda       D    16         65536     3.000
Possibly lost 5 samples
^C
root@host:~#
""", max_rejected=0)
    assert rows_of(frame) == [[0, 2_500_000, 0, 0, OPS["flush"]], [101_500_000, 1_000_000, 4096, 512, OPS["write"]],
                           [199_500_000, 3_000_000, 8192, 65536, OPS["discard"]]]
    assert result.metadata["lost"]["total"] == 17


@pytest.mark.parametrize("version", [1, 2])
def test_vscsi_of_both_versions(run, version):
    frame, result = run(vscsi(IOS, version))
    assert result.metadata["source_format"] == "vscsi"
    assert rows_of(frame) == expected_rows(IOS, with_latency=version == 2)
    assert ("latency" in result.metadata["source_lacks"]) == (version == 1)


def test_other_scsi_commands_and_a_cut_record_are_counted(run):
    flush, inquiry = (struct.pack("<IIIHHQQ", 1, 0, 0, command, 0x100, 7, IOS[-1][1]) for command in (0x35, 0x12))
    frame, result = run(vscsi(IOS, 1) + flush + inquiry + b"cut")
    assert rows_of(frame)[-1] == [1000 * (IOS[-1][1] - IOS[0][1]), -1, 0, 0, OPS["flush"]]
    ledger = result.metadata["ledger"]
    assert ledger["records"] == len(IOS) + 3 and ledger["rows"] == len(IOS) + 1
    assert ledger["ignored"]["SCSI commands other than reads, writes and flushes"]["count"] == 1
    assert f"byte {32 * (len(IOS) + 2):,}" in ledger["rejected"]["an incomplete record"]["example"]
