"""A catalog of others: no name in one of its documents leads out of it, and no field stops a command."""

import hashlib
import json
import math
import os
import sys
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import is_fuzzing
from damaged import outcome, placed

from blkreel.benchmarks.catalog import Catalog, collected
from blkreel.benchmarks.catalog.comparison import join
from blkreel.benchmarks.catalog.result import CatalogError, checksum_of, dump, id_of, parse
from blkreel.benchmarks.catalog.verify import verify
from blkreel.benchmarks.site.build import build
from blkreel.common.errors import BlkreelError, UsageError

pytestmark = pytest.mark.usefixtures("no_pictures")
NAMES = ["../../outside/keep", "{outside}/keep", "sub/keep", "keep\0", "link"]
_opened: list[str] = []
_watching = [False]


def _watch(event, arguments):
    if _watching[0] and event in ("open", "os.remove", "os.rename", "os.scandir") and isinstance(arguments[0], str):
        _opened.append(os.path.realpath(arguments[0]))


sys.addaudithook(_watch)


@pytest.fixture
def outside(tmp_path):
    """A directory beside the catalog, with files of the names that a hostile name could get."""
    directory = tmp_path / "outside"
    directory.mkdir()
    for name in ("keep", "keep.bin", "keep.json", "keep.html"):
        (directory / name).write_text("precious")
    return directory


@contextmanager
def untouched(outside):
    """Nothing in the directory is opened, changed or removed while the block runs."""
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    _opened.clear()
    _watching[0] = True
    try:
        yield
    finally:
        _watching[0] = False
    assert not [path for path in _opened if path.startswith(str(outside))]
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before


@pytest.fixture(scope="session")
def result_of_a_test(a_test):
    return collected(a_test, host="lab")


@pytest.fixture
def catalog(tmp_path, results, result_of_a_test):
    opened = Catalog.open(tmp_path / "catalog", create=True)
    for result, partial in (results[0], result_of_a_test):
        opened.put(result, partial)
    (opened.directory / "partials/link.bin").symlink_to(tmp_path / "outside/keep.bin")
    (opened.directory / "partials/link").symlink_to(tmp_path / "outside/keep")
    return opened


def fields(document, path=()):
    """The path of each field; of long lists and tables the first two entries."""
    if isinstance(document, dict):
        for key in list(document)[:2] if path == ("metrics",) else document:
            yield from fields(document[key], (*path, key))
    elif isinstance(document, list):
        for index in range(min(2, len(document))):
            yield from fields(document[index], (*path, index))
    if path:
        yield path


def replaced(result, changes):
    """The result with other values of fields, with its id and its checksum computed anew."""
    made = result.copy()
    for path, value in changes.items():
        made = placed(made, path, value)
    if ("id",) not in changes and isinstance(made["measured"], dict):
        made["id"] = id_of(made["measured"])
    if ("checksum",) not in changes:
        made["checksum"] = checksum_of(made)
    return made


def use(catalog, hostile, original):
    """Every reader and writer of the catalog on a document; errors name the file."""
    path = catalog.path_of(hostile["id"])
    path.write_bytes(dump(hostile))
    for act in (lambda: Catalog.open(catalog.directory).refresh(), lambda: join(catalog),
                lambda: verify(catalog, runs=hostile["path"] != original["path"]),
                lambda: catalog.remove(catalog.entry(path.stem)), lambda: catalog.put(original, None)):
        try:
            act()
        except (CatalogError, UsageError) as error:
            assert str(catalog.directory) in str(error)
    path.unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["run", "test"])
def test_no_field_of_a_result_leads_out_of_the_catalog(catalog, outside, kind):
    """Each text is each of the names in turn; in place of a table or a list is one of them, and all in `make fuzz`."""
    original = result_of(catalog, kind)
    made, texts = [], []
    for turn, path in enumerate(fields(original)):
        values = [name.format(outside=outside) for name in NAMES]
        accepted = is_accepted(replaced(original, {path: values[0]}))
        if accepted and not isinstance(leaf(original, path), dict | list):
            texts.append(path)
        elif path in (("partial", "sha256"), ("path",)):
            made += [replaced(original, {path: value}) for value in values]
        elif accepted:
            made += [replaced(original, {path: value})
                     for value in (values if is_fuzzing() else [values[turn % len(values)]])]
    assert set(texts) >= {("label",), ("workload", "name"), ("host",)}
    made += [replaced(original, dict.fromkeys(texts, name.format(outside=outside))) for name in NAMES]
    with untouched(outside):
        for hostile in made:
            use(catalog, hostile, original)


def leaf(document, path):
    for key in path:
        document = document[key]
    return document


def is_accepted(result):
    """Whether its types and its names are those of a result. Every reader of results asks this first."""
    try:
        parse(dump(result), "results/ID.json")
    except CatalogError:
        return False
    return True


def result_of(catalog, kind):
    return next(result for path in sorted(catalog.results.iterdir())
                if (result := json.loads(path.read_bytes()))["kind"] == kind)


