"""What `blkreel doctor` says of machines that lack something."""

import json

import pytest

from blkreel.cli import checks
from blkreel.traces.errors import BlkreelError


def test_without_root_it_says_sudo(monkeypatch):
    monkeypatch.setattr(checks.os, "geteuid", lambda: 1000)
    check = checks.privilege()
    assert check.status == "missing" and "sudo" in check.remedy


def test_a_kernel_without_types(tmp_path):
    check = checks.kernel_types(tmp_path)
    assert check.status == "missing" and "CONFIG_DEBUG_INFO_BTF" in check.remedy


@pytest.mark.parametrize("text, status", [("none [integrity] confidentiality", "ok"),
                                          ("none integrity [confidentiality]", "missing"), ("[none] integrity", "ok")])
def test_only_confidentiality_stands_in_the_way(tmp_path, text, status):
    (tmp_path / "kernel/security").mkdir(parents=True)
    (tmp_path / "kernel/security/lockdown").write_text(text)
    assert checks.lockdown(tmp_path).status == status


def test_programs_that_the_kernel_refuses_come_with_its_reason(monkeypatch):
    def refuse():
        raise BlkreelError("the kernel refuses", "do this")

    monkeypatch.setattr(checks.capture_helper, "probe", refuse)
    check, = checks.bpf_programs()
    assert (check.status, check.detail, check.remedy) == ("missing", "the kernel refuses", "do this")


def test_the_lesser_kind_and_the_older_kernel_are_notes(monkeypatch):
    monkeypatch.setattr(checks.capture_helper, "probe", lambda: {"programs": "raw_tp", "io_start": False})
    assert [check.status for check in checks.bpf_programs()] == ["note", "note"]


def test_tracefs_that_is_not_mounted_is_no_obstacle(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mounts").write_text("proc /proc proc rw 0 0\n")
    check = checks.tracefs(tmp_path)
    assert check.status == "note" and check.remedy.startswith("mount -t tracefs")


def test_a_slow_clock_is_noted(tmp_path):
    directory = tmp_path / "devices/system/clocksource/clocksource0"
    directory.mkdir(parents=True)
    (directory / "current_clocksource").write_text("hpet\n")
    assert checks.clock(tmp_path).status == "note"


def test_a_missing_helper_names_the_build(monkeypatch, tmp_path):
    monkeypatch.setattr(checks.capture_helper, "HELPER", tmp_path / "gone")
    assert checks.helpers().remedy == "make install"


def test_the_document_and_the_exit_code_agree(blkreel):
    result = blkreel("doctor", "--json", check=False)
    document = json.loads(result.stdout)
    missing = [check for check in document["checks"] if check["status"] == "missing"]
    assert document["ready"] == (not missing) == (result.returncode == 0)
    assert all(check["remedy"] for check in missing), "each thing missing comes with what mends it"
