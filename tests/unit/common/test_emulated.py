"""Accounts of emulated drives: which device has one, and what happened between two of them."""

import json

import pytest
from emulated_accounts import account, calibration

from blkreel.common.emulated import EmulatedUses, file_of, name_of, reasons, renewed_account, use_between


@pytest.mark.parametrize(("backing_file", "name"), [
    ("/run/blkreel/emulated/sata/drive", "sata"), ("/run/blkreel/emulated/sata/account.json", None),
    ("/tmp/blkreel/emulated/sata/drive", None), ("/run/blkreel/emulated/a/b/drive", None), ("", None)])
def test_only_the_file_of_a_drive_is_one(backing_file, name):
    assert name_of(backing_file) == name


@pytest.mark.parametrize(("device", "comm", "name"), [
    ("/dev/ublkb3", "blkreel-emulate", "sata"), ("/dev/ublkb30", "blkreel-emulate", None),
    ("/dev/ublkb3", "cat", None), ("/dev/ublkb3", None, None)])
def test_a_ublk_device_is_named_while_its_server_runs(tmp_path, device, comm, name):
    """The number of a device whose server has ended may be that of another device, and its process number too."""
    run, processes = tmp_path / "emulated", tmp_path / "proc"
    for path, text in ((run / "sata/ublk", "/dev/ublkb3 77 123\n"), (run / "other/ublk", ""),
                       (processes / "77/comm", comm and f"{comm}\n")):
        path.parent.mkdir(parents=True)
        if text is not None:
            path.write_text(text)
    assert name_of(file_of(device, run, processes), run) == name


def stored(tmp_path, document):
    (tmp_path / "sata").mkdir(exist_ok=True)
    (tmp_path / "sata/account.json").write_text(json.dumps(document))


def test_a_renewed_account_is_waited_for(tmp_path):
    stored(tmp_path, account(renewed_ns=1))
    times = iter(range(10, 1000))

    def now_ns():
        now = next(times)
        if now == 12:
            stored(tmp_path, account(renewed_ns=12))
        return now

    assert renewed_account("sata", tmp_path, now_ns)["renewed_ns"] == 12


def test_a_use_has_the_counts_of_its_time():
    begin = account({"read_ios": 100, "late_ios": 5, "late_ns": 1000})
    end = account({"read_ios": 300, "flush_ios": 2, "late_ios": 6, "late_ns": 4000},
                  host={"waited_ns": 70, "stolen_ns": 0, "reported_kib": 5})
    use = use_between(begin, end)
    assert (use["ios"], use["late_ios"], use["late_ns"]) == (202, 1, 3000)
    assert (use["waited_ns"], use["reported_kib"]) == (70, None)


def use(duration_ns=10_000_000_000, counts=None, **changes):
    return use_between(account(), account({"read_ios": 1000, **(counts or {})}, renewed_ns=duration_ns, **changes))


@pytest.mark.parametrize("counts", [{"late_ios": 10, "blocking_ns": 200_000_000},
                                    {"blocking_ns": 300_000_000, "beside_blocking": 5}])
def test_an_exact_drive_has_no_reasons(counts):
    """Flushes beside which other I/O arrived held nothing back."""
    assert list(reasons([use(counts=counts)])) == []


WAITED = {"waited_ns": 210_000_000, "stolen_ns": 0, "reported_kib": None}
EXACT = {"p50_ns": 200_000, "p99_ns": 210_000}
FAST = {"p50_ns": 189_000, "p99_ns": 200_000}


@pytest.mark.parametrize(("changes", "level", "text"), [
    ({"counts": {"late_ios": 11, "late_ns": 5_000_000}}, "qualified",
     "1.10 % of the I/Os completed late (limit 1 %), 5.00 ms in all"),
    ({"counts": {"late_ios": 101}}, "invalid", "10.1 % of the I/Os completed late (limit 10 %)"),
    ({"counts": {"late_ios": 1000}}, "invalid", "100 % of the I/Os completed late (limit 10 %)"),
    ({"calibration": calibration(check={"asked_ns": 200_000, "read": FAST, "write": FAST})}, "qualified",
     "reads of the calibration took 189 µs of 200 µs asked (limit 5 %)"),
    ({"calibration": calibration(check={"asked_ns": 200_000, "read": EXACT, "write": EXACT, "flush": FAST})},
     "qualified", "flushes of the calibration took 189 µs of 200 µs asked (limit 5 %)"),
    ({"beyond": ["read latency 9 µs (from 30 µs on)"]}, "qualified", "cannot reach read latency 9 µs"),
    ({"host": WAITED}, "qualified", "waited for a processor for 2.10 % of the time (limit 2 %)"),
    ({"counts": {"blocking_ns": 300_000_000}}, "qualified",
     "flushes held back other I/O for 3.00 % of the time (limit 2 %)")])
def test_each_limit_is_a_reason(changes, level, text):
    first = next(reasons([use(**changes)]))
    assert (first["level"], text in first["text"]) == (level, True), first["text"]
    assert first["text"].startswith("emulated drive sata: ")


def test_uses_of_the_emulated_drives_only(tmp_path):
    stored(tmp_path, account({"read_ios": 5}, renewed_ns=1 << 62))
    uses = EmulatedUses(["", "/images/a", str(tmp_path / "sata/drive"), str(tmp_path / "gone/drive")], tmp_path)
    stored(tmp_path, account({"read_ios": 7}, renewed_ns=(1 << 62) + 10))
    assert [(each["name"], each["ios"], each["duration_ns"]) for each in uses.end()] == [("sata", 2, 10)]
