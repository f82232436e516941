"""The examples in docs/: their code, and the trace and runs that they use."""

import ast
import os
import re
import shutil
import sys
from pathlib import Path

from tree import TREE

from blkreel.traces.samples import located

DOCS = TREE / "docs"
DRIVES = {"fast": "nil:64GiB,read_latency=60us,read_bandwidth=7GB/s,clock=virtual",
          "slow": "nil:64GiB,read_latency=110us,read_bandwidth=600MB/s,channels=8,clock=virtual"}
NOT_TRUSTWORTHY = 3  # exit code of a replay whose verdict is not valid


def run_blkreel(command_server, directory, *words):
    result = command_server.run([Path(sys.executable).with_name("blkreel"), *words], cwd=directory, timeout=300,
                                env={**os.environ, "BLKREEL_STATE_DIR": str(directory / "state")})
    assert result.returncode in (0, NOT_TRUSTWORTHY), result.stderr
    return result


def make_runs(command_server, directory):
    """game.parquet, runs/fast, runs/slow."""
    shutil.copy(located("sample:app-start"), directory / "game.parquet")
    (directory / "runs").mkdir()
    for name, drive in DRIVES.items():
        run_blkreel(command_server, directory, "replay", "game.parquet", "--on", drive, "-o", f"runs/{name}",
                    "--pace", "dependent", "--label", f"{name.capitalize()} drive")


def blocks(document: str, language: str) -> list[tuple[str, str]]:
    """(heading, code) of each code block in that language."""
    sections, heading = [], ""
    for match in re.finditer(r"^#+ ([^\n]+)$|^```(\w+)\n(.*?)^```$", (DOCS / document).read_text(), re.M | re.S):
        heading = match[1] or heading
        if match[2] == language:
            sections.append((heading, match[3]))
    return sections


def run_python(code: str, names: dict) -> None:
    """Runs the code in `names` and compares each value with the text after `# =>` on the same or the next line."""
    lines = code.splitlines()
    for statement in ast.parse(code).body:
        source = "\n".join(lines[statement.lineno - 1:statement.end_lineno])
        wanted = [line.partition("# => ")[2].strip() for line in
                  [lines[statement.end_lineno - 1], *lines[statement.end_lineno:statement.end_lineno + 1]]
                  if "# => " in line and (line is lines[statement.end_lineno - 1] or line.startswith("# => "))]
        if isinstance(statement, ast.Expr) and wanted:
            value = str(eval(source.strip(), names))
            assert value == wanted[0], f"{source}: value is {value}"
        else:
            exec(compile(ast.Module([statement], []), "<docs>", "exec"), names)
