"""Completion reads a stored table: it imports no subcommand, and offers what the subcommands declare."""

import json
import os
import subprocess
import sys

import click
import pytest

from blkreel.cli.command_groups import stored_command
from blkreel.cli.command_table import all_commands, find_command
from blkreel.cli.options import completion_table

HEAVY = ("numpy", "pandas", "pyarrow", "rich", "blkreel.analysis", "blkreel.replay", "blkreel.traces")
PROGRAM = f"""
import atexit, sys
from blkreel.cli.main import main
atexit.register(lambda: print("loaded:", *(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr))
sys.argv[0] = "blkreel"
main()
"""


@pytest.fixture
def complete(tmp_path):
    def run(line):
        words = line.split(" ")
        result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env={
            **os.environ, "XDG_CACHE_HOME": str(tmp_path), "_BLKREEL_COMPLETE": "bash_complete", "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1)})
        return result.stdout.split(), result.stderr

    return run


def test_a_second_completion_imports_nothing_heavy(complete, tmp_path):
    assert complete("blkreel rep") == (["plain,replay", "plain,report"], "loaded:\n")
    assert not (tmp_path / "blkreel").exists(), "names of subcommands need no table"
    first, _ = complete("blkreel report x --figure read_p9")
    assert first == ["plain,read_p90", "plain,read_p99", "plain,read_p99_9"]
    stored = tmp_path / "blkreel/completion.json"
    for line, expected in (("blkreel check -q --ve", ["plain,--verbose"]),
                           ("blkreel test consistency --set sta", ["plain,states="]),
                           ("blkreel capture --source bl", ["plain,blktrace"]),
                           ("blkreel compare x --fail-if relative", ["plain,relative_performance"])):
        assert complete(line) == (expected, "loaded:\n"), line
    # Of another installation: built again. test_damaged_states.py damages it.
    whole = json.loads(stored.read_text())
    stored.write_text(json.dumps({**whole, "key": ["0", 1], "values": {**whole["values"], "metrics": []}}))
    assert complete("blkreel report x --figure read_p9")[0] == first
    assert json.loads(stored.read_text()) == whole


@pytest.fixture
def table(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    completion_table.table.cache_clear()
    yield completion_table.table()
    completion_table.table.cache_clear()


def test_the_table_has_all_that_subcommands_declare(table):
    for name in all_commands():
        declared = [each for each in find_command(name).params if not getattr(each, "hidden", False)]
        stored = stored_command(name).params
        assert len(declared) == len(stored) and len(declared) > 2
        for own, other in zip(declared, stored, strict=True):
            assert (own.name, own.opts, own.secondary_opts, own.nargs) == (
                other.name, other.opts, other.secondary_opts, other.nargs)
            if isinstance(own, click.Option):
                assert (own.is_flag, own.multiple, own.help) == (other.is_flag, other.multiple, other.help)
            assert own._custom_shell_complete is other._custom_shell_complete
            if isinstance(own.type, click.Choice):
                assert list(own.type.choices) == list(other.type.choices)


def test_without_a_home_it_still_completes(complete, tmp_path):
    (tmp_path / "blkreel").touch()
    assert complete("blkreel replay --pac")[0] == ["plain,--pace"]
