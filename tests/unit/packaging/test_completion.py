"""Completion in real shells: what bash, zsh and fish offer for the words that a user has typed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tree import TREE

from blkreel.traces.samples import SAMPLES

BASH_COMPLETION = Path("/usr/share/bash-completion/bash_completion")
COMPLETION = TREE / "packaging/completion"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Of one home, in which the first completion leaves its table."""
    home = tmp_path_factory.mktemp("home")
    (home / "runs").mkdir()
    (home / "saved.parquet").touch()
    return {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(home), "TERM": "dumb"}


def shell_output(environment, *command):
    result = subprocess.run(command, env=environment, cwd=environment["HOME"], capture_output=True, text=True,
                            check=True)
    assert not result.stderr
    return result.stdout


@pytest.fixture
def bash(environment):
    """bash(line) returns the replacements of the last word, as readline gets them."""
    if not BASH_COMPLETION.exists():
        pytest.skip("needs bash-completion: apt-get install bash-completion")

    def complete(line):
        script = (f"source {BASH_COMPLETION}; source {COMPLETION / 'blkreel.bash'}; compopt() {{ :; }}\n"
                  'COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9\n'
                  # Words as readline splits them: also at : and =, which become words of their own.
                  'COMP_WORDS=() word=""\n'
                  'for ((i = 0; i < ${#1}; i++)); do c=${1:i:1}; case $c in\n'
                  '" ") [[ $word ]] && COMP_WORDS+=("$word"); word="" ;;\n'
                  '[:=]) [[ $word ]] && COMP_WORDS+=("$word"); COMP_WORDS+=("$c"); word="" ;;\n'
                  '*) word+=$c ;; esac; done\n'
                  '[[ $word || $1 == *" " ]] && COMP_WORDS+=("$word")\n'
                  'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _blkreel blkreel; printf "%s\\n" "${COMPREPLY[@]}"')
        return shell_output(environment, "bash", "--norc", "-c", script, "bash", line).split()

    return complete


@pytest.fixture
def fish(environment, program):
    shell = program("fish")

    def complete(line):
        text = shell_output(environment, shell, "--no-config", "-c",
                            f"source {COMPLETION / 'blkreel.fish'}; complete -C $argv", line)
        return [row.partition("\t")[0] for row in text.splitlines()]

    return complete


@pytest.fixture
def zsh(environment, program):
    """zsh(line) returns what the completion adds; compadd and _describe are replaced by functions that print."""
    shell = program("zsh")

    def complete(line):
        script = ('compadd() { while [[ $1 == -* ]]; do [[ $1 == -V ]] && shift; shift; done; print -l -- ${(P)1} }\n'
                  '_describe() { local row; for row in ${(P)3}; do print -r -- ${row//\\\\:/:}; done }\n'
                  '_files() { print -l -- *(N) }\n'
                  'words=(${(s: :)1}); [[ $1 == *" " ]] && words+=("")\n'
                  f'CURRENT=$#words; complete_blkreel() {{ source {COMPLETION}/blkreel.zsh }}; complete_blkreel; true')
        return shell_output(environment, shell, "-f", "-c", script, "zsh", line).splitlines()

    return complete


def test_bash_completes_commands_and_options(bash):
    assert "replay" in bash("blkreel re") and "doctor" not in bash("blkreel re")
    assert bash("blkreel replay --pac") == ["--pace"]


def test_bash_completes_samples_beside_files(bash):
    assert {"sample:game-load", "saved.parquet"} <= set(bash("blkreel info sa"))
    assert "runs" in bash("blkreel report ")
    # readline replaces only what follows the colon.
    assert set(bash("blkreel info sample:game")) == {name for name in SAMPLES if name.startswith("game")}


def test_bash_completes_values(bash):
    assert bash("blkreel replay x --pace dep") == ["dependent", "depth="]
    assert bash("blkreel precondition /dev/x --state ent") == ["enterprise"]
    assert bash("blkreel test mixed-burst-") == ["mixed-burst-2016"]
    assert "read_p99" in bash("blkreel report x --figure read_p9")
    assert "read_p99" in bash("blkreel compare a b --fail-if read_p")
    assert bash("blkreel test consistency --set sta") == ["states="]
    assert bash("blkreel replay x --idle n") == ["none"]
    assert bash("blkreel replay x --map com") == ["compact"]
    assert bash("blkreel replay x --on ni") == ["nil:"]


def test_fish_completes_commands_samples_and_values(fish):
    assert "replay" in fish("blkreel re")
    assert set(fish("blkreel info sample:game")) == {f"sample:{name}" for name in SAMPLES if name.startswith("game")}
    assert {"sample:game-load", "saved.parquet"} <= set(fish("blkreel info sa"))
    assert fish("blkreel precondition /dev/x --state ent") == ["enterprise"]
    assert fish("blkreel test mixed-burst-") == ["mixed-burst-2016"]


def test_zsh_completes_commands_samples_and_values(zsh):
    assert any(row.startswith("replay:") for row in zsh("blkreel re"))
    assert any(row.startswith("sample:game-load:") for row in zsh("blkreel info sample:game"))
    assert "saved.parquet" in zsh("blkreel info sa")
    assert any(row.startswith("enterprise:") for row in zsh("blkreel precondition /dev/x --state ent"))
    assert zsh("blkreel replay --pac")[0].startswith("--pace:")
