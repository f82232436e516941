"""Files that blkreel reads in Python, changed anywhere: an error in words, or a value, and never another exception.

Recipes, spools, rows and metadata of traces have such tests beside their own: test_recipe_bad_input.py,
test_damaged_spools.py, test_bad_traces.py, test_damaged_metadata.py. In `make fuzz` each test has 125 times the cases,
at random.
"""

import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from cases import cases, is_fuzzing
from hypothesis import example, given
from hypothesis import strategies as st

from blkreel.analysis.metrics.definitions.registry import figures
from blkreel.analysis.metrics.partials.partial_file import MAGIC, VERSION, load
from blkreel.analysis.report import drives_file
from blkreel.analysis.report.page import brand
from blkreel.benchmarks.recipe.recipe import load_recipe
from blkreel.common.errors import BlkreelError
from blkreel.replay.engine.engine import PLAN_COLUMNS
from blkreel.replay.simulated import spec
from blkreel.traces.format.footer import read_footer
from blkreel.traces.format.pages import PageCheck, PageError
from blkreel.traces.format.reader import open_trace
from blkreel.traces.spool.blocks import BlockReader, Rows

TREE = Path(__file__).parents[2]
CORPUS = TREE / "tests/fuzz/corpus"
PARTIALS = [(TREE / f"tests/golden/{name}-v{VERSION}.bin").read_bytes() for name in ("partial", "partial-binned")]
TRACE = (TREE / "tests/golden/trace-v1.parquet").read_bytes()
DRIVES = b"""[[drive]]
match = "990 Pro*"
class = "consumer"
price = 119.9
currency = "EUR"
price_date = 2026-11-01
rivals = ["T705", "D7*"]
color = "#0072b2"
"""
NUMBERS = [0, 1, -1, 255, 2**31, 2**62, 2**63 - 1, -2**63]

# Bytes and words to put in place of others.
part = st.one_of(st.binary(max_size=8), st.sampled_from([struct.pack("<q", number) for number in NUMBERS]),
                 st.sampled_from([b"null", b"{}", b"[]", b"-1", b"1e999", b'""', b"9" * 40, b"[" * 5000, b"true"]))


def changed(data, changes):
    """changes: (position, removed bytes, inserted bytes) each; positions wrap around."""
    for at, removed, inserted in changes:
        at %= len(data) + 1
        data = data[:at] + inserted + data[at + removed:]
    return data


changes = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 12), part), min_size=1, max_size=4)


@pytest.mark.parametrize("is_text", [True, False], ids=["text", "numbers"])
@cases(120)
@given(st.sampled_from(PARTIALS), changes)
def test_a_changed_partial_is_refused_or_has_figures(is_text, data, changes):
    head = len(MAGIC) + 1
    plain = zlib.decompress(data[head:])
    end = 4 + int.from_bytes(plain[:4], "little")
    # A text with its length, so that its structure is reached.
    text = changed(plain[4:end], changes) if is_text else plain[4:end]
    numbers = plain[end:] if is_text else changed(plain[end:], changes)
    forged = struct.pack("<I", len(text)) + text + numbers
    try:
        assert figures(load(data[:head] + zlib.compress(forged, 1)))
    except (ValueError, BlkreelError) as error:
        assert str(error)


@cases(150)
@given(changes)
@example([(0, 0, b"\xff")])
@example([(0, 0, b"a = " + b"[" * 5000)])
def test_a_changed_drives_file_is_refused_or_read(tmp_path_factory, changes):
    path = tmp_path_factory.getbasetemp() / "fuzz-drives.toml"
    path.write_bytes(changed(DRIVES, changes))
    try:
        drives_file.load(path)
    except BlkreelError as error:
        assert str(path) in str(error) and error.remedy


@cases(200)
@given(changes)
def test_a_changed_footer_is_refused_or_measured(tmp_path_factory, changes):
    """The own reader of footers and page headers, without pyarrow, which aborts the process at some of them."""
    begin = len(TRACE) - 8 - int.from_bytes(TRACE[-8:-4], "little")
    footer = changed(TRACE[begin:-8], changes)
    path = tmp_path_factory.getbasetemp() / "fuzz-footer.parquet"
    path.write_bytes(TRACE[:begin] + footer + struct.pack("<I", len(footer)) + b"PAR1")
    try:
        PageCheck(read_footer(path)).check_file(path)
    except (PageError, BlkreelError) as error:
        assert str(error)


FLIPS_IN_FOOTER = """
import random, sys
from pathlib import Path
from blkreel.common.errors import BlkreelError
from blkreel.traces.format.reader import open_trace
content, path, flips = bytearray(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2]), random.Random(int(sys.argv[3]))
begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
end = content.find(b"blkreel.", begin)  # metadata, which is JSON
opened = 0
for _ in range(int(sys.argv[4])):
    at, bit = flips.randrange(begin, end), 1 << flips.randrange(8)
    content[at] ^= bit
    path.write_bytes(content)
    content[at] ^= bit
    print(at - begin, bit, flush=True)
    try:
        trace = open_trace(path)
        assert trace.row_groups_at and [trace.bounds(name, 0) for name in trace.schema.names]
        opened += 1
    except BlkreelError as error:
        assert str(error)
print("opened", opened)
"""


def test_no_flipped_bit_of_a_footer_ends_the_process(tmp_path):
    """pyarrow aborts the process at a column chunk of another type than its column."""
    (tmp_path / "t.parquet").write_bytes(TRACE)
    seed, count = (random.randrange(2**32), 5000) if is_fuzzing() else (1, 300)
    flips = subprocess.run([sys.executable, "-c", FLIPS_IN_FOOTER, tmp_path / "t.parquet", tmp_path / "flipped.parquet",
                            str(seed), str(count)], capture_output=True, text=True)
    assert flips.returncode == 0, f"seed {seed}: {flips.stdout[-20:]} {flips.stderr[-2000:]}"
    assert 0 < int(flips.stdout.split()[-1]) < count


def test_deeply_nested_toml_is_refused(tmp_path):
    path = tmp_path / "deep.toml"
    path.write_bytes(b"size = " + b"[" * 5000)
    for read in (drives_file.load, brand.load, load_recipe, lambda path: spec.parse(f"nil:{path}")):
        with pytest.raises(BlkreelError, match="nested too deeply"):
            read(str(path))


def test_the_sound_files_are_read():
    """Otherwise the tests above only see refusals."""
    assert all(figures(load(data)) for data in PARTIALS)
    path = TREE / "tests/golden/trace-v1.parquet"
    PageCheck(open_trace(path).footer).check_file(path)


def test_the_seeds_of_the_plan_have_the_layout_of_a_plan():
    """A plan of another layout is refused at once: the seeds would reach nothing."""
    seed = CORPUS / "plan/seed-layout-0"
    with open(seed, "rb") as file:
        rows = [block for block in BlockReader(file, "plan", PLAN_COLUMNS) if isinstance(block, Rows)]
    assert sum(block.count for block in rows) == 10
