"""Accounts of emulated drives: which device has one, and what happened between two of them."""

import json

import pytest
from emulated_accounts import account

from blkreel.common.emulated import name_of, read_account, renewed_account, use_between


@pytest.mark.parametrize(("backing_file", "name"), [
    ("/run/blkreel/emulated/sata/drive", "sata"), ("/run/blkreel/emulated/sata/account.json", None),
    ("/tmp/blkreel/emulated/sata/drive", None), ("/run/blkreel/emulated/a/b/drive", None), ("", None)])
def test_only_the_file_of_a_drive_is_one(backing_file, name):
    assert name_of(backing_file) == name


def stored(tmp_path, document):
    (tmp_path / "sata").mkdir(exist_ok=True)
    (tmp_path / "sata/account.json").write_text(json.dumps(document))


def test_a_damaged_account_counts_as_none(tmp_path):
    assert read_account("sata", tmp_path) is None
    stored(tmp_path, account())
    assert read_account("sata", tmp_path)["name"] == "sata"
    stored(tmp_path, {**account(), "counts": {}})
    assert read_account("sata", tmp_path) is None


def test_a_renewed_account_is_waited_for(tmp_path):
    stored(tmp_path, account(renewed_ns=1))
    times = iter(range(10, 1000))

    def now_ns():
        now = next(times)
        if now == 12:
            stored(tmp_path, account(renewed_ns=12))
        return now

    assert renewed_account("sata", tmp_path, now_ns)["renewed_ns"] == 12


def test_a_use_has_the_counts_of_its_time():
    begin = account({"read_ios": 100, "late_ios": 5, "late_ns": 1000})
    end = account({"read_ios": 300, "flush_ios": 2, "late_ios": 6, "late_ns": 4000},
                  host={"waited_ns": 70, "stolen_ns": 0, "reported_kib": 5})
    use = use_between(begin, end)
    assert (use["ios"], use["late_ios"], use["late_ns"]) == (202, 1, 3000)
    assert (use["waited_ns"], use["reported_kib"]) == (70, None)
