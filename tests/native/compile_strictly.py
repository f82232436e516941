"""Compile each C file once with gcc and once with clang, with warnings as errors: part of `make lint`.

    python tests/native/compile_strictly.py build

The arguments are those of the build, in compile_commands.json; no object file is written. gcc has warnings that it
gives only when it optimizes; those of clang do not depend on it.
"""

import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

COMPILERS = {"gcc": ["-O2"], "clang": ["-O0"]}
WITH_VALUE = ("-MF", "-MQ", "-o")
DROPPED = ("-c", "-MD", "-g", "-fsanitize", "-fno-sanitize")


def arguments_of(command):
    """The arguments of a compilation without its outputs, sanitizers and debugging information."""
    words = iter(shlex.split(command)[1:])
    kept = []
    for word in words:
        if word in WITH_VALUE:
            next(words)
        elif not word.startswith(DROPPED):
            kept.append(word)
    return kept


def warnings_in(arguments):
    return sum(word.startswith("-W") for word in arguments)


def compilations(build):
    """The arguments for each file, and for each set of its definitions: those with the most warnings."""
    chosen = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        arguments = arguments_of(entry["command"])
        key = entry["file"], *sorted(word for word in arguments if word.startswith("-D"))
        chosen[key] = max(chosen.get(key, []), arguments, key=warnings_in)
    return chosen.values()


def compiled(compiler, arguments, build):
    """(whether it compiled, the messages)."""
    done = subprocess.run([compiler, *arguments, *COMPILERS[compiler], "-Werror", "-S", "-o", "-"], cwd=build,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return done.returncode == 0, done.stderr


def main(build):
    work = [(compiler, arguments) for compiler in COMPILERS for arguments in compilations(build)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda job: compiled(*job, build), work))
    for passed, messages in results:
        if not passed:
            print(messages, end="")
    return not all(passed for passed, _ in results)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
