"""`blkreel results`: what is added, listed, shown, removed and verified, and the exit codes."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from documents import valid_document
from in_process import run_command
from synthetic_catalog import run_of
from synthetic_fleet import small_test

from blkreel.benchmarks.catalog import Catalog
from blkreel.benchmarks.catalog.result import checksum_of, dump
from blkreel.common.errors import UsageError


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A directory with runs/, tests/ and the catalog of both."""
    root = tmp_path_factory.mktemp("results")
    run_of(root / "runs/fast", "Fast 990", 100, seed=1)
    run_of(root / "runs/slow", "Slow", 300, seed=2)
    small_test(root / "tests/trace", "trace")
    code, text, _ = run_command("results", "add", root / "runs", root / "tests", "--host", "lab",
                                "--catalog", root / "catalog")
    assert code == 0 and text.count("added") == 4
    return root


@pytest.fixture
def catalog(made, tmp_path):
    return Path(shutil.copytree(made / "catalog", tmp_path / "catalog"))


@pytest.fixture
def results(catalog, monkeypatch):
    """results(*words): (exit code, stdout, stderr) of a command on the catalog."""
    monkeypatch.setenv("BLKREEL_CATALOG", str(catalog))
    monkeypatch.setenv("COLUMNS", "200")
    return partial(run_command, "results")


def test_list_names_drive_workload_and_headline(results, catalog):
    code, text, _ = results("list")
    assert code == 0 and "Fast 990" in text and "Game load" in text and "throughput" in text and "valid" in text
    assert text.rstrip().endswith(f"{catalog}: 3 results")
    assert "Slow" not in results("list", "--drive", "990")[1]
    assert "2 results" in results("list", "--workload", "5e5e")[1]
    document = valid_document("results-list", results("list", "--json")[1])
    assert [row["label"] for row in document["results"]][:2] == ["Slow", "Fast 990"]  # the newest first
    assert document["results"][0]["host"] == "lab" and document["damaged"] == []


@pytest.mark.parametrize("label", ["A drive with a very long name, " * 9, "A drive with a name of 37 characters "])
def test_a_long_name_hides_neither_value_nor_verdict_of_a_list(results, made, tmp_path, monkeypatch, label):
    run_of(tmp_path / "long", label, 100, seed=3)
    results("add", tmp_path / "long")
    monkeypatch.setenv("COLUMNS", "80")
    lines = results("list")[1].splitlines()
    assert lines[0].split()[:5] == ["id", "drive", "workload", "headline", "verdict"]
    assert any("A drive with a" in line and "Game load" in line for line in lines)
    monkeypatch.setenv("COLUMNS", "40")
    text = results("list")[1]
    assert {"drive", "workload", "headline", "verdict"} <= set(text.split()) and "MB/s" in text, "in two tables"


def test_add_again_changes_nothing_and_names_what_failed(results, made, catalog):
    code, text, errors = results("add", made / "runs/fast", made / "missing")
    assert code == 1 and text.startswith("unchanged") and "not added: " in errors and "missing does not exist" in errors
    document = valid_document("results-add", results("add", made / "runs", "--json")[1])
    assert [each["what"] for each in document["results"]] == ["unchanged", "unchanged"]
    assert len(Catalog.open(catalog).entries()) == 3


def test_show_has_the_facts_and_the_metrics(results, made):
    id_ = json.loads(results("list", "--drive", "990", "--json")[1])["results"][0]["id"]
    text = results("show", id_[:8])[1]
    for words in ("Example Fast 990, firmware 1B4Q, 8.59 GB", "2026-01-02", "lab, blkreel 0.1.0",
                  str(made / "runs/fast"), "verdict   valid", "throughput", "more metrics: --all"):
        assert words in text
    assert "read_waiting_p99" not in text and "read_waiting_p99" in results("show", id_, "--all")[1]
    document = valid_document("results-show", results("show", id_, "--json")[1])
    assert document["result"]["metrics"]["read_p50"]["unit"] == "ns"


def stored(catalog, label):
    """The file of the result with that label."""
    return next(path for path in sorted((catalog / "results").iterdir()) if f'"{label}"' in path.read_text())


def edited(path, change):
    """The result in a file after a change, with the checksum that it has then."""
    result = json.loads(path.read_text())
    change(result)
    path.write_bytes(dump({**result, "checksum": checksum_of(result)}))
    return result


