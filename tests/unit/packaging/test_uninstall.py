"""Uninstalling removes what the manifest lists, and nothing else."""

import subprocess
import sys

import pytest
from tree import TREE


@pytest.fixture
def prefix(tmp_path):
    prefix = tmp_path / "prefix"
    for name in ("lib/blkreel/bin/blkreel", "share/man/man1/blkreel.1", "share/man/man1/other.1"):
        (prefix / name).parent.mkdir(parents=True, exist_ok=True)
        (prefix / name).touch()
    (prefix / "bin").mkdir()
    (prefix / "bin/blkreel").symlink_to("../lib/blkreel/bin/blkreel")
    return prefix


def uninstall(prefix, destdir=""):
    return subprocess.run([sys.executable, TREE / "packaging/install.py", "--prefix", prefix, "--destdir", destdir,
                           "uninstall"], capture_output=True, text=True)


@pytest.mark.parametrize("staged", [False, True])
def test_removes_the_listed_files_only(prefix, tmp_path, staged):
    used = tmp_path / "elsewhere" if staged else prefix
    if staged:
        (tmp_path / "destdir" / used.relative_to("/")).parent.mkdir(parents=True)
        prefix = prefix.rename(tmp_path / "destdir" / used.relative_to("/"))
    (prefix / "lib/blkreel/installed-files").write_text(f"{used}/bin/blkreel\n{used}/share/man/man1/blkreel.1\n")
    assert uninstall(used, tmp_path / "destdir" if staged else "").returncode == 0
    assert [path.name for path in prefix.rglob("*") if not path.is_dir()] == ["other.1"]
    assert "not installed" in uninstall(used, tmp_path / "destdir" if staged else "").stdout


def test_refuses_a_directory_that_is_no_installation(prefix):
    result = uninstall(prefix)
    assert result.returncode == 1 and "not an installation of blkreel" in result.stderr
    assert (prefix / "lib/blkreel/bin/blkreel").exists()
