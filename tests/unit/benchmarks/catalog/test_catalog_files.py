"""Files of a catalog as others read them: the queries of docs/catalog.md, and a catalog of format version 1."""

import math
import re
import shutil

import duckdb
import pytest
from tree import TREE

from blkreel.benchmarks.catalog import Catalog

GOLDEN = TREE / "tests/golden/catalog-v1"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory, results, a_test):
    opened = Catalog.open(tmp_path_factory.mktemp("queries") / "catalog", create=True)
    for result, partial in results:
        opened.put(result, partial)
    opened.add(a_test)
    opened.refresh()
    return opened


def query(catalog, number):
    text = re.findall(r"```sql\n(.*?)```", (TREE / "docs/catalog.md").read_text(), re.DOTALL)[number]
    with duckdb.connect() as connection:
        return connection.sql(text.replace("'tables/", f"'{catalog.directory}/tables/")).df()


def test_the_newest_result_of_each_drive(catalog):
    frame = query(catalog, 0)
    assert frame[["label", "workload_title"]].to_numpy().tolist() == [
        ["fast", "Game load"], ["slow", "Game load"], ["fast drive", "trace of trace"]]
    entries = catalog.entries().sort_values("started_at").groupby("label", observed=True).last()
    assert frame.set_index("label").headline_value.to_dict() == entries.headline_value.to_dict()


def test_the_mean_by_firmware(catalog):
    frame = query(catalog, 1).set_index("model")
    metrics = catalog.metrics().query("key == 'read_p99'").merge(catalog.entries(), on="id")
    for model, rows in metrics.groupby("model", observed=True):
        assert frame.n[model] == len(rows) == 2
        assert math.isclose(frame.read_p99_ns[model], math.exp(rows.value.map(math.log).mean()))


def test_a_catalog_of_version_1_is_read(tmp_path):
    opened = Catalog.open(shutil.copytree(GOLDEN, tmp_path / "catalog"))
    rows = opened.entries().set_index("kind")
    assert not opened.damaged and set(rows.index) == {"run", "test"}
    assert (rows.label["run"], rows.verdict["run"], rows.headline["run"]) == ("golden drive", "valid", "throughput")
    assert rows.headline["test"] == "score"
    metrics = opened.metrics().set_index(["id", "key"]).value
    assert metrics[rows.id["run"], "read_p50"] == 400_000 and metrics[rows.id["run"], "ops"] == 1500
    result = opened.entry(rows.id["run"])
    assert opened.partial_path(result).is_file() and result["partial"]["version"] == 4
