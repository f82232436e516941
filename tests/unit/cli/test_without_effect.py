"""Which options each command refuses, since they would have no effect: every option beside every mode."""

import click
import pytest
from click.testing import CliRunner

from blkreel.cli.command_table import all_commands, find_command
from blkreel.cli.main import cli
from blkreel.cli.options.without_effect import RULES
from blkreel.common.errors import UsageError

# Command and mode: (the words of the mode, the options that it refuses). "*": all but those that follow.
TABLE = {
    ("test", "list"): (["--list"], "* --list"),
    ("test", "explain"): (["--explain", "qd1"], "* --explain"),
    ("test", "resume"): (["--resume", "missing"], "* --resume --on --destroy --why --dry-run --no-live --power-command "
                         "--power-log --power-sensor --sample --ocp-log"),
    ("test", "new"): (["qd1", "--on", "missing", "-o", "x"], ""),
    ("replay", "paced"): (["missing", "--on", "missing", "-o", "x"], "--until-valid --background-lead"),
    ("replay", "depth"): (["missing", "--on", "missing", "-o", "x", "--pace", "depth=4"],
                          "--idle --until-valid --background-lead"),
    ("replay", "asap"): (["missing", "--on", "missing", "-o", "x", "--pace", "asap", "--pace", "1:depth=2"],
                         "--idle --until-valid --background-lead"),
    ("replay", "one stream"): (["missing", "--on", "missing", "-o", "x", "--pace", "1:asap"],
                          "--until-valid --background-lead"),
    ("replay", "baseline"): (["missing", "--on", "missing", "-o", "x", "--baseline"],
                          "--without --until-valid --background-lead"),
    ("replay", "repeated"): (["missing", "--on", "missing", "-o", "x", "--repeat", "2"], "--background-lead"),
    ("precondition", "client"): (["missing", "--state", "client"], "--span --trace --map --device --permutation"),
    ("precondition", "data"): (["missing", "--state", "data"], "--trace --map --device --permutation"),
    ("precondition", "trace"): (["missing", "--state", "trace"], "--span --permutation"),
    ("precondition", "enterprise"): (["missing", "--state", "enterprise+op25"], "--span --trace --map --device"),
    ("precondition", "fresh"): (["missing", "--state", "fresh"], "--span --trace --map --device --permutation "
                                "--compressible --duplicates --seed"),
    ("capture", "drive"): (["/dev/missing", "-o", "x"], "--user"),
    ("capture", "ftrace"): (["/dev/missing", "-o", "x", "--source", "ftrace"], "--user --programs"),
    ("top", "once"): (["/dev/missing", "--once"], "--for"),
    ("model", "model"): (["missing", "-o", "x"], "--ios --public"),
    ("model", "trace"): (["missing", "--make-trace", "x"], "--format"),
    ("check", "check"): (["missing"], "--force --public"),
    ("report", "terminal"): (["missing"], "--force --theme --width --scale --frames-run --frames-start "
                             "--frames-process"),
    ("report", "frames"): (["missing", "--frames", "missing", "-o", "x.html"], "--width --scale"),
    ("report", "picture"): (["missing", "-o", "x.svg"], "--scale --frames-run --frames-start --frames-process"),
    ("compare", "table"): (["missing", "-o", "x.csv"], "--theme --width --scale"),
    ("compare", "pictures"): (["missing", "--format", "png"], "--force"),
    ("results history", "terminal"): (["missing"], "--force --theme"),
    ("results history", "page"): (["missing", "-o", "x.html"], ""),
}
COMMON = {"--json", "--quiet", "--verbose"}
MODES = {"--list", "--explain", "--resume"}


def options_of(name):
    return {max(each.opts, key=len): each for each in find_command(name).params if isinstance(each, click.Option)}


def words_of(name, option):
    if option.is_flag:
        return [name]
    if isinstance(option.type, click.Choice):
        return [name, option.type.choices[0]]
    value = {"integer": "1", "integer range": "2", "time": "1s", "size": "1M", "rate": "2Hz",
             "float range": "2"}.get(option.type.name)
    texts = {"--sample": "2Hz", "--idle": "none", "--effect-limits": "1%:2%", "--pace": "x2", "--width": "800"}
    return [name, texts.get(name) or value or "x"]


def test_the_table_has_every_command_that_has_rules():
    assert {name for name, _ in TABLE} == set(RULES) <= set(all_commands())


@pytest.mark.parametrize("mode", TABLE, ids=" ".join)
def test_an_option_without_effect_is_refused_before_anything_is_done(mode, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words, listed = TABLE[mode]
    options = options_of(mode[0])
    named = set(listed.split())
    refused = set(options) - named - COMMON if "*" in named else named
    assert named - {"*"} <= set(options)
    for name, option in options.items():
        if name in words or (name == "--output" and "-o" in words) or name in COMMON | MODES:
            continue
        result = CliRunner().invoke(cli, [*mode[0].split(), *words_of(name, option), *words])
        is_refused = isinstance(result.exception, UsageError) and " no effect " in result.exception.message
        assert is_refused == (name in refused), (name, result.exception)
        if is_refused:
            assert name in result.exception.message and "leave it out" in result.exception.remedy
    assert list(tmp_path.iterdir()) == []


def test_an_argument_beside_resume_is_refused_by_its_value():
    result = CliRunner().invoke(cli, ["test", "qd1", "--seed", "7", "--resume", "missing"])
    assert result.exception.message == "qd1, --seed have no effect with --resume"
    assert "test.json" in result.exception.remedy


def test_common_names_of_an_export_format_are_taken_or_lead_to_it(capsys):
    kind = options_of("export")["--format"].type
    assert [kind.convert(name, None, None) for name in ("fio", "CSV")] == ["iolog3", "csv"]
    assert not capsys.readouterr().err
    assert [kind.convert(name, None, None) for name in ("chrome-trace", "chrome")] == ["perfetto"] * 2
    assert capsys.readouterr().err.count("traceconv json") == 2
    with pytest.raises(UsageError) as error:
        kind.convert("iolog", None, None)
    assert error.value.remedy == "did you mean 'iolog3'?"
