"""Man pages: one for each command, with each option, and valid roff."""

import shutil
import subprocess

import click
import pytest
from tree import load_script

from blkreel.cli.command_table import all_commands, find_command


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    directory = tmp_path_factory.mktemp("man")
    names = load_script("packaging/man_pages.py").write_pages(directory)
    assert sorted(names) == sorted(path.name for path in directory.iterdir())
    return {path.stem: path for path in directory.iterdir()}


def plain(page):
    """A page without the escapes of its hyphens and marks."""
    text = page.read_text()
    for roff, character in (("\\-", "-"), ("\\(aq", "'"), ("\\(ga", "`"), ("\\(ti", "~"), ("\\(ha", "^"), ("\\&", "")):
        text = text.replace(roff, character)
    return text


def page_of(command):
    return f"blkreel-{command.replace(' ', '-')}"


def test_each_command_has_a_page(pages):
    assert set(pages) == {"blkreel", *(page_of(name) for name in all_commands())}
    for name in all_commands():
        assert page_of(name) in plain(pages["blkreel"])


@pytest.mark.parametrize("name", all_commands())
def test_a_page_has_the_options_examples_and_exit_codes_of_its_command(pages, name):
    command, text = find_command(name), plain(pages[page_of(name)])
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert f".TP\n\\fB{', '.join(parameter.opts)}" in text
            assert " ".join(parameter.help.split()) in text
    examples = text.partition(".SH EXAMPLES")[2].partition(".SH")[0]
    assert f"blkreel {name}" in examples and ".nf" in examples
    assert "\b" not in text
    assert "5 refused" in text.partition(".SH EXIT STATUS")[2]


def test_the_pages_are_valid_roff(pages):
    mandoc = shutil.which("mandoc")
    if not mandoc:
        pytest.skip("needs mandoc: apt-get install mandoc")
    result = subprocess.run([mandoc, "-T", "lint", "-W", "warning", *pages.values()], capture_output=True, text=True)
    complaints = [line for line in result.stdout.splitlines() if "missing date" not in line]
    assert not complaints


def test_text_that_looks_like_a_request_is_printed(pages):
    module = load_script("packaging/man_pages.py")
    assert module.escape(".png is a suffix") == "\\&.png is a suffix"
    assert module.escape("a\\b --x") == "a\\eb \\-\\-x"
