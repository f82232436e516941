"""What a user meets first: every subcommand explains itself, with lines to copy."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from blkreel.cli import main as entry
from blkreel.cli.command_table import COMMANDS, all_commands, find_command
from blkreel.cli.main import cli


def help_of(*words):
    result = CliRunner().invoke(cli, [*words, "--help"])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("name", all_commands())
def test_every_subcommand_shows_runnable_examples(name):
    examples = re.findall(rf"^  (?:sudo )?blkreel {name}\b.*$", help_of(*name.split()), re.MULTILINE)
    assert examples, f"blkreel {name} --help has no example"
    known = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", help_of(*name.split()).partition("Options:")[2]))
    for example in examples:
        own = example.partition(" -- ")[0].partition("|")[0]
        for option in re.findall(r"(?<!\S)--?[a-z][\w-]*", own):
            assert option in known, f"{example.strip()}: no such option as {option}"


def test_help_of_replay_fits_two_screens():
    """The common options two of 24 lines, all of them two of 50; each option has one place."""
    text = help_of("replay").replace("Usage: cli", "Usage: blkreel")
    common, heading, more = text.partition("\nMore options:\n")
    assert heading and common.count("\n") <= 48 and text.count("\n") <= 100
    assert max(map(len, common.partition("Options:")[2].splitlines())) <= 80
    names = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text.partition("Options:")[2], re.MULTILINE)
    options = [option.opts[-1] for option in find_command("replay").params if isinstance(option, click.Option)]
    assert sorted(names) == sorted([*options, "--help"])


def test_the_command_lists_all_of_them():
    text = help_of()
    for name, summary in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary.split()[0])}", text, re.MULTILINE)


def test_loading_a_command_loads_no_library_that_few_need():
    """Each takes up to a quarter of a second, before a command begins."""
    code = ("import sys; from blkreel.cli.main import keep_out_pandas; keep_out_pandas(); "
            "from blkreel.cli.command_table import all_commands, find_command; "
            "[find_command(name) for name in all_commands() if name != 'results site']; "
            "print({'scipy', 'pandas', 'vl_convert', 'jinja2', 'multiprocessing'} & {*sys.modules})")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


@pytest.mark.parametrize("words", [["samples"], ["results", "list", "--help"]])
def test_garbage_is_collected_once_a_command_is_loaded(words):
    code = ("import atexit, gc, sys; from blkreel.cli.main import main; "
            "atexit.register(lambda: print(gc.isenabled())); main()")
    printed = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True).stdout
    assert printed.splitlines()[-1] == "True"


@pytest.mark.parametrize("words, error", [
    (["repaly"], "no such command: 'repaly'; did you mean 'replay'?"),
    (["capture", "--outptu", "x"], "capture: no such option: --outptu; did you mean '--output'?"),
    (["test", "mixedburst", "--on", "nil:1GiB"], "no such test: mixedburst; did you mean 'mixed-burst'"),
    (["precondition", "nil:64GiB,clock=virtual", "--state", "clinet"], "no such state: clinet; did you mean 'client'?"),
    (["info", "sample:gameload"], "unknown sample: 'gameload'; did you mean 'game-load'"),
    (["replay", "sample:game-load", "--on", "nil:64GiB", "--dry-run", "--pace", "deppendent"],
     "invalid --pace: 'deppendent'; did you mean 'dependent'?"),
    (["report", "sample:app-start", "--figure", "read_p9"], "read_p99"),
    (["report", "sample:app-start", "--format", "csv", "--chart", "read-tial"], "did you mean 'read-tail'?"),
    (["check"], "check: missing argument 'TRACE'; see: "),
    (["export", "t.parquet", "-o", "t.csv"], "missing option '--format'; choose from csv, iolog3, ")])
def test_misspelled_names_get_a_suggestion(blkreel, words, error):
    result = blkreel(*words, check=False)
    assert result.returncode == 2 and result.stdout == ""
    assert error in result.stderr and result.stderr.count("\n") == 1
    with_json = blkreel(*words, "--json", check=False)
    document = json.loads(with_json.stdout)
    assert with_json.returncode == 2 and document["version"] == 1 and document["error"]["code"] == "usage"
    assert with_json.stderr == f"blkreel: {document['error']['message']}; {document['error']['remedy']}\n"


def test_a_simulated_drive_that_keeps_no_state_is_to_be_given_one(blkreel, tmp_path):
    (tmp_path / "drive.toml").write_text('size = "1GiB"\nread_latency = "100us"\n')
    for drive, remedy in (("nil:usb", "keep it: nil:usb,state=keep, for"),
                          ("nil:drive.toml", 'add a line to drive.toml: state = "keep"')):
        assert remedy in blkreel("precondition", drive, "--state", "client", code=2, cwd=tmp_path).stderr


def test_json_after_the_dashes_is_the_commands_own(blkreel):
    assert blkreel("capture", "--outptu", "--", "ls", "--json", check=False).stdout == ""


@pytest.mark.parametrize("pace", ["x2", "2x"])
def test_both_spellings_of_a_factor(blkreel, pace):
    result = blkreel("replay", "sample:app-start", "--on", "nil:64GiB", "--dry-run", "--pace", pace, "--json")
    assert json.loads(result.stdout)["pace"]["factor"] == 2


@pytest.mark.parametrize("words", [["--help"], ["samples", "--json"]])
def test_output_that_nobody_reads_ends_with_141_and_no_word(words):
    command = Path(sys.executable).with_name("blkreel")
    reader, writer = os.pipe()
    os.close(reader)
    for unbuffered in ("1", ""):
        done = subprocess.run([command, *words], stdout=writer, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONUNBUFFERED": unbuffered})
        assert (done.returncode, done.stderr) == (141, "")
    os.close(writer)


def test_an_unexpected_error_is_one_line_with_a_file_of_details(monkeypatch, capsys, tmp_path):
    """Where no file can be written, the details are printed."""
    def fail(**options):
        raise RuntimeError("no such thing")

    def stderr_with(directory):
        monkeypatch.setattr("tempfile.tempdir", str(directory))
        with pytest.raises(SystemExit) as ended:
            entry.main()
        assert ended.value.code == 1
        return capsys.readouterr().err

    monkeypatch.setattr(entry.cli, "main", fail)
    line = stderr_with(tmp_path)
    details, = tmp_path.iterdir()
    assert line == (f"blkreel: internal error: RuntimeError: no such thing; details in {details}; "
                    "attach that file to a bug report\n")
    assert "Traceback" in details.read_text() and 'raise RuntimeError("no such thing")' in details.read_text()
    text = stderr_with(tmp_path / "missing")
    assert text.startswith("blkreel: internal error: RuntimeError: no such thing\n") and "Traceback" in text
