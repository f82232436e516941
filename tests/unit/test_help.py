"""What a user meets first: every subcommand explains itself, with lines to copy."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from blkreel.cli.main import COMMANDS, cli


def help_of(*words):
    result = CliRunner().invoke(cli, [*words, "--help"])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_subcommand_shows_runnable_examples(name):
    examples = re.findall(rf"^  (?:sudo )?blkreel {name}\b.*$", help_of(name), re.MULTILINE)
    assert examples, f"blkreel {name} --help has no example"
    known = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", help_of(name).partition("Options:")[2]))
    for example in examples:
        own = example.partition(" -- ")[0].partition("|")[0]
        for option in re.findall(r"(?<!\S)--?[a-z][\w-]*", own):
            assert option in known, f"{example.strip()}: no such option as {option}"


def test_the_command_lists_all_of_them():
    text = help_of()
    for name, summary in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary.split()[0])}", text, re.MULTILINE)


def test_an_unknown_subcommand_is_a_usage_error():
    assert CliRunner().invoke(cli, ["replai"]).exit_code == 2


@pytest.mark.parametrize("words", [["--help"], ["samples"], ["samples", "--json"]])
def test_output_that_nobody_reads_ends_with_141_and_no_word(words):
    command = Path(sys.executable).with_name("blkreel")
    reader, writer = os.pipe()
    os.close(reader)
    for unbuffered in ("1", ""):
        done = subprocess.run([command, *words], stdout=writer, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONUNBUFFERED": unbuffered})
        assert (done.returncode, done.stderr) == (141, "")
    os.close(writer)
