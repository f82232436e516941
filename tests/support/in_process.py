"""Runs a command in this process."""

from click.testing import CliRunner

from blkreel.cli.main import cli


def run_command(*words):
    """(exit code, stdout, stderr). Raises the error that the command would print."""
    result = CliRunner().invoke(cli, [*map(str, words)], standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.return_value or 0, result.stdout, result.stderr
