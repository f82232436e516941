"""Options that several commands share have one meaning, one type and one output."""

import json
import re
from types import NoneType

import click
import numpy as np
import pytest
from click.testing import CliRunner
from small_trace import new_trace
from synthetic_runs import write_run
from terminal import Terminal

from blkreel.cli.command_table import all_commands, find_command
from blkreel.cli.main import cli
from blkreel.common.errors import UsageError

# Words with which a command runs without a drive, or fails at once. Others get what they require, named "missing".
WORDS = {"capture": ["/dev/missing", "-o", "x.parquet"], "top": ["/dev/missing"], "import": ["missing", "-o", "x"],
         "precondition": ["nil:64MiB,clock=virtual", "--state", "client", "--dry-run"],
         "replay": ["sample:app-start", "--on", "nil:64GiB", "--dry-run"], "test": ["--list"],
         "report": ["sample:app-start"], "compare": ["sample:app-start", "sample:game-load"],
         "info": ["sample:app-start"], "check": ["sample:app-start"], "demo": ["-o", "taken"]}


def words_of(name):
    if name in WORDS:
        return WORDS[name]
    required = [each for each in find_command(name).params if each.required]
    arguments = ["missing" for each in required if isinstance(each, click.Argument)]
    return arguments + [word for each in required if isinstance(each, click.Option)
                        for word in (max(each.opts, key=len), next(iter(getattr(each.type, "choices", ["missing"]))))]
# One meaning, and a text that names what the command works on.
OWN_TEXT = {"--output", "--path", "--json", "--destroy", "--erase", "--map", "--device", "--seed", "--dry-run", "--on",
            "--label", "--quick", "--format", "--force", "--repair",
            "--offset", "--compute"}
ONE_OR_SEVERAL = {"--on", "--destroy", "--offset"}  # drives; bytes of a slice, times of the sources of a merge
# A number of the devices of a trace, or the name of a device in the source of an import.
NUMBER_OR_NAME = {"--device"}


def options():
    for name in all_commands():
        command = find_command(name)
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                yield name, max(parameter.opts, key=len), parameter


def test_an_option_has_one_meaning():
    """`--keep` once named a cache, a file and a time, and `--idle` a rest and a kind of replay."""
    named = {}
    for command, name, option in options():
        named.setdefault(name, []).append((command, option))
    for name, uses in named.items():
        types = {("Choice" if isinstance(option.type, click.Choice) else type(option.type).__name__, option.is_flag,
                  name in ONE_OR_SEVERAL or option.multiple) for _, option in uses}
        assert len(types) == 1 or name in NUMBER_OR_NAME, f"{name}: {types}"
        texts = {option.help for _, option in uses}
        assert len(texts) == 1 or name in OWN_TEXT, f"{name}: {texts}"


def test_a_short_option_is_one_long_option():
    short = {}
    for _, name, option in options():
        for word in option.opts:
            if re.fullmatch("-[a-z]", word):
                short.setdefault(word, set()).add(name)
    assert all(len(names) == 1 for names in short.values()), short
    assert {"-o", "-q", "-v"} <= short.keys()


