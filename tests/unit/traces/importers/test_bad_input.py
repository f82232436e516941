"""Bad input of every format: an error with its place, or an account of each record; nothing half-written."""

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zipfile
from dataclasses import replace

import pyarrow as pa
import pytest
from cases import cases, is_fuzzing
from foreign_traces import RECORDINGS
from hypothesis import given
from hypothesis import strategies as st

from blkreel.common.errors import BlkreelError, TraceError
from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OP_NAMES
from blkreel.traces.importers import FORMATS, ImportOptions, import_recording, text_table
from blkreel.traces.importers.pipeline import Records
from blkreel.traces.importers.source_file import HEAD_BYTES, SourceFile, read_head

BY_NAME = {format_.name: format_ for format_ in FORMATS}
LENIENT = ImportOptions(max_rejected=1.0)
COMPRESSIONS = [gzip.compress, bz2.compress, lzma.compress, pa.Codec("zstd").compress]
NUMBER = re.compile(r"(?<![\w.])\d+(\.\d+)?(?![\w.])")
by_format = pytest.mark.parametrize("name", sorted(RECORDINGS))
TEXTS = sorted(name for name, content in RECORDINGS.items() if b"\0" not in content)
by_text = pytest.mark.parametrize("name", TEXTS)
# How a file is packed and encoded is undone before its format is read: a table, lines, quoted fields.
by_kind_of_text = pytest.mark.parametrize("name", TEXTS if is_fuzzing() else ["blkparse", "msr", "wpa"])


def block_size(name):
    """The option that some formats need."""
    return {"block_bytes": 512} if name and BY_NAME[name].has_block_size else {}


def imported(tmp_path, name, data, options=LENIENT):
    """Import bytes: (frame, ledger), or None if they are refused. Checks what holds in either case."""
    source, output = tmp_path / "recording", tmp_path / "t.parquet"
    source.write_bytes(data)
    try:
        result = import_recording([source], output, force=True, format_name=name,
                                  options=replace(options, **block_size(name)))
    except BlkreelError as error:
        assert not output.exists() and not list(tmp_path.glob(".*"))
        assert str(error) and "bug" not in str(error)
        return None
    trace = open_trace(output)
    assert check(trace).errors == []
    ledger = result.metadata["ledger"]
    counted = sum(tally["count"] for kind in ("rejected", "ignored") for tally in ledger[kind].values())
    assert ledger["records"] == ledger["rows"] + counted and ledger["rows"] == trace.rows
    frame = trace.table().to_pandas()
    output.unlink()
    return frame, ledger


def converted(tmp_path, name, data):
    """Convert bytes to columns without a trace, which takes longer: (rows, account), or None if they are refused."""
    (tmp_path / "recording").write_bytes(data)
    records = Records(BY_NAME[name], [tmp_path / "recording"], replace(LENIENT, **block_size(name)))
    try:
        parts = list(records.columns())
        records.check(records.files)
    except BlkreelError as error:
        assert str(error) and "bug" not in str(error)
        return None
    account = records.account
    assert account.records == account.rows + account.rejected_records + account.ignored_records
    for part in parts:
        assert (part["offset_bytes"] >= 0).all() and (part["length_bytes"] >= 0).all()
        assert (part["offset_bytes"] <= (1 << 63) - 1 - part["length_bytes"]).all()
        assert set(part["op"].tolist()) <= set(OP_NAMES) and (part.get("latency_ns", part["op"]) >= -1).all()
        assert (abs(part["submit_ns"]) <= 1 << 62).all()
    return sum(len(part["submit_ns"]) for part in parts), account


def test_each_format_has_a_recording():
    assert {format_.name for format_ in FORMATS} == set(RECORDINGS)


@by_format
def test_the_format_is_recognized_by_content(run, name):
    _, result = run(RECORDINGS[name], **block_size(name))
    assert result.metadata["source_format"] == name and result.missing == []


@pytest.mark.parametrize("name", ["disksim", "fiu", "mqsim"])
def test_a_blank_behind_the_last_field_is_none(run, name):
    """As `printf("%d ")` for each field writes it: the format was not recognized."""
    frame, result = run(RECORDINGS[name].replace(b"\n", b" \n"))
    assert result.metadata["source_format"] == name and frame.equals(run(RECORDINGS[name])[0])


