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
    failed = blkreel(*arguments, check=False)
    assert failed.returncode == 1 and "--max-rejected 2%" in failed.stderr and not (tmp_path / "t.parquet").exists()
    result = blkreel(*arguments, "--max-rejected", "2%", check=False)
    assert result.returncode == 3 and "in.csv: line 61: 1,2,3" in result.stderr


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
        result = blkreel("import", tmp_path / "in.csv", *words, check=False)
        assert result.returncode == 2 and message in result.stderr