def test_names_of_all_kinds_in_one_result_make_a_site(catalog, outside, tmp_path):
    original = result_of(catalog, "run")
    for number, name in enumerate(NAMES):
        changes = {path: name.format(outside=outside) for path in fields(original) if path[0] in (
            "label", "drive", "workload", "pace", "state", "kernel", "host", "started_at") and path[1:] != (
            "capacity_bytes",) and (len(path) == 2 or isinstance(original[path[0]], str))}
        changes["measured", "records"] = f"{number:064x}"
        made = replaced(original, changes)
        catalog.path_of(made["id"]).write_bytes(dump(made))
    with untouched(outside):
        build(catalog, tmp_path / "site")
    catalog.refresh()
    assert not catalog.damaged


def test_a_table_does_not_vouch_for_a_result(catalog, outside, results):
    """A table that lists a result as read before, with a checksum that fits."""
    catalog.refresh()
    result = results[0][0]
    path = catalog.path_of(result["id"])
    path.write_bytes(dump({**result, "partial": {**result["partial"], "sha256": "../../outside/keep"}}))
    table = catalog.directory / "tables/results.parquet"
    rows = pq.read_table(table)
    ids, status = rows["id"].to_pylist(), path.stat()
    for name, value in (("file_bytes", status.st_size), ("file_mtime_ns", status.st_mtime_ns),
                        ("file_sha256", hashlib.sha256(path.read_bytes()).hexdigest())):
        values = [value if each == result["id"] else old for each, old in zip(ids, rows[name].to_pylist(), strict=True)]
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name),
                               pa.array(values, rows.schema.field(name).type))
    pq.write_table(rows, table)
    with untouched(outside):
        joined = join(catalog)
    assert [each.reason for each in joined.left_out if each.id == result["id"]] == ["unreadable"]


def other_values(field, count, turn):
    """Columns in place of one of a table: without values, with others of its type, and of other types, one in turn."""
    is_text = "string" in str(field.type)
    values = [None, *(["../x"] if is_text else []), *([math.inf] if pa.types.is_floating(field.type) else [])]
    for value in values:
        made = pa.array([value] * count, pa.string() if is_text else field.type)
        yield made.dictionary_encode() if pa.types.is_dictionary(field.type) else made
    others = [pa.array([value] * count) for value in (b"\xff", [1], {"a": None}, True if is_text else "x")]
    others.append(pa.array([b"\xff"] * count).view(pa.string()))  # no UTF-8
    yield from others if is_fuzzing() else [others[turn % len(others)]]


@pytest.mark.parametrize("name", ["results", "metrics"])
def test_a_damaged_table_stops_no_command(catalog, outside, tmp_path, name):
    """The results replace it, unless its values may be theirs."""
    catalog.refresh()
    tables = {path: path.read_bytes() for path in (catalog.directory / "tables").glob("*.parquet")}
    path = catalog.directory / f"tables/{name}.parquet"
    whole = accepted = pq.read_table(path)
    read = {"results": catalog.result_table, "metrics": catalog.metric_table}[name]

    def store(table):
        for each, content in tables.items():
            each.write_bytes(content)
        pq.write_table(table, path)

    for index, field in enumerate(whole.schema):
        for column in other_values(field, whole.num_rows, index):
            store(whole.set_column(index, field.name, column))
            if not read().equals(whole):
                assert column.type == field.type, (field, column)
                accepted = accepted.set_column(index, field.name, column)
    store(accepted)
    with untouched(outside):
        outcome("results", "history", "../x", "--catalog", catalog.directory)
        for words in (["list"], ["list", "--json"], ["site", "-o", tmp_path / "site"]):
            assert outcome("results", *words, "--catalog", catalog.directory) is None, words


@pytest.mark.parametrize("folder", ["results", "partials", "tables"])
def test_a_catalog_with_a_link_is_refused(catalog, tmp_path, folder):
    catalog.refresh()
    (catalog.directory / folder).rename(tmp_path / "moved")
    (catalog.directory / folder).symlink_to(tmp_path / "moved")
    with pytest.raises(CatalogError, match=f"{folder} is a symbolic link"):
        Catalog.open(catalog.directory)


def test_the_manifest_of_a_site_names_no_other_file(catalog, outside, tmp_path):
    site = tmp_path / "site"
    build(catalog, site)
    manifest = json.loads((site / "manifest.json").read_text())
    for name in ("drives/../../outside/keep.html", f"{outside}/keep.html", "drives/sub/keep.html",
                 "drives/keep\0.html", "../outside/keep.html", "drives/..", "drives/"):
        files = {**manifest["files"], name: {"inputs": "", "sha256": "", "bytes": 8}}
        (site / "manifest.json").write_text(json.dumps({**manifest, "files": files}))
        with untouched(outside), pytest.raises(BlkreelError, match=r"manifest.json is damaged"):
            build(catalog, site)


def test_a_site_writes_through_no_link(catalog, outside, tmp_path):
    site = tmp_path / "site"
    build(catalog, site)
    (site / "drives").rename(outside / "drives")
    (site / "drives").symlink_to(outside / "drives")
    with pytest.raises(BlkreelError, match="drives is a symbolic link"):
        build(catalog, site)
