"""One descriptor from the checks to the last byte read back: of files; tests/kernel/replay/test_claim.py has drives."""

import fcntl
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from quiet import progress

from blkreel.common.errors import BlkreelError, SafetyError
from blkreel.replay.drive.claim import held, is_held
from blkreel.replay.drive.target import Identity, find_target
from blkreel.replay.engine.engine import Payload
from blkreel.replay.plan.extents import Extents
from blkreel.replay.prepare.verify import verify
from blkreel.traces.format.schema import OPS

MIB = 1 << 20


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "image"
    path.write_bytes(bytes(MIB))
    return path


def replaced(path):
    """Puts another file, of the same size, into its place; gives the one that was there under another name."""
    other, kept = path.with_name("other"), path.with_name("kept")
    other.write_bytes(bytes(MIB))
    path.rename(kept)
    other.rename(path)
    return kept


def test_a_name_that_stands_for_something_else_since_it_was_found(image):
    target = find_target(image)
    replaced(image)
    words = r"image was replaced after it was checked: it was the file of inode \d+"
    with pytest.raises(SafetyError, match=words) as error, held(target):
        pass
    assert error.value.exit_code == 5
    assert not is_held(target)


@pytest.mark.parametrize(("put", "error", "message"), [
    (os.mkfifo, SafetyError, "was replaced"),  # opening it would wait for somebody who writes to it
    (lambda path: None, BlkreelError, "cannot be opened: No such file")], ids=["a fifo", "nothing"])
def test_what_is_there_instead_of_the_file_is_not_opened(image, put, error, message):
    target = find_target(image)
    image.unlink()
    put(image)
    with pytest.raises(error, match=message), held(target):
        pass


def test_what_was_replaced_while_claimed_is_written_and_read_as_claimed(image, issue, a_plan):
    target = find_target(image)
    with held(target) as claim:
        kept = replaced(image)
        issue(a_plan(np.arange(0, MIB, 4096), op=OPS["write"]), claims=[claim], may_write=True)
        found = verify(target, Extents(np.array([0]), np.array([MIB])), Payload(), 1, progress)
    assert found.blocks == 256
    assert any(kept.read_bytes()) and not any(image.read_bytes())


@pytest.mark.parametrize("wrong", ["inode", "device", "node", "diskseq"])
def test_the_helper_compares_what_it_opens(image, issue, a_plan, wrong):
    with held(find_target(image)) as claim:
        other = replace(claim.target.identity, **{wrong: getattr(claim.target.identity, wrong) + 1})
        plan, claims = a_plan([0], op=OPS["write"]), [replace(claim, target=replace(claim.target, identity=other))]
        if wrong == "diskseq":  # a file has none, and neither has a drive on an older kernel
            issue(plan, claims=claims, may_write=True)
            return
        with pytest.raises(SafetyError, match="image was replaced after it was checked"):
            issue(plan, claims=claims, may_write=True)
    assert not any(image.read_bytes())


def test_rows_go_to_the_claims_in_their_order(image, tmp_path, issue, a_plan):
    (tmp_path / "second").write_bytes(bytes(MIB))
    plan = {**a_plan([0, 4096], op=OPS["write"]), "target": np.array([0, 1])}
    issue(plan, target=[image, tmp_path / "second"], may_write=True)
    first, second = image.read_bytes(), (tmp_path / "second").read_bytes()
    assert any(first[:4096]) and not any(first[4096:])
    assert any(second[4096:8192]) and not any(second[:4096])


def test_a_claim_within_a_claim_is_the_same_and_ends_with_the_outer_one(image):
    target = find_target(image)
    with held(target) as outer:
        with held(find_target(image)) as inner:
            assert inner is outer
        assert is_held(target)
        with open(image, "rb") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not is_held(target)
    with open(image, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(outer.descriptor)


def test_the_lock_lasts_as_long_as_a_process_that_inherited_it(image):
    with held(find_target(image)) as claim:
        heir = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=claim.descriptors)
    with open(image, "rb") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        heir.communicate(b"\n")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_link_to_the_file_has_its_identity(image, tmp_path):
    (tmp_path / "link").symlink_to(image)
    assert find_target(tmp_path / "link").identity == Identity.named(image)
    assert Identity.named(tmp_path / "none") == Identity()
