"""A fleet over a Dask cluster of separate processes: the digits of one pass, whatever becomes of a worker."""

import importlib.metadata
import shutil
import sys

import pytest
from dask_cluster import cluster as dask_cluster
from distributed import Client
from figures_compared import same_figures
from synthetic_runs import write_run
from waiting import wait_until

from blkreel.analysis.scale import ReadOptions, cluster, fleet, measure_fleet
from blkreel.common.errors import BlkreelError, TraceError

RUNS = 6


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The first has many row groups, and is cut over workers."""
    root = tmp_path_factory.mktemp("fleet")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("blkreel.traces.format.writer.ROWS_PER_GROUP", 500)
        cut = write_run(root / "cut", "slow drive", read_us=400, write_us=900, seconds=30)
    return [cut, *(write_run(root / f"run-{number}", f"drive {number}", seed=number, seconds=6)
                   for number in range(1, RUNS))]


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A cluster of three workers; tests kill two of them, one each."""
    with dask_cluster(tmp_path_factory.mktemp("dask"), 3) as made:
        yield made


def tree(directory):
    return sorted(path.relative_to(directory) for path in directory.rglob("*"))


def test_ctrl_c_leaves_the_cluster_nothing_to_do(runs, three):
    def interrupt(path, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_fleet(runs, read_options=ReadOptions(cluster=three.address, keep=False), on_rows=interrupt)
    with Client(three.address, set_as_default=False) as client:
        wait_until(lambda: client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 0)


def test_a_killed_worker_changes_no_digit(runs, three, monkeypatch):
    monkeypatch.setattr(fleet, "PART_ROWS", 2000)
    one_pass = measure_fleet(runs, read_options=ReadOptions(jobs=1, keep=False)).measured
    before, ended = tree(runs[0].parent), []

    def on_rows(path, done, total):
        ended.append(path)
        if len(ended) == 2:
            three.kill(0)

    found = measure_fleet(runs, read_options=ReadOptions(cluster=three.address, keep=False), on_rows=on_rows)
    assert len(ended) > RUNS and len(set(ended)) == RUNS, "the first ended in parts"
    assert len(ended) == RUNS - 1 + ended.count(str(runs[0])), "each once, also what was on the killed worker"
    assert [each.path for each in found.measured] == runs
    for mine, theirs in zip(found.measured, one_pass, strict=True):
        same_figures(mine, theirs)
    assert tree(runs[0].parent) == before, "no worker writes"


def test_a_file_that_a_worker_does_not_see(runs, three, monkeypatch):
    """As where a path is of this machine alone: it goes when its footer has been read."""
    gone = runs[0].with_name("gone")
    shutil.copytree(runs[0], gone)
    real = fleet._runner

    def remove_first(traces, read_options):
        shutil.rmtree(gone)
        return real(traces, read_options)

    monkeypatch.setattr(fleet, "_runner", remove_first)
    with pytest.raises(TraceError, match=r"gone/records.parquet does not exist \(on the worker tcp://.*\); workers "
                                         "must see the same files"):
        measure_fleet([gone], read_options=ReadOptions(cluster=three.address, keep=False))


@pytest.mark.parametrize(("cluster_of", "change", "error"), [
    (lambda three: three.address, lambda patch: patch.setattr(cluster, "__version__", "9.9.9"),
     r"workers have another blkreel than 9.9.9: tcp://.* has "
     f"{importlib.metadata.version('blkreel')}; install one version"),
    (lambda three: "tcp://127.0.0.1:9", lambda patch: patch.setattr(cluster, "CONNECT_S", 1),
     "no Dask scheduler answers at tcp://127.0.0.1:9; start one: dask scheduler"),
    (lambda three: "nonsense://x", lambda patch: None, "is not the address of a scheduler"),
    (lambda three: three.address, lambda patch: patch.setitem(sys.modules, "distributed", None),
     "needs the package distributed; pip install distributed")],
    ids=["another version", "no scheduler", "no address", "no package"])
def test_what_is_no_cluster_to_measure_with_is_refused(runs, three, monkeypatch, cluster_of, change, error):
    change(monkeypatch)
    with pytest.raises(BlkreelError, match=error):
        measure_fleet(runs, read_options=ReadOptions(cluster=cluster_of(three), keep=False))


def test_a_cluster_that_loses_all_workers_is_told_and_does_not_hang(runs, three, monkeypatch):
    monkeypatch.setattr(cluster, "NO_WORKER_S", 1)

    def on_rows(path, done, total):
        for index in (1, 2):
            three.kill(index)

    with pytest.raises(BlkreelError, match="has had no worker for 1 s; start some: dask worker tcp://"):
        measure_fleet(runs, read_options=ReadOptions(cluster=three.address, keep=False), on_rows=on_rows)


def test_a_worker_without_blkreel_is_named(runs, three, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.metadata as metadata\n"
        "def version(name, known=metadata.version):\n"
        "    if name == 'blkreel':\n"
        "        raise metadata.PackageNotFoundError(name)\n"
        "    return known(name)\n"
        "metadata.version = version\n")
    three.add_worker(environment={"PYTHONPATH": str(tmp_path)})
    three.wait_for(1)
    with pytest.raises(BlkreelError, match="tcp://.* of the cluster tcp://.* cannot import blkreel; install blkreel"):
        measure_fleet(runs, read_options=ReadOptions(cluster=three.address, keep=False))
