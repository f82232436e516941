"""Erasing through nvme-cli: what it is asked, what is refused before anything is touched, and what an end means.

A program of its own stands in for nvme; tests/vm/guest has the real one on an emulated drive.
"""

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from quiet import progress

from blkreel.common.device import Drive
from blkreel.common.errors import BlkreelError, SafetyError, UsageError
from blkreel.replay.drive import erase
from blkreel.replay.drive.target import Identity, Target

NVME = Drive("nvme1n1", "/dev/nvme1n1", "disk", 259, 0, 1 << 40, 512, 512, serial="S1")
TARGET = Target(Path("/dev/nvme1n1"), NVME, NVME.size_bytes, 512, "", Path("/sys/block/nvme1n1"))
ABLE = {"id-ctrl": {"oacs": 0b10, "fna": 0, "sanicap": 0b10}, "list-ns": {"nsid_list": [{"nsid": 1}]},
        "id-ns": {"flbas": 0, "dps": 0}}


@pytest.fixture
def nvme(tmp_path, monkeypatch):
    """nvme(answers) puts a program in the path that gives them, by verb, and is what it was asked.

    A list is given one by one, its last for ever; a string that begins with ! is an error.
    """
    def install(answers):
        (tmp_path / "answers").write_text(json.dumps(answers))
        program = tmp_path / "bin/nvme"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"""#!/usr/bin/python3
import json, sys
answers = json.load(open("{tmp_path}/answers"))
open("{tmp_path}/asked", "a").write(json.dumps(sys.argv[1:]) + chr(10))
answer = answers.get(sys.argv[1], "")
if isinstance(answer, list):
    now, answers[sys.argv[1]] = answer[0], answer[1:] or answer
    json.dump(answers, open("{tmp_path}/answers", "w"))
    answer = now
if isinstance(answer, str) and answer.startswith("!"):
    print("a warning first", file=sys.stderr)
    sys.exit(answer[1:])
print(answer if isinstance(answer, str) else json.dumps(answer))
""")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr("blkreel.common.system.ROOT_DIRECTORIES", (str(program.parent), "/usr/bin", "/bin"))
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

        def asked():
            path = tmp_path / "asked"
            return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

        return asked

    monkeypatch.setattr(erase, "list_drives", lambda sys_root: [NVME])
    return install


@pytest.mark.parametrize(("kind", "partition", "verbs"), [
    ("format", "", {"id-ctrl", "list-ns"}), ("sanitize", "", {"id-ctrl", "list-ns"}),
    ("discard", "nvme1n1p1", set()), ("none", "nvme1n1p1", set())])
def test_what_can_be_erased_is_asked_and_not_told(nvme, kind, partition, verbs):
    asked = nvme(ABLE)
    erase.check(kind, replace(TARGET, partition=partition))
    assert {words[0] for words in asked()} <= verbs


@pytest.mark.parametrize("kind", ["format", "sanitize"])
def test_what_never_can(nvme, kind):
    nvme(ABLE)
    with pytest.raises(UsageError, match=r"nvme1n1p1 is a partition.*/dev/nvme1n1; or"):
        erase.check(kind, replace(TARGET, path=Path("/dev/nvme1n1p1"), partition="nvme1n1p1"))
    with pytest.raises(UsageError, match="sda is no NVMe drive.*--erase discard"):
        erase.check(kind, replace(TARGET, path=Path("/dev/sda"), drive=replace(NVME, name="sda")))
    with pytest.raises(UsageError, match="no such way to erase: burn; use one of: discard, format"):
        erase.check("burn", TARGET)


def test_without_the_program(monkeypatch, tmp_path):
    monkeypatch.setattr(erase, "find_program", lambda name: None)
    with pytest.raises(BlkreelError, match="nvme-cli, which is not installed; apt-get install nvme-cli"):
        erase.check("format", TARGET)


@pytest.mark.parametrize(("kind", "able", "words"), [
    ("format", {"oacs": 0}, "has no format"),
    ("sanitize", {"sanicap": 0b101}, "no sanitize by block erase; try --erase format"),
])
def test_what_this_drive_cannot(nvme, kind, able, words):
    nvme({**ABLE, "id-ctrl": {**ABLE["id-ctrl"], **able}})
    with pytest.raises(BlkreelError, match=words):
        erase.check(kind, TARGET)


def test_other_namespaces_are_named_and_kept(nvme, monkeypatch):
    """A sanitize takes them all, a format where the drive says so."""
    other = replace(NVME, name="nvme1n2", path="/dev/nvme1n2")
    elsewhere = replace(NVME, name="nvme2n1", path="/dev/nvme2n1", serial="S2")
    monkeypatch.setattr(erase, "list_drives", lambda sys_root: [NVME, other, elsewhere])
    nvme({**ABLE, "list-ns": {"nsid_list": [{"nsid": 1}, {"nsid": 2}]}})
    with pytest.raises(SafetyError, match="a sanitize of /dev/nvme1n1 would erase /dev/nvme1n2, too"):
        erase.check("sanitize", TARGET)
    erase.check("format", TARGET)
    for fna in (0b01, 0b10):
        nvme({**ABLE, "id-ctrl": {"oacs": 2, "fna": fna}})
        with pytest.raises(SafetyError, match="a format of /dev/nvme1n1 would erase /dev/nvme1n2, too"):
            erase.check("format", TARGET)


