"""tests/run.py: all parts run although one fails, and the exit code and the summary say which."""

import sys

import pytest
from tree import load_script


@pytest.fixture
def runner(monkeypatch):
    module = load_script("tests/run.py")

    def part(name, code, by_default=True, printed=""):
        script = f"print('line of {name}'); print({printed!r}); raise SystemExit({code})"
        return module.Part(name, [sys.executable, "-c", script], by_default)

    monkeypatch.setattr(module, "PARTS", (
        part("first", 3, printed="FAILED tests/test_it.py::test_that_fails - assert\nE   assert 1 == 2\n"
                                 "FAILED tests/test_it.py::test_that_fails - assert 1 == 2"),
        part("second", 0, printed="E   of a test that passed at last"), part("drives", 0),
        part("long", 0, by_default=False)))
    return module


def test_a_failure_does_not_stop_later_parts_and_stands_at_the_end(runner, capfd):
    assert runner.main([]) == 1
    output = capfd.readouterr().out
    assert all(f"line of {name}" in output for name in ("drives", "first", "second")) and "line of long" not in output
    assert "FAILED (exit code 3)" in output and "failed: first" in output
    _, end = output.split("\nfirst:\n")
    assert end.startswith("FAILED tests/test_it.py::test_that_fails - assert 1 == 2\nE   assert 1 == 2\n")
    assert "at last" not in end and "line of" not in end
