"""Where programs of other packages are searched."""

import os

from blkreel.common.system import ROOT_DIRECTORIES, find_program


def test_root_takes_no_program_from_path(tmp_path, monkeypatch):
    """sudo and services may pass a PATH that others can write to."""
    (tmp_path / "nvme-of-tests").write_text("#!/bin/sh\n")
    (tmp_path / "nvme-of-tests").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert find_program("nvme-of-tests") is None
    assert find_program("sh") in {f"{directory}/sh" for directory in ROOT_DIRECTORIES}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert find_program("nvme-of-tests") == str(tmp_path / "nvme-of-tests")


def test_programs_of_administrators_are_found_without_them_in_path(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert find_program("losetup") in ("/usr/sbin/losetup", "/sbin/losetup")