def test_namespaces_that_this_machine_does_not_see_count(nvme):
    nvme({**ABLE, "list-ns": {"nsid_list": [{"nsid": 1}, {"nsid": 7}, {"nsid": 9}]}})
    with pytest.raises(SafetyError, match="2 more that this machine does not show"):
        erase.check("sanitize", TARGET)
    nvme({**ABLE, "list-ns": "!Invalid Command Opcode"})
    erase.check("sanitize", TARGET)


def test_a_format_erases_and_keeps_the_layout(nvme):
    asked = nvme({**ABLE, "id-ns": {"flbas": 0b0010010, "dps": 0b1001}})
    erase.format_drive(TARGET, progress)
    (told,) = [words for words in asked() if words[0] == "format"]
    assert told[1] == "/dev/nvme1n1"
    assert {"--ses=1", "--lbaf=2", "--ms=1", "--pi=1", "--pil=1", "--force"} <= set(told)


def test_a_format_that_is_refused_says_why(nvme):
    nvme({**ABLE, "format": "!NVMe status: Access Denied(0x86)"})
    with pytest.raises(BlkreelError, match=r"nvme format /dev/nvme1n1 failed: NVMe status: Access Denied"):
        erase.format_drive(TARGET, progress)


@pytest.fixture
def node(tmp_path):
    """Stands for a drive's node; nvme-cli is given its name and nothing else."""
    path = tmp_path / "nvme1n1"
    path.touch()
    (tmp_path / "another").touch()
    return path


def test_a_node_that_was_replaced_since_the_checks_is_not_erased(nvme, node):
    asked, target = nvme(ABLE), replace(TARGET, path=node, identity=Identity.named(node))
    (node.parent / "another").rename(node)
    with pytest.raises(SafetyError, match="was replaced after it was checked; nvme id-ns was not run"):
        erase.format_drive(target, progress)
    with pytest.raises(SafetyError, match="nvme sanitize-log was not run"):
        erase.sanitize(target, False, lambda: None, progress, poll_s=0)
    assert not asked()


def test_a_node_that_is_replaced_between_two_commands_is_not_erased(nvme, node, tmp_path):
    """Or even within one, which then tells that something else may have been erased."""
    asked, target = nvme(ABLE), replace(TARGET, path=node, identity=Identity.named(node))
    with open(tmp_path / "bin/nvme", "a") as program:
        program.write(f"import os\nos.rename({str(tmp_path / 'another')!r}, {str(node)!r})\n")
    with pytest.raises(SafetyError, match="nvme id-ns may have gone to what it is now"):
        erase.format_drive(target, progress)
    assert [words[0] for words in asked()] == ["id-ns"]


def status(number, sprog=65535, old=False):
    """As nvme-cli prints it: under the drive's name, the status as a number, or with words."""
    told = number if old else f"({number}) some words"
    return {"nvme1n1": {"sprog": sprog, "sstat": {"global_erased": 0, "status": told}}}


@pytest.mark.parametrize("old", [True, False])
def test_a_sanitize_is_begun_and_waited_for(nvme, old):
    asked, began = nvme({"sanitize-log": [status(0, old=old), status(2, 1000, old), status(2, 60000, old),
                                          status(1, old=old)]}), []
    erase.sanitize(TARGET, False, lambda: began.append(len(asked())), progress, poll_s=0)
    assert [words[0] for words in asked()] == ["sanitize-log", "sanitize"] + ["sanitize-log"] * 3
    assert asked()[1][1:] == ["/dev/nvme1n1", "--sanact=2"]
    assert began == [2], "noted when the drive has it, before the wait"


@pytest.mark.parametrize(("log", "was_begun", "begins"), [
    ([status(2, 100), status(2, 200), status(1)], False, False), ([status(1)], True, False),
    ([status(1), status(2), status(1)], False, True)], ids=["interrupted", "ended meanwhile", "of some other time"])
def test_a_sanitize_is_begun_unless_it_was(nvme, log, was_begun, begins):
    asked = nvme({"sanitize-log": log})
    erase.sanitize(TARGET, was_begun, lambda: None, progress, poll_s=0)
    assert ("sanitize" in [words[0] for words in asked()]) == begins


@pytest.mark.parametrize(("log", "message"), [
    ([status(0), status(2), status(3)], "the sanitize of /dev/nvme1n1 failed; the drive takes no I/O"),
    *((answer, "nvme") for answer in ("", "no json at all", "[]", "{}"))])
def test_a_sanitize_that_fails_and_answers_that_are_none(nvme, log, message):
    nvme({"sanitize-log": log})
    with pytest.raises(BlkreelError, match=message):
        erase.sanitize(TARGET, False, lambda: None, progress, poll_s=0)
