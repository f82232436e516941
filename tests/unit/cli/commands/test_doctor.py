"""`blkreel doctor` on machines that lack something."""

import ctypes
import errno
import json
import os
import re
import struct
import subprocess
from types import SimpleNamespace

import pytest

from blkreel.cli import requirements as checks
from blkreel.cli.commands import doctor
from blkreel.common.errors import BlkreelError


def test_without_root_it_says_sudo(monkeypatch):
    monkeypatch.setattr(checks.os, "geteuid", lambda: 1000)
    assert checks.root().status == "missing" and "sudo" in checks.root().remedy


@pytest.fixture
def without_capabilities(monkeypatch):
    monkeypatch.setattr(checks, "_has_capability", lambda number: number != 39)


def test_an_ordinary_user_is_told_how_to_give_the_helper_what_it_needs(monkeypatch, without_capabilities, tmp_path):
    helper = tmp_path / "blkreel-capture"
    helper.touch()
    monkeypatch.setattr(checks.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(checks.capture_helper, "HELPER", helper)
    check = checks.privilege()
    assert check.status == "missing"
    assert check.remedy.endswith(f"sudo setcap cap_bpf,cap_perfmon,cap_syslog+ep {helper}")
    monkeypatch.setattr(checks.os, "getxattr", lambda path, name: b"\1")
    assert checks.privilege().status == "ok"


def test_root_whose_capabilities_were_taken_is_told_which(monkeypatch, without_capabilities):
    monkeypatch.setattr(checks.os, "geteuid", lambda: 0)
    check = checks.privilege()
    assert check.status == "missing" and check.detail == "root without cap_bpf" and "container" in check.remedy


def test_a_kernel_without_types(tmp_path):
    check = checks.kernel_types(tmp_path)
    assert check.status == "missing" and "CONFIG_DEBUG_INFO_BTF" in check.remedy


@pytest.mark.parametrize("text, status", [("none [integrity] confidentiality", "ok"),
                                          ("none integrity [confidentiality]", "missing"), ("[none] integrity", "ok")])
def test_only_confidentiality_stands_in_the_way(tmp_path, text, status):
    (tmp_path / "kernel/security").mkdir(parents=True)
    (tmp_path / "kernel/security/lockdown").write_text(text)
    assert checks.lockdown(tmp_path).status == status


def test_an_unmounted_securityfs_does_not_say_that_the_kernel_is_not_locked_down(tmp_path):
    (tmp_path / "kernel/security").mkdir(parents=True)
    check = checks.lockdown(tmp_path)
    assert check.status == "note" and "unknown" in check.detail and "mount" in check.remedy
    (tmp_path / "kernel/security/lsm").touch()
    assert checks.lockdown(tmp_path).detail == "none"


def test_programs_that_the_kernel_refuses_come_with_its_reason(monkeypatch):
    def refuse():
        raise BlkreelError("the kernel refuses", "do this")

    monkeypatch.setattr(checks.capture_helper, "probe", refuse)
    check, = checks.bpf_programs()
    assert (check.status, check.detail, check.remedy) == ("missing", "the kernel refuses", "do this")


def test_the_lesser_kind_and_the_older_kernel_are_notes(monkeypatch):
    monkeypatch.setattr(checks.capture_helper, "probe", lambda: {"programs": "raw_tp", "io_start": False})
    assert [check.status for check in checks.bpf_programs()] == ["note", "note"]


@pytest.mark.parametrize("name, remedy", [("tracefs", "mount -t tracefs"), ("debugfs", "mount -t debugfs"),
                                          ("blk_tracer", "mount -t tracefs")])
def test_what_is_not_mounted_is_no_obstacle(tmp_path, name, remedy):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mounts").write_text("proc /proc proc rw 0 0\n")
    check = getattr(checks, name)(tmp_path)
    assert check.status == "note" and check.remedy.startswith(remedy)


def test_a_kernel_without_the_blk_tracer(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mounts").write_text(f"nodev {tmp_path} tracefs rw 0 0\n")
    (tmp_path / "available_tracers").write_text("function nop\n")
    assert "CONFIG_BLK_DEV_IO_TRACE" in checks.blk_tracer(tmp_path).remedy
    (tmp_path / "available_tracers").write_text("blk function nop\n")
    assert checks.blk_tracer(tmp_path).status == "ok"


@pytest.fixture
def says(monkeypatch, tmp_path):
    """A program that prints one line."""
    def make(name, line):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho {line}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        monkeypatch.setattr("blkreel.common.system.ROOT_DIRECTORIES", (str(tmp_path), "/usr/bin", "/bin"))

    return make


@pytest.mark.parametrize("version, status", [("v0.8.0", "note"), ("v0.9.1", "ok"), ("v0.17.0", "ok"), ("v1.2.0", "ok")])
def test_an_old_bpftrace(says, version, status):
    says("bpftrace", f"bpftrace {version}")
    check = checks.bpftrace()
    assert check.status == status and version in check.detail


@pytest.mark.parametrize("name", ["blktrace", "bpftrace"])
def test_a_missing_program_comes_with_its_package(monkeypatch, name, tmp_path):
    monkeypatch.setattr(checks, "find_program", lambda name: None)
    check = checks.blktrace(tmp_path) if name == "blktrace" else checks.bpftrace()
    assert check.status == "note" and check.remedy == f"apt-get install {name}"


def test_a_locked_down_kernel_is_told_of_the_source_that_works(says, tmp_path):
    says("blktrace", "2.0.0")
    (tmp_path / "kernel/security").mkdir(parents=True)
    (tmp_path / "kernel/security/lockdown").write_text("none [integrity] confidentiality")
    assert "--source ftrace" in checks.blktrace(tmp_path).remedy


def test_a_slow_clock_is_noted(tmp_path):
    directory = tmp_path / "devices/system/clocksource/clocksource0"
    directory.mkdir(parents=True)
    (directory / "current_clocksource").write_text("hpet\n")
    assert checks.clock(tmp_path).status == "note"


def test_a_missing_helper_names_the_page_about_installing(monkeypatch, tmp_path):
    monkeypatch.setattr(checks.capture_helper, "HELPER", tmp_path / "gone")
    assert "docs/install.md" in checks.helpers().remedy


def test_a_helper_of_a_group_names_the_group(monkeypatch, tmp_path):
    helper = tmp_path / "blkreel-capture"
    helper.touch(0o640)
    monkeypatch.setattr(checks.capture_helper, "HELPER", helper)
    monkeypatch.setattr(checks.capture_helper.grp, "getgrgid", lambda number: SimpleNamespace(gr_name="recorders"))
    remedy = checks.helpers().remedy
    assert "recorders" in remedy if helper.stat().st_gid else remedy == "use sudo"
    os.chown(helper, -1, 12345) if os.geteuid() == 0 else pytest.skip("needs root: run `sudo make test`")
    assert checks.helpers().remedy.endswith("recorders, and log in again")
    with pytest.raises(BlkreelError, match="permission denied"):
        checks.capture_helper.probe()


def test_the_document_and_the_exit_code_agree(blkreel):
    result = blkreel("doctor", "--json", check=False)
    document = json.loads(result.stdout)
    missing = [check for check in document["checks"] if check["status"] == "missing"]
    assert document["ready"] == (not missing) == (result.returncode == 0)
    assert all(check["remedy"] for check in missing), "each missing requirement has a remedy"


@pytest.mark.parametrize(("missing", "tracer", "conclusion"), [
    ("", "ok", "ready"), ("io_uring", "ok", "not ready for replay: a requirement is missing"),
    ("BPF programs", "note", "not ready for capture: a requirement is missing"),
    ("BPF programs", "ok", "not ready for capture: a requirement is missing; capture then takes .* ftrace, .*")])
def test_it_concludes_what_works(monkeypatch, missing, tracer, conclusion):
    areas = {"helpers": "capture, replay", "BPF programs": "capture", "io_uring": "replay", "tracefs": "other sources"}
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = [checks.Check("other sources", "blk tracer", tracer, "")]
    found += [checks.Check(area, name, "missing" if name == missing else "ok", "") for name, area in areas.items()]
    assert re.fullmatch(conclusion, doctor.conclusion(found))


@pytest.mark.parametrize(("number", "requirement"), [(321, "BPF programs"), (425, "io_uring")])
def test_a_seccomp_profile_as_containers_have_it_is_named(blkreel, number, requirement):
    """It refuses bpf or io_uring_setup of a program that is root otherwise."""
    if os.geteuid():
        pytest.skip("needs root: run `sudo make test`")
    blocked = struct.pack("HBBIHBBIHBBIHBBI", 0x20, 0, 0, 0, 0x15, 0, 1, number, 0x06, 0, 0, 0x50000 | errno.EPERM,
                          0x06, 0, 0, 0x7FFF0000)  # load the number; is it that; then EPERM; else allowed
    program = ctypes.create_string_buffer(blocked)
    filter_ = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(program)))
    libc = ctypes.CDLL(None)
    result = subprocess.run([blkreel.command, "doctor", "--json"], capture_output=True, text=True,
                            preexec_fn=lambda: libc.prctl(22, 2, filter_, 0, 0))
    check = next(check for check in json.loads(result.stdout)["checks"] if check["name"] == requirement)
    assert result.returncode == 1 and check["status"] == "missing"
    assert "outside the container: a seccomp profile may refuse" in check["remedy"]
