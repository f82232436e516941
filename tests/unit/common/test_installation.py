"""The secret of a user: made once, read by nobody else, and never replaced."""

import subprocess
import sys

import pytest

from blkreel.common import installation
from blkreel.common.installation import keyed_hash


@pytest.fixture(autouse=True)
def directory(tmp_path):
    return tmp_path / "state"


def test_the_hash_is_that_of_the_user_and_the_purpose(directory, tmp_path, monkeypatch):
    first = keyed_hash("serial", b"S1")
    assert first == keyed_hash("serial", b"S1") != keyed_hash("serial", b"S2") != keyed_hash("partial", b"S2")
    installation._secret.cache_clear()
    assert keyed_hash("serial", b"S1") == first, "the next process makes the same"
    monkeypatch.setenv("BLKREEL_STATE_DIR", str(tmp_path / "other"))
    assert keyed_hash("serial", b"S1") not in ("", first)


def test_the_secret_is_private_and_made_by_one_process_only(directory):
    code = "from blkreel.common.installation import keyed_hash; print(keyed_hash('x', b''))"
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    hashes = {process.communicate()[0] for process in both}
    assert len(hashes) == 1 and hashes != {"\n"}
    assert (directory / "secret").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in directory.iterdir()] == ["secret"]


@pytest.mark.parametrize("spoil", [
    lambda path: path.chmod(0o644), lambda path: path.write_bytes(b"short"),
    lambda path: (path.rename(path.with_name("real")), path.symlink_to("real"))])
def test_a_secret_that_others_may_know_is_not_used(directory, spoil):
    keyed_hash("x", b"")
    spoil(directory / "secret")
    installation._secret.cache_clear()
    assert keyed_hash("x", b"") == ""


def test_a_user_without_a_home_directory(monkeypatch):
    """As in a container that runs with any user ID: `drives` and each replay printed an internal error."""
    def unknown(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("HOME", "XDG_STATE_HOME", "BLKREEL_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setattr("os.geteuid", lambda: 4_000_000)
    assert str(installation.state_directory()) == "/.local/state/blkreel/drives"


def test_without_a_place_for_it_there_is_no_hash(monkeypatch):
    monkeypatch.setenv("BLKREEL_STATE_DIR", "/proc/nowhere")
    assert keyed_hash("x", b"") == ""