@pytest.mark.parametrize("command", all_commands())
def test_every_command_is_quiet_and_verbose(command, tmp_path, monkeypatch):
    """-q leaves nothing but errors, which main() prints; -v adds lines on stderr and changes nothing else."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").touch()

    own = words_of(command)

    def run(*words):
        return CliRunner().invoke(cli, [*command.split(), *own, *words])

    normal, quiet, verbose = run(), run("-q"), run("-v")
    assert not (quiet.stdout or quiet.stderr) and quiet.exit_code == normal.exit_code == verbose.exit_code
    assert str(quiet.exception) == str(normal.exception) == str(verbose.exception)
    assert bool(normal.stdout) == isinstance(normal.exception, NoneType | SystemExit)
    added = [line for line in verbose.stderr.splitlines() if line not in normal.stderr.splitlines()]
    assert added[0].startswith("blkreel: version ") and added[1].startswith("blkreel: options: ")
    assert re.fullmatch(r"blkreel: elapsed .* s, CPU .* s and .* s in child processes, peak memory \d+ MiB", added[-1])
    assert set(own) - {"-o"} <= set(added[1].partition("; defaults")[0].split())
    assert "--verbose" not in added[1]
    both = run("-q", "-v")
    assert isinstance(both.exception, UsageError) and "exclude each other" in str(both.exception)


@pytest.mark.parametrize("words", [
    ("import", "r.csv", "--format", "msr", "-o", "./r.csv"), ("slice", "t.parquet", "-o", "link.parquet"),
    ("export", "t.parquet", "--format", "iolog3", "-o", "t.parquet"),
    ("report", "run", "--format", "html", "-o", "run/records.parquet"),
    ("compare", "other", ".", "--format", "html", "-o", "run/records.parquet"),
    ("replay", "run", "--on", "nil:64GiB,clock=virtual", "-o", "run"),
    ("replay", "run/records.parquet", "--on", "nil:64GiB,clock=virtual", "-o", "run"),
    ("replay", "t.parquet", "--on", "nil:64GiB,clock=virtual", "-o", "run", "--background", "run,rate=1Gbit")])
def test_force_overwrites_no_input(blkreel, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.csv").write_bytes(b"1,hm,0,Read,0,4096,10\n")
    new_trace(tmp_path / "t.parquet", op=np.zeros(9, int))
    (tmp_path / "link.parquet").hardlink_to(tmp_path / "t.parquet")
    write_run(tmp_path / "run")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert "is an input of this command" in blkreel(*words, "--force", code=2).stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


def test_force_overwrites_what_lies_beside_an_input(blkreel, tmp_path):
    write_run(tmp_path / "run")
    for output, verb in (("figures.json", "report"), ("part.parquet", "slice")):
        (tmp_path / "run" / output).write_bytes(b"old")
        blkreel(verb, tmp_path / "run", "-o", tmp_path / "run" / output, "--force")
        assert (tmp_path / "run" / output).stat().st_size > 3


@pytest.mark.parametrize("words", [["test", "--list"], ["samples"]], ids=" ".join)
def test_a_list_fits_its_terminal(blkreel, words):
    lines = blkreel(*words, env={"COLUMNS": "60"}).stdout.splitlines()
    assert lines and max(map(len, lines)) <= 60


def test_quiet_prints_errors_only(blkreel, tmp_path):
    new_trace(tmp_path / "t.parquet", {"lost": {"total": 7}}, submit_ns=np.arange(2), offset_bytes=0, length_bytes=512)
    loud, quiet = (blkreel("check", *words, tmp_path / "t.parquet", check=False) for words in ([], ["-q"]))
    assert loud.stdout and loud.stderr and loud.returncode == quiet.returncode == 3
    assert quiet.stdout == quiet.stderr == ""
    document = blkreel("check", "-q", "--json", tmp_path / "t.parquet", check=False)
    assert json.loads(document.stdout)["rows"] == 2 and document.stderr == ""
    assert "missing.parquet" in blkreel("check", "-q", tmp_path / "missing.parquet", code=1).stderr


@pytest.mark.parametrize("assignment, colored", [("NO_COLOR=", True), ("NO_COLOR=1", False)])
def test_no_color_is_respected(blkreel, assignment, colored):
    terminal = Terminal(["env", assignment, blkreel.command, "doctor"])
    try:
        terminal.wait()
        color = re.search(rb"\x1b\[[0-9;]*(3[0-7]|9[0-7])m", terminal.raw)
        assert bool(color) == colored
    finally:
        terminal.close()


@pytest.mark.parametrize("words", ["capture /dev/null -o x --for 0s", "capture /dev/null -o x --keep 0s",
                                   "top /dev/null --for 0s", "emulate nil:usb --size 0", "emulate nil:usb --size 4095"])
def test_no_time_and_no_size_are_not_those_of_a_missing_option(blkreel, words):
    assert re.search(r"'(0s|0|4095)' is too (short|small)", blkreel(*words.split(), code=2).stderr)
