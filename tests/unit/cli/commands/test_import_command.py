"""`blkreel import`: what it prints, its documents, and its exit codes."""

from documents import valid_document
from foreign_traces import RECORDINGS


def test_the_account_and_what_the_source_lacks_are_printed(blkreel, tmp_path):
    (tmp_path / "in.csv").write_bytes(RECORDINGS["tencent"])
    shown = blkreel("import", tmp_path / "in.csv", "-o", tmp_path / "t.parquet", "--device", "1058").stdout
    assert "60 records: 15 rows, 0 rejected, 45 ignored" in shown
    assert "ignored: 45 I/O of another device (first: " in shown
    assert "the source lacks: latency, thread, process, dependencies" in shown
    assert "lacks     latency, thread, process, dependencies" in blkreel("info", tmp_path / "t.parquet").stdout
    shown = blkreel("import", tmp_path / "in.csv", "-o", tmp_path / "all.parquet").stdout
    assert "27 records out of order by up to 1.00 s, sorted by submit time" in shown


def test_of_thousands_of_volumes_the_first_are_named(blkreel, tmp_path):
    """And how many more there are: one line named all of them, and info had a line for each."""
    (tmp_path / "in.csv").write_text("".join(f"{number},R,0,4096,{number}\n" for number in range(2000)))
    shown = blkreel("import", tmp_path / "in.csv", "--format", "alibaba", "-o", tmp_path / "t.parquet").stdout
    assert "2,000 I/Os of 0, 1, 2, 3, 4, 5 and 1,994 more devices over" in shown
    lines = blkreel("info", tmp_path / "t.parquet").stdout.splitlines()
    assert "  device    1,988 more: --json" in lines and len(lines) < 30
    refused = blkreel("replay", tmp_path / "t.parquet", "--on", "nil:1GiB", "-o", tmp_path / "r", check=False).stderr
    assert "2,000 devices: 0 (0, 1 I/O), 1 (1, 1 I/O), " in refused and "and 1,988 more" in refused


def test_a_number_that_is_the_name_of_another_device_is_noted(blkreel, tmp_path):
    """--device 2 of a slice took the volume of that number, not the one of that name, without a word."""
    (tmp_path / "in.csv").write_text("2,R,0,4096,1\n1,R,0,8192,2\n0,R,0,512,3\n")
    trace = tmp_path / "t.parquet"
    blkreel("import", tmp_path / "in.csv", "--format", "alibaba", "-o", trace)
    assert "  device    0: 2\n" in blkreel("info", trace).stdout
    noted = "device 2 is the one named 0; that named 2 is device 0"
    assert noted in blkreel("slice", trace, "--device", "2", "-o", tmp_path / "s.parquet").stderr
    assert noted in blkreel("replay", trace, "--on", "2=nil:1GiB", "--dry-run").stderr
    assert not blkreel("slice", trace, "--device", "1", "-o", tmp_path / "one.parquet").stderr


def test_the_document_has_the_account(blkreel, tmp_path):
    (tmp_path / "in.csv").write_bytes(RECORDINGS["msr"])
    result = blkreel("import", tmp_path / "in.csv", "-o", tmp_path / "t.parquet", "--json")
    document = valid_document("import", result.stdout)
    assert document["rows"] == document["ledger"]["records"] == 60 and document["devices"] == ["hm_0", "hm_1"]
    assert document["detected"] and document["source_format"] == "msr" and document["assumed"] is None
    (tmp_path / "in.csv").write_bytes(RECORDINGS["disksim"])
    words = ("import", tmp_path / "in.csv", "-o", tmp_path / "t.parquet", "--force", "--json")
    document = valid_document("import", blkreel(*words).stdout)
    assert document["detected"] and "times in ms" in document["assumed"]
    document = valid_document("import", blkreel(*words, "--format", "disksim").stdout)
    assert not document["detected"] and document["assumed"] is None


def test_a_rejected_record_gives_exit_code_3_and_its_line(blkreel, tmp_path):
    (tmp_path / "in.csv").write_bytes(RECORDINGS["msr"] + b"1,2,3\n")
    arguments = ("import", tmp_path / "in.csv", "-o", tmp_path / "t.parquet")
    assert "--max-rejected 2%" in blkreel(*arguments, code=1).stderr and not (tmp_path / "t.parquet").exists()
    assert "in.csv: line 61: 1,2,3" in blkreel(*arguments, "--max-rejected", "2%", code=3).stderr


def test_a_preview_writes_nothing(blkreel, tmp_path):
    (tmp_path / "in.csv").write_bytes(RECORDINGS["alibaba"])
    words = ("import", tmp_path / "in.csv", "--preview", "--columns",
             "time=5:us@unix,op=2,offset=3:bytes,length=4:bytes,device=1")
    lines = blkreel(*words).stdout.splitlines()
    assert lines[0] == "format columns, the first 10 rows:" and len(lines) == 12
    document = valid_document("import", blkreel(*words, "--json").stdout)
    assert len(document["preview"]) == 10
    assert document["preview"][0] | {"submit_ns": 1577808000000042000, "op": "write", "device": "0"} \
        == document["preview"][0]
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_usage_errors(blkreel, tmp_path):
    (tmp_path / "in.csv").write_bytes(RECORDINGS["msr"])
    for words, message in ((("--format", "mrs"), "mrs"), ((), "missing option -o"),
                           (("--max-rejected", "5x", "-o", "t"), "not a percentage")):
        assert message in blkreel("import", tmp_path / "in.csv", *words, code=2).stderr
