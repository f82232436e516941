"""The server that the fixture `blkreel` runs commands with: results are those of a process of its own."""

import json
import subprocess

import pytest


@pytest.mark.parametrize(("words", "code"), [(["info", "sample:app-start", "--json"], 0), (["check"], 2)])
def test_a_fork_has_the_result_of_a_process(command_server, blkreel, words, code):
    command = [str(blkreel.command), *words]
    assert command_server.takes(blkreel.environment)
    process = subprocess.run(command, env=blkreel.environment, capture_output=True, text=True)
    for _ in range(2):  # the second fork finds what the first has used imported
        fork = command_server.run(command, env=blkreel.environment, timeout=300)
        assert (fork.returncode, fork.stdout, fork.stderr) == (process.returncode, process.stdout, process.stderr)
        assert fork.returncode == code


def test_the_directory_and_the_environment_are_those_of_the_call(command_server, blkreel, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        command_server.run(["blkreel", "replay", "sample:app-start", "--on", "nil:1GiB,clock=virtual", "-o", "run"],
                           env=blkreel.environment | {"BLKREEL_CACHE_DIR": str(tmp_path / name / "cache")}, timeout=300,
                           cwd=tmp_path / name)
        assert (tmp_path / name / "run/records.parquet").exists()


def test_an_environment_that_is_read_at_import_wants_a_process(command_server, blkreel):
    assert not command_server.takes(blkreel.environment | {"LC_ALL": "C"})
    assert not command_server.takes({name: value for name, value in blkreel.environment.items() if name != "HOME"})


def test_a_command_that_takes_too_long_is_killed(command_server, blkreel, tmp_path):
    with pytest.raises(subprocess.TimeoutExpired):
        command_server.run(["blkreel", "replay", "sample:game-small", "--on", "nil:64GiB", "-o", str(tmp_path / "run")],
                           env=blkreel.environment, timeout=0.5)
    assert not (tmp_path / "run/records.parquet").exists()
    assert json.loads(command_server.run(["blkreel", "drives", "--json"], env=blkreel.environment, timeout=300).stdout)