@by_text
def test_blank_lines_before_the_first_are_none(run, name):
    """A header behind one was a rejected record, or not found."""
    plain, expected = run(RECORDINGS[name], **block_size(name))
    frame, result = run(b"\n \r\n" + RECORDINGS[name], **block_size(name))
    assert frame.equals(plain) and result.metadata["ledger"]["rejected"] == expected.metadata["ledger"]["rejected"]


@pytest.mark.parametrize("name", sorted(RECORDINGS) if is_fuzzing() else ["blkparse", "msr", "vscsi"])
def test_a_compressed_file_gives_the_same_rows_and_a_cut_one_an_error(tmp_path, name):
    plain, _ = imported(tmp_path, name, RECORDINGS[name])
    for compress in COMPRESSIONS if name == "msr" else COMPRESSIONS[:1]:
        frame, _ = imported(tmp_path, name, bytes(compress(RECORDINGS[name])))
        assert frame.equals(plain)
        data = bytes(compress(RECORDINGS[name] * 200))
        assert_refused(tmp_path, data[:len(data) * 2 // 3], "stream is cut or damaged after", name)


def assert_refused(tmp_path, data, message=None, name=None, **options):
    """The error; neither a trace nor a temporary file is left."""
    (tmp_path / "in").write_bytes(data)
    with pytest.raises(TraceError, match=message) as refused:
        import_recording([tmp_path / "in"], tmp_path / "t.parquet", format_name=name, options=ImportOptions(**options))
    assert not (tmp_path / "t.parquet").exists() and not list(tmp_path.glob(".*"))
    return refused.value


def zipped(**files):
    with io.BytesIO() as out:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        return out.getvalue()


def tarred(**files):
    with io.BytesIO() as out:
        with tarfile.open(fileobj=out, mode="w") as archive:
            directory = tarfile.TarInfo("directory")
            directory.type = tarfile.DIRTYPE
            archive.addfile(directory)
            for name, data in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return out.getvalue()


@pytest.mark.parametrize("pack", [zipped, tarred, lambda **files: gzip.compress(tarred(**files)),
                                  lambda **files: lzma.compress(tarred(**files))])
def test_an_archive_of_one_file_is_read_and_one_of_several_is_refused(tmp_path, pack):
    plain, _ = imported(tmp_path, "msr", RECORDINGS["msr"])
    for name in ("msr", None):
        frame, _ = imported(tmp_path, name, pack(trace=RECORDINGS["msr"]))
        assert frame.equals(plain)
    several = assert_refused(tmp_path, pack(a=RECORDINGS["msr"], b=b"text"), "archive of (several|2) files")
    assert "unpack it" in several.remedy
    data = pack(a=RECORDINGS["msr"] * 50)
    assert_refused(tmp_path, data[:len(data) // 2], name="msr")


def gzipped_again(data):
    return gzip.compress(gzip.compress(data))


@pytest.mark.parametrize(("pack", "inner"), zip(
    [zipped, tarred, lambda **files: gzip.compress(tarred(**files))] * 2,
    [*COMPRESSIONS, gzipped_again, lambda data: gzip.compress(tarred(trace=data))], strict=True))
def test_a_compressed_file_in_an_archive_is_read(tmp_path, pack, inner):
    plain, _ = imported(tmp_path, "msr", RECORDINGS["msr"])
    for name in ("msr", None):
        frame, _ = imported(tmp_path, name, pack(trace=bytes(inner(RECORDINGS["msr"]))))
        assert frame.equals(plain)
    data = bytes(inner(RECORDINGS["msr"] * 200))
    assert_refused(tmp_path, pack(trace=data[:len(data) * 2 // 3]),
                   r"in (zip|tar|tar in gzip) stream is cut or damaged after", "msr")


@pytest.mark.parametrize("length", [30, -1])
def test_a_cut_stream_is_named_with_what_was_read_of_it(tmp_path, length):
    """Also inside of the first bytes, which show how it is packed."""
    text = RECORDINGS["msr"][:300]
    (tmp_path / "in").write_bytes(tarred(trace=gzip.compress(text)[:length]))
    with pytest.raises(TraceError, match="the gzip in tar stream is cut or damaged after") as refused, \
            SourceFile(tmp_path / "in") as source:
        while source.read(7):
            pass
    assert int(re.search("after ([0-9]+) dec", str(refused.value))[1]) in (range(300) if length > 0 else [300])


@pytest.mark.parametrize("data, options, message, remedy", [
    (tarred(trace=zipped(trace=b"a")), {}, "holds a zip archive inside of a tar file", "tar -xf .*in,"),
    (gzipped_again(gzipped_again(gzip.compress(b"a"))), {}, "packed more than 4 times", "gzip -dk .*in,"),
    (zipped(trace=b"7z\xbc\xaf\x27\x1c.."), {}, "holds a 7z archive", "unzip .*in,"),
    (tarred(trace=b"\x07\x74\x61\x65" + bytes(60)), {}, "blktrace is not read from a tar file", "tar -xf .*in,"),
    (gzip.compress(b"PAR1" + bytes(60)), {"columns": "time=t:ns,op=o,offset=a:bytes,length=b:bytes"},
     "a Parquet file is not read from a gzip file", "gzip -dk .*in,"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", {}, "pointer of Git LFS", "git lfs pull"),
    (b"7z\xbc\xaf\x27\x1c..", {}, "7z archive", "7z x .*in,"), (b"\x04\x22\x4d\x18..", {}, "lz4", "lz4 -d .*in,")],
    ids=["zip in tar", "five gzip", "7z in zip", "blktrace in tar", "Parquet in gzip",  # the data has its time
         "Git LFS", "7z", "lz4"])
def test_content_that_is_not_read_as_it_is_is_named_with_what_to_do(tmp_path, data, options, message, remedy):
    assert re.search(remedy, assert_refused(tmp_path, data, message, **options).remedy)


@by_format
def test_a_cut_file_never_gains_a_row(tmp_path, name):
    whole, _ = converted(tmp_path, name, RECORDINGS[name])

    @cases(3)
    @given(st.integers(0, len(RECORDINGS[name]) - 1))
    def cut(length):
        result = converted(tmp_path, name, RECORDINGS[name][:length])
        assert result is None or result[0] <= whole

    cut()


@by_format
def test_changed_bytes_give_rows_or_an_error(tmp_path, name):
    @cases(3)
    @given(st.lists(st.tuples(st.integers(0, len(RECORDINGS[name]) - 1), st.integers(0, 255)), min_size=1, max_size=8))
    def change(changes):
        data = bytearray(RECORDINGS[name])
        for at, value in changes:
            data[at] = value
        converted(tmp_path, name, bytes(data))

    change()


# No line end, no NUL, which is in no text, and something to see: what is blank is no record.
_NOISE = st.binary(min_size=1, max_size=60).map(lambda line: line.translate(None, b"\0\r\n")).filter(
    lambda line: max(line, default=0) > ord(" "))


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "xperf"])  # a single field limits its header
def test_each_line_is_counted_once(tmp_path, name, monkeypatch):
    """Lines of any bytes among those of a recording are a record each, also where blocks of a file end inside them."""
    lines = RECORDINGS[name].splitlines(keepends=True)
    monkeypatch.setattr(text_table, "BLOCK_BYTES", max(map(len, lines)) + 100)
    rows, before = converted(tmp_path, name, RECORDINGS[name])

    # The first lines may be titles and options, which are no records.
    @cases(3)
    @given(st.lists(st.tuples(st.integers(len(lines) // 2, len(lines)), _NOISE), max_size=5))
    def insert(noise):
        added = list(lines)
        for at, line in sorted(noise, reverse=True):
            added.insert(at, line + b"\n")
        result = converted(tmp_path, name, b"".join(added))
        assert result is not None and result[1].records == before.records + len(noise)
        # A quote in a table of WPA may span lines, which are rejected then.
        assert result[0] == rows or name == "wpa" and any(b'"' in line for _, line in noise)

    insert()


@pytest.mark.parametrize("name", ["oracle-general", "vscsi"])
def test_each_record_of_any_bytes_is_counted_once(tmp_path, name, monkeypatch):
    """Also a last one that is cut, where batches end, and from a compressed file."""
    monkeypatch.setattr(f"{type(BY_NAME[name]).__module__}._BATCH_RECORDS", 3)
    rows, before = converted(tmp_path, name, RECORDINGS[name])
    record_bytes, rest = divmod(len(RECORDINGS[name]), before.records)
    assert not rest and rows + before.rejected_records + before.ignored_records == before.records

    @cases(3)
    @given(st.integers(0, before.records), st.binary(max_size=200), st.integers(0, 300), st.booleans())
    def replace(at, noise, replaced, is_compressed):
        head = RECORDINGS[name][:max(at, 20) * record_bytes]
        data = head + noise + RECORDINGS[name][len(head) + replaced:]
        result = converted(tmp_path, name, gzip.compress(data) if is_compressed else data)
        assert result is not None and result[1].records == -(-len(data) // record_bytes)

    replace()


@by_text
def test_numbers_at_the_limits_are_rejected_or_valid(tmp_path, name):
    """A number of the last record that has some becomes negative, 2^63, or very long."""
    text = RECORDINGS[name].decode()
    *_, last = NUMBER.finditer(text)
    line = text.rindex("\n", 0, last.start()), text.index("\n", last.end())
    numbers = [number.span() for number in NUMBER.finditer(text, *line)]

    @cases(3)
    @given(st.sampled_from(numbers), st.sampled_from(
        ("-1", str(1 << 63), str(-(1 << 63) - 1), "9" * 40, "1e400", "nan", "0x10", "1_000")))
    def change(span, value):
        converted(tmp_path, name, (text[:span[0]] + value + text[span[1]:]).encode())

    change()


@by_kind_of_text
def test_line_ends_and_byte_order_marks_change_nothing(tmp_path, name):
    plain, _ = imported(tmp_path, name, RECORDINGS[name])
    for data in (b"\xef\xbb\xbf" + RECORDINGS[name], RECORDINGS[name].replace(b"\n", b"\r\n"),
                 RECORDINGS[name].removesuffix(b"\n"), RECORDINGS[name] + b"\n\n"):
        frame, ledger = imported(tmp_path, name, data)
        assert frame.equals(plain) and not ledger["rejected"]


@by_kind_of_text
@pytest.mark.parametrize("encoding, mark", [("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")])
def test_utf_16_text_is_read_as_utf_8(tmp_path, name, encoding, mark):
    """Windows programs export it. Cut inside a character, it loses the last record at most."""
    data = mark + RECORDINGS[name].decode().encode(encoding)
    plain, before = converted(tmp_path, name, RECORDINGS[name])
    assert read_head(tmp_path / "recording") == RECORDINGS[name][:HEAD_BYTES]
    for written in (data, gzip.compress(data)):
        rows, account = converted(tmp_path, name, written)
        assert (rows, account.records, account.rejected_records) == (plain, before.records, before.rejected_records)
        assert read_head(tmp_path / "recording") == RECORDINGS[name][:HEAD_BYTES]
    rows, account = converted(tmp_path, name, data[:-5])
    assert plain - 1 <= rows <= plain and account.records <= before.records


def test_numbers_that_begin_like_a_byte_order_mark_are_not_text(tmp_path):
    data = b"\xff\xfe" + bytes(range(256)) * 8
    (tmp_path / "numbers").write_bytes(data)
    assert read_head(tmp_path / "numbers") == data


def test_characters_beyond_ascii_keep_their_text(tmp_path):
    text = "Größe;時間;\U0001f600\n" * 300_000
    (tmp_path / "text").write_bytes(b"\xff\xfe" + ("Init Time (s);Size (B)\n" * 30 + text).encode("utf-16-le"))
    with SourceFile(tmp_path / "text") as source:
        parts = list(iter(lambda: source.read(4097), b""))
    assert b"".join(parts).decode() == "Init Time (s);Size (B)\n" * 30 + text


@by_kind_of_text
def test_a_gigantic_field_is_one_rejected_record(tmp_path, name):
    plain, before = imported(tmp_path, name, RECORDINGS[name])
    lines = RECORDINGS[name].splitlines(keepends=True)
    half = len(lines) // 2
    frame, ledger = imported(tmp_path, name, b"".join(lines[:half]) + b"x" * (9 << 20) + b"\n" + b"".join(lines[half:]))
    assert ledger["records"] == before["records"] + 1
    assert [(reason, tally["count"]) for reason, tally in ledger["rejected"].items()] \
        == [("a line is longer than 4 MiB", 1)]
    assert f"line {half + 1:,}" in ledger["rejected"]["a line is longer than 4 MiB"]["example"]
    assert len(frame) == len(plain)


@by_text
def test_another_delimiter_is_refused(tmp_path, name):
    lines = RECORDINGS[name].splitlines()
    delimiter = max(b", ", b"; ", b"  ", key=lambda pair: lines[-1].count(pair[:1]))[:1]
    assert_refused(tmp_path, RECORDINGS[name].replace(delimiter, b"|"), name=name, **block_size(name))


def test_a_file_that_grows_is_read_up_to_its_first_length(tmp_path):
    path = tmp_path / "growing"
    path.write_bytes(b"a" * 100)
    with SourceFile(path) as source:
        first = source.read(10)
        with open(path, "ab") as file:
            file.write(b"b" * 100)
        assert first + source.read(1000) == b"a" * 100 and source.grew
