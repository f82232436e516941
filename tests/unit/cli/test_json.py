"""The document of each command matches its schema. tests/kernel/capture has those of capture and
top, demo/test_demo_command.py that of demo."""

import importlib
import json
import math
import pkgutil

import jsonschema
import pytest
from documented import run_blkreel
from documents import SCHEMAS, valid_document
from small_benchmark import TWO_DEPTHS
from small_trace import new_trace
from tree import TREE

import blkreel as blkreel_package
from blkreel.cli.command_table import all_commands
from blkreel.common.errors import BlkreelError
from blkreel.common.files.json_file import finite

DRIVE = "nil:1GiB,clock=virtual"


def test_every_command_has_a_schema():
    assert {path.stem for path in SCHEMAS.glob("*.json")} == {
        *(name.replace(" ", "-") for name in all_commands()), "error"}
    for path in SCHEMAS.glob("*.json"):
        schema = json.loads(path.read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        assert (TREE / "docs/schema" / path.name).read_text() == path.read_text()


@pytest.fixture(scope="module")
def results(tmp_path_factory, command_server):
    """A directory with a run, a test and a meter log, and the documents of the commands that wrote them."""
    directory = tmp_path_factory.mktemp("results")
    (directory / "depths.toml").write_text(TWO_DEPTHS)
    (directory / "drive.toml").write_text('size = "1GiB"\nclock = "virtual"\n')
    (directory / "meter.csv").write_text("time,watts\n0,1.5\n1000,2.5\n")
    texts = {}
    for name, *words in (
            ("replay", "sample:app-start", "--on", DRIVE, "-o", "repetitions", "--repeat", "1"),
            ("replay", "sample:app-start", "--on", DRIVE, "-o", "run"),
            ("test", "depths.toml", "--on", DRIVE, "-o", "test")):
        texts[name if words[-1] != "1" else "repeat"] = run_blkreel(command_server, directory, name, *words,
                                                                    "--json").stdout
    return directory, texts


@pytest.mark.parametrize("name", ["replay", "repeat", "test"])
def test_a_command_that_takes_time(results, name):
    document = valid_document(name.replace("repeat", "replay"), results[1][name])
    if name == "replay":
        assert document["run"]["source"]["path"] == "sample:app-start"


@pytest.mark.parametrize("words", [
    ["replay", "sample:app-start", "--on", DRIVE, "--dry-run", "--pace", "dependent"],
    ["precondition", DRIVE, "--state", "client", "--dry-run"],
    ["precondition", "nil:64MiB,clock=virtual,state=keep", "--state", "full"],
    ["test", "--list"], ["test", "qd1", "--explain"], ["test", "depths.toml", "--on", DRIVE, "--dry-run"],
    ["report", "run"], ["report", "sample:app-start"], ["report", "test"],
    ["compare", "run", "sample:app-start"], ["compare", "run", "sample:app-start", "--fail-if", "read_p99 > 1ns"],
    ["slice", "sample:app-start", "-o", "slice.parquet", "--op", "read", "--to", "1s"],
    ["concat", "sample:app-start", "sample:update-unpack", "-o", "concat.parquet"],
    ["merge", "sample:app-start", "sample:update-unpack", "-o", "merge.parquet", "--align", "start"],
    ["anonymize", "sample:app-start", "-o", "anonymous.parquet"],
    ["model", "sample:app-start", "-o", "model.fio", "--format", "fio", "--make-trace", "made.parquet"],
    ["info", "run"], ["info", "sample:app-start"], ["check", "run"], ["samples"], ["drives"], ["doctor"],
    ["model-drive", "run", "-o", "fitted.toml"], ["predict", "sample:app-start", "drive.toml"],
    ["power", "run", "--log", "meter.csv"]], ids=" ".join)
def test_documents_match_their_schema(results, blkreel, words):
    result = blkreel(*words, "--json", check=False, cwd=results[0])
    document = json.loads(result.stdout)
    if "error" in document and words[0] == "power":
        pytest.skip(document["error"]["message"])
    valid_document(words[0], result.stdout)


@pytest.mark.parametrize("command", sorted(all_commands()))
def test_errors_are_documents(command, blkreel, tmp_path):
    result = blkreel(*command.split(), "--no-such-option", "--json", code=2, cwd=tmp_path)
    assert valid_document("error", result.stdout)["error"]["code"] == "usage"


def test_the_code_of_every_error_is_documented():
    for module in pkgutil.walk_packages(blkreel_package.__path__, "blkreel."):
        if not module.name.endswith("__main__") and ".lib" not in module.name:
            importlib.import_module(module.name)
    errors, codes = [BlkreelError], set()
    while errors:
        codes.add((error := errors.pop()).code)
        errors += error.__subclasses__()
    documented = json.loads((SCHEMAS / "error.json").read_text())["properties"]["error"]["properties"]["code"]["enum"]
    assert codes - set(documented) == set()


@pytest.mark.parametrize("words, code, exit_code", [
    (["info", "missing.parquet"], "invalid_trace", 1),
    (["import", "missing", "-o", "t"], "usage", 2),
    (["report", "sample:app-start", "-o", "taken.html"], "output_exists", 1)])
def test_kinds_of_errors(blkreel, tmp_path, words, code, exit_code):
    (tmp_path / "taken.html").touch()
    result = blkreel(*words, "--json", check=False, cwd=tmp_path)
    assert (valid_document("error", result.stdout)["error"]["code"], result.returncode) == (code, exit_code)


def test_an_invalid_trace_is_one_document(blkreel, tmp_path):
    new_trace(tmp_path / "t.parquet", {}, submit_ns=[5, 6], offset_bytes=[-512, 0], length_bytes=512)
    result = blkreel("check", "--json", tmp_path / "t.parquet", check=False)
    assert result.returncode == 1 and valid_document("check", result.stdout)["errors"] and "invalid" in result.stderr


def test_numbers_are_finite():
    document = {"a": math.nan, "b": [1.5, math.inf, {"c": -math.inf}], "d": "NaN"}
    assert finite(document) == {"a": None, "b": [1.5, None, {"c": None}], "d": "NaN"}
    whole = {"a": [1, 2.5, {"b": None}]}
    assert finite(whole) is whole