def test_a_run_that_is_gone_is_no_problem(results, catalog):
    path = stored(catalog, "Fast 990")
    result = edited(path, lambda result: result.update(path="/no/such/run"))
    assert "/no/such/run (not there now)" in results("show", result["id"])[1]
    code, text, _ = results("verify")
    assert code == 0 and "3 results, 2 recomputed from runs, no problems" in text and "/no/such/run" in text


def test_remove_leaves_the_run(results, made, catalog):
    id_ = json.loads(results("list", "--drive", "990", "--json")[1])["results"][0]["id"]
    with pytest.raises(UsageError, match="no such result"):
        results("remove", id_, "ffff")
    assert (catalog / f"results/{id_}.json").exists()
    document = valid_document("results-remove", results("remove", id_, "--json")[1])
    assert [each["id"] for each in document["removed"]] == [id_] and (made / "runs/fast/records.parquet").exists()
    assert len(Catalog.open(catalog).entries()) == 2 and len(list((catalog / "partials").iterdir())) == 1


@pytest.mark.parametrize("damage, words", [
    (lambda path, _: path.write_text(path.read_text().replace('"valid"', '"invalid"', 1)), "it was edited"),
    (lambda path, _: path.write_bytes(path.read_bytes()[:900]), "damaged"),
    (lambda path, _: path.rename(path.with_name("f" * 32 + ".json")), "was renamed"),
    (lambda _, cached: cached.unlink(), "No such file or directory"),
    (lambda _, cached: cached.write_bytes(cached.read_bytes()[:-1] + b"x"), "its checksum differs")])
def test_verify_finds_damage_and_names_the_file(results, catalog, damage, words):
    path = stored(catalog, "Slow")
    damage(path, catalog / "partials" / f"{json.loads(path.read_text())['partial']['sha256']}.bin")
    code, text, _ = results("verify", "--no-runs")
    assert code == 1 and words in text and "1 problem" in text and str(catalog) in text.partition(":")[0]
    document = valid_document("results-verify", results("verify", "--no-runs", "--json")[1])
    assert not document["valid"] and len(document["problems"]) == 1


def test_verify_finds_a_metric_that_was_changed_with_its_checksum(results, catalog):
    edited(stored(catalog, "Slow"), lambda result: result["metrics"]["throughput"].update(value=1.0))
    code, text, _ = results("verify", "--no-runs")
    assert code == 1 and "throughput is not those of its partial" in text
    assert "throughput is not those of its run" in results("verify")[1]


def test_a_damaged_file_is_left_out_of_the_list(results, catalog):
    path = next(iter((catalog / "results").iterdir()))
    path.write_text("{")
    code, text, errors = results("list")
    assert code == 3 and "2 results" in text and f"left out: {path} is damaged" in errors


def test_without_a_catalog_the_command_that_makes_one_is_named(results, tmp_path):
    with pytest.raises(Exception, match=r"is not a catalog: no catalog.json; create it: blkreel results add RUN"):
        results("list", "--catalog", tmp_path / "none")


def test_the_group_completes_its_commands_and_prints_its_help(blkreel):
    help_text = blkreel("results", check=False)
    assert help_text.returncode == 2 and "  verify " in help_text.stderr and "\\n" not in help_text.stderr
    assert "no such command: 'results lsit'" in blkreel("results", "lsit", check=False).stderr


def test_site_is_built_with_a_theme_and_built_again(results, tmp_path):
    (tmp_path / "brand.toml").write_text('[light]\naccent = "#112233"\n')
    site = tmp_path / "site"
    words = ("site", "-o", site, "--theme", tmp_path / "brand.toml", "--site-title", "Lab")
    (tmp_path / "drives.toml").write_text('[[drive]]\nmatch = "No such drive"\n')
    code, text, errors = results(*words, "--drives", tmp_path / "drives.toml")
    assert code == 0 and "3 results of " in text and (site / "index.html").exists()
    assert 'match = \'No such drive\' matches none of these drives' in errors
    assert "#112233" in (site / "index.html").read_text() and "<title>Lab" in (site / "index.html").read_text()
    document = valid_document("results-site", results(*words, "--json")[1])
    assert (document["written"], document["removed"], document["results"]) == (0, 0, 3)
    with pytest.raises(UsageError, match="not a web address"):
        results("site", "-o", site, "--url", "example.org")
