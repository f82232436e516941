"""The rehearsal of docs/ci.md, as a user pastes it, and the script of its nightly job on a simulated drive."""

import re
import subprocess
import textwrap
from datetime import date, timedelta
from xml.etree import ElementTree

from synthetic_catalog import variant
from tree import TREE

from blkreel.benchmarks.catalog import Catalog


def test_the_rehearsal_ends_with_the_exit_code_that_the_page_names(blkreel, tmp_path):
    page = (TREE / "docs/ci.md").read_text()
    script, code = re.search(r"```sh\n(for version [^`]*)# exit code (\d)\n```", page).groups()
    path = f"{blkreel.command.parent}:{blkreel.environment['PATH']}"
    done = subprocess.run(["bash", "-ec", script], cwd=tmp_path, capture_output=True, text=True,
                          env={**blkreel.environment, "PATH": path})
    assert done.returncode == int(code) == 4, done.stderr
    assert "met: added_by_drive > +20%  [new against base]" in done.stderr


def nightly_script():
    """The script of the nightly job of the page."""
    page = (TREE / "docs/ci.md").read_text().partition("## A run each night")[2]
    job, = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    block = re.search(r"^( *)- run: \|\n(?P<script>(?:\1  .*\n)+)", job, re.MULTILINE)
    return textwrap.dedent(block["script"])


def test_the_nightly_job_fails_once_a_drive_got_slower(blkreel, tmp_path):
    """Without root, without a drive, and once instead of three times."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sudo").write_text('#!/bin/sh\n[ "$2" = precondition ] || exec "$@"\n')
    (tools / "sudo").chmod(0o755)
    script = nightly_script()
    for old, new in (("1 2 3", "1"), (' --destroy "$SERIAL"', ""), ("sample:game-load", "sample:app-start"),
                     ("history game-load", "history app-start"),
                     ("--fail-on-change", "--fail-on-change --allow-simulated")):
        assert old in script
        script = script.replace(old, new)
    environment = {**blkreel.environment, "PATH": f"{tools}:{blkreel.command.parent}:{blkreel.environment['PATH']}",
                   "DRIVE": "nil:1GiB,clock=virtual", "BLKREEL_CATALOG": str(tmp_path / "catalog")}

    def run(text):
        return subprocess.run(["bash", "-ec", text], cwd=tmp_path, capture_output=True, text=True, env=environment)

    first = run(script)
    assert first.returncode == 3, first.stderr  # a night is too few
    assert ElementTree.parse(tmp_path / "history.xml").find("testsuite").get("errors") == "2"
    catalog = Catalog.open(tmp_path / "catalog")
    result = catalog.entry(catalog.entries()["id"][0])
    tonight = date.fromisoformat(result["started_at"][:10])
    for night in range(1, 31):  # all faster than tonight and the nine nights before it
        cost = 1.0 + night % 3 / 100 - (0.1 if night >= 10 else 0)
        metrics = {key: {**metric, "value": metric["value"] * cost} for key, metric in result["metrics"].items()}
        catalog.put(variant(result, night, label="lab-1", metrics=metrics,
                            started_at=f"{tonight - timedelta(night)}T20:00:00Z"), None)
    again = run(script[script.index("blkreel results history"):])
    assert again.returncode == 4, again.stderr
    assert ElementTree.parse(tmp_path / "history.xml").find("testsuite").get("failures") == "2"
    assert "<svg" in (tmp_path / "history.html").read_text()
