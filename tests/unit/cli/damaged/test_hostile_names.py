"""Names that the kernel and users choose: no command fails on them or passes a terminal escape on."""

import csv
import io
import json
import re

import numpy as np
import pytest
from documents import valid_document
from small_trace import new_trace
from synthetic_runs import write_run

from blkreel.common.printable import printable
from blkreel.common.system import read_kernel_lines, read_kernel_text
from blkreel.replay.drive.target import find_target
from blkreel.replay.drive.usage import Kernel, uses_of

# Terminal title, color, markup of rich, line break, right-to-left override, a byte that is not UTF-8, a formula.
HOSTILE = "=1+1\x1b]0;owned\x07\x1b[31m[/x][bold]\n\u202egpj\udcff"
UNSAFE = re.compile("\x1b|\x07|\u202e|[\ud800-\udfff]|owned\n")


def trace_of_hostile_names(path):
    count = 50
    return new_trace(path, {
        "devices": [{"name": "sda", "path": f"/dev/{HOSTILE}", "model": HOSTILE, "size_bytes": 1 << 30}],
        "threads": {"7": {"comm": HOSTILE, "pid": 7, "process": HOSTILE}}, "command": [HOSTILE, HOSTILE],
        "title": HOSTILE, "description": HOSTILE, "source_format": HOSTILE, "kernel": HOSTILE,
        "import_warnings": [HOSTILE], "lost": {"total": 0}},
                     submit_ns=np.arange(count) * 1_000_000, latency_ns=90_000, op=np.arange(count) % 2, tid=7)


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    root = tmp_path_factory.mktemp("names")
    trace_of_hostile_names(root / "t.parquet")
    write_run(root / "run", label=HOSTILE, seconds=2)
    return root


def test_unsafe_characters_become_escapes():
    assert printable("a\x1b[1m\n\u202e\u2066\u2069\udcff\u2028é\x85") == r"a\x1b[1m\n\u202e\u2066\u2069\xff\u2028é\x85"
    assert printable("plain text, ü, 漢字") == "plain text, ü, 漢字"


@pytest.mark.parametrize("words", [
    ["info", "t.parquet"], ["info", "run"], ["check", "t.parquet"], ["report", "t.parquet"], ["report", "run"],
    ["compare", "t.parquet", "run"], ["report", "t.parquet", "--format", "markdown"],
    ["info", HOSTILE],
    ["replay", "t.parquet", "--on", "nil:64GiB", "--dry-run"], ["drives"], ["doctor"]], ids=lambda words: str(words[0]))
def test_nothing_unsafe_is_printed(names, blkreel, words):
    done = blkreel(*words, cwd=names, check=False)  # fails for output that is no UTF-8
    text = done.stdout + done.stderr
    assert not UNSAFE.search(text), ascii(UNSAFE.search(text))
    assert "internal error" not in text and "Traceback" not in text, text


@pytest.mark.parametrize("command", ["info", "check", "report"])
def test_documents_of_hostile_names(names, blkreel, command):
    document = valid_document(command, blkreel(command, names / "t.parquet", "--json", check=False).stdout)
    assert UNSAFE.search(json.dumps(document)) is None  # as escapes of JSON


def test_pages_and_tables_are_written(names, blkreel, tmp_path):
    for name in ("page.html", "page.md", "page.json"):
        blkreel("compare", names / "t.parquet", names / "run", "-o", tmp_path / name)
        assert not UNSAFE.search((tmp_path / name).read_text())
    blkreel("report", names / "t.parquet", "--format", "csv", "-o", tmp_path / "tables")
    for path in (tmp_path / "tables").glob("*.csv"):
        for row in csv.reader(io.StringIO(path.read_text())):
            assert not any(re.match(r"[=+@]|-[^\d.]", cell) for cell in row), (path.name, row)


def test_a_mount_point_that_is_not_utf8(tmp_path):
    (tmp_path / "mountinfo").write_bytes(
        b"25 1 8:1 / /mnt/\xff\xfe\xc2\x85\xe2\x80\xa8x rw - ext4 /dev/\xff rw\n"
        b"26 1 8:2 / /mnt/b rw - ext4 /dev/sdb rw\n")
    lines = read_kernel_lines(tmp_path / "mountinfo")
    assert len(lines) == 2 and lines[0].split(" ")[4].startswith("/mnt/\udcff\udcfe")
    assert read_kernel_text(tmp_path / "mountinfo").endswith("rw")
    image = tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    assert uses_of(find_target(str(image)), Kernel(mountinfo=tmp_path / "mountinfo")) == []


def test_a_label_is_found_by_its_own_bytes_and_by_what_is_printed(blkreel, tmp_path):
    label = "\u00e9\udce9\n\x1b"
    runs = [write_run(tmp_path / name, label=each, read_us=us) for name, each, us in
            (("a", label, 90), ("b", "other", 120))]
    for named in (label, printable(label)):
        result = blkreel("compare", *runs, "--highlight", named, "--base", named, "--fail-if", "read_p50 > +900%")
        assert "\u00e9\\xe9\\n\\x1b" in result.stdout
