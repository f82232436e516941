"""An output that another process is writing stays whole, with --force too, and the message names the process."""

import json
import subprocess
import sys

import numpy as np
import pytest
from small_trace import new_trace, some_rows
from waiting import wait_until

from blkreel.analysis.report import export
from blkreel.benchmarks.catalog import Catalog, catalog
from blkreel.benchmarks.runner.record import create, read_resumable
from blkreel.common.files.output_lock import OutputInUse, new_output, spool_of
from blkreel.replay.run.directory import RunDirectory
from blkreel.replay.run.repetitions import Repetitions
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import TRACE_SCHEMA
from blkreel.traces.format.writer import TraceWriter
from blkreel.traces.spool.spool import Spool

ROWS = 1000
# Each begins to write the output `path`, and finishes it after a line on stdin.
WRITERS = {
    "capture": "spool = Spool(path, TRACE_SCHEMA, {}); spool.append(rows); spool.flush(); wait(); spool.finish({})",
    "import": "writer = TraceWriter(path, TRACE_SCHEMA); writer.write(rows); wait(); writer.close({})",
    "page": "new = new_output(path); new.file.write(b'page'); wait(); new.publish()",
    "run": "run = RunDirectory(path, False); run.create(); wait(); run.release()",
    "test": "create(path, {'test': 'x'}, [], force=False)\nwith directory_locked(path): wait()",
    "catalog": "Catalog.open(path, create=True)\nwith directory_locked(path): wait()",
}
SCRIPT = f"""
import json
import sys
from pathlib import Path
import numpy as np
from blkreel.benchmarks.catalog import Catalog
from blkreel.benchmarks.runner.record import create
from blkreel.common.files.output_lock import directory_locked, new_output
from blkreel.replay.run.directory import RunDirectory
from blkreel.traces.format.schema import TRACE_SCHEMA
from blkreel.traces.format.writer import TraceWriter
from blkreel.traces.spool.spool import Spool

def wait():
    print("writing", flush=True)
    sys.stdin.readline()

at = np.arange({ROWS})
rows = {{"submit_ns": at, "offset_bytes": at * 4096, "length_bytes": at * 0 + 4096, "op": at * 0}}
for line in sys.stdin:
    writer, path = json.loads(line)
    path = Path(path)
    exec(writer)
    print("written", flush=True)
"""


class Writer:
    """A process that writes one output after the other."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.pid = self.process.pid

    def begin(self, kind, path):
        self._say(json.dumps([WRITERS[kind], str(path)]), "writing")

    def finish(self):
        self._say("", "written")

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def _say(self, line, answer):
        print(line, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == f"{answer}\n"


@pytest.fixture(scope="module")
def writer():
    child = Writer()
    yield child
    child.kill()


def second_commands(path):
    """Every way of a second command to write the same output, all with --force."""
    return {"capture": lambda: Spool(path, TRACE_SCHEMA, {}, force=True),
            "import": lambda: TraceWriter(path, TRACE_SCHEMA, force=True),
            "page": lambda: export._text("other", path, True),
            "run": lambda: RunDirectory(path, True).check(),
            "repetitions": lambda: Repetitions(path, 2, False, {}, True).check(),
            "test": lambda: create(path, {}, [], force=True),
            "resumed": lambda: read_resumable(path), "catalog": lambda: Catalog.open(path).put({"id": "0"}, None),
            "removal": lambda: Catalog.open(path).remove({"id": "0"})}


@pytest.mark.parametrize(("kind", "others"), [
    ("capture", ["capture", "import", "page", "run"]), ("import", ["capture", "import", "page", "run"]),
    ("page", ["capture", "import", "page"]), ("run", ["run", "repetitions", "test"]),
    ("test", ["test", "resumed", "run", "repetitions"]), ("catalog", ["catalog", "removal", "run"])])
def test_a_second_command_is_refused_with_the_number_of_the_process(writer, tmp_path, kind, others, monkeypatch):
    monkeypatch.setattr(catalog, "_TURN_S", 0.0)
    path = tmp_path / "new directory/output"
    writer.begin(kind, path)
    for name in others:
        with pytest.raises(OutputInUse, match=f"{path} is being written by process {writer.pid};") as error:
            second_commands(path)[name]()
        assert f"kill -INT {writer.pid}" in error.value.remedy
    writer.finish()
    if kind in ("capture", "import"):
        assert open_trace(path).rows == ROWS


def test_an_output_with_a_similar_name_is_another_output(tmp_path):
    with TraceWriter(tmp_path / "a.b", TRACE_SCHEMA) as first, TraceWriter(tmp_path / "a", TRACE_SCHEMA) as second:
        Spool(tmp_path / "a.b.c", TRACE_SCHEMA, {}).finish({})
        for writer in (first, second):
            writer.write(some_rows(range(3)))
            writer.close({})
    assert {path.name for path in tmp_path.iterdir()} == {"a", "a.b", "a.b.c"}


def test_of_two_commands_at_once_one_gets_the_name(tmp_path):
    first = new_output(tmp_path / "x")
    with pytest.raises(OutputInUse):
        new_output(tmp_path / "x")
    first.publish()
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_live_replay_is_not_replaced_and_a_killed_one_is_recovered_by_its_name(blkreel, tmp_path):
    """A replay in real time, of 500 I/Os a second; the drive of the second command is another one."""
    run = tmp_path / "runs/a"
    rows = spool_of(run / "records.parquet") / "rows.blocks"
    trace = new_trace(tmp_path / "t.parquet", drive_bytes=1 << 30, submit_ns=np.arange(100_000) * 2_000_000)
    live = blkreel.start("replay", trace, "--on", "nil:64GiB", "-o", run)
    try:
        wait_until(lambda: rows.exists() and rows.stat().st_size > 20_000, live)
        for force in ((), ("--force",)):
            second = blkreel("replay", "sample:app-start", "--on", "nil:64GiB", "-o", run, *force, check=False)
            assert second.returncode == 1 and "is being written by process" in second.stderr
        for words in (("recover", run), ("report", run)):
            assert "is being written by process" in blkreel(*words, check=False).stderr
    finally:
        live.kill()
        live.communicate()
    for verb in ("report", "check", "info", "compare"):
        result = blkreel(verb, run, check=False)
        assert result.returncode == 1 and "is unfinished" in result.stderr, result.stderr
        assert f"blkreel recover {run}" in result.stderr.replace(str(blkreel.command), "blkreel")
    assert "I/Os recovered" in blkreel("recover", run).stdout
    reasons = blkreel("report", run, "--why").stdout
    recovered = open_trace(run)
    rows, account = recovered.table().to_pandas(), recovered.metadata["run"]
    assert "killed before its end" in reasons and "not counted: the run was not ended in order" in reasons
    assert account["issued_ops"] == account["completed_ops"] == recovered.rows > 0, "not as of its last note"
    assert account["wall_ns"] == (rows["submit_ns"] + rows["latency_ns"]).max() - rows["submit_ns"].min()
    assert f"{100_000 - recovered.rows:,} of 100,000 planned I/Os missing" in reasons.replace("\n    ", " ")
