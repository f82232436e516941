"""tests/run.py: all parts run although one fails, and the exit code and the summary say which."""

import importlib.util
import subprocess
import sys

import pytest
from tree import TREE


@pytest.fixture
def runner(monkeypatch):
    spec = importlib.util.spec_from_file_location("run_parts", TREE / "tests/run.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "run_parts", module)  # dataclasses look the module up
    spec.loader.exec_module(module)

    def part(name, code, lane, by_default=True, printed=""):
        script = f"print('line of {name}'); print({printed!r}); raise SystemExit({code})"
        return module.Part(name, [sys.executable, "-c", script], lane, by_default)

    monkeypatch.setattr(module, "PARTS", (
        part("first", 3, 0, printed="FAILED tests/test_it.py::test_that_fails - assert\nE   assert 1 == 2\n"
                                 "FAILED tests/test_it.py::test_that_fails - assert 1 == 2"),
        part("second", 0, 0, printed="E   of a test that passed at last"), part("drives", 0, 1),
        part("long", 0, 1, by_default=False)))
    return module


@pytest.mark.parametrize("lanes", ["1", "3"])
def test_a_failure_does_not_stop_later_parts_and_stands_at_the_end(runner, capfd, lanes):
    assert runner.main(["--lanes", lanes]) == 1
    output = capfd.readouterr().out
    assert all(f"line of {name}" in output for name in ("drives", "first", "second")) and "line of long" not in output
    assert "FAILED (exit code 3)" in output and "failed: first" in output
    _, end = output.split("\nfirst:\n")
    assert end.startswith("FAILED tests/test_it.py::test_that_fails - assert 1 == 2\nE   assert 1 == 2\n")
    assert "at last" not in end and "line of" not in end


def test_two_lanes_run_side_by_side_and_the_parts_of_a_lane_in_order(runner, monkeypatch, tmp_path, capfd):
    """The first parts wait for the file of each other."""
    script = ("import pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\nend = time.monotonic() + 30\n"
              "while not pathlib.Path(sys.argv[2]).exists() and time.monotonic() < end: time.sleep(0.01)\n"
              "raise SystemExit(not pathlib.Path(sys.argv[2]).exists())")
    files = [str(tmp_path / "a"), str(tmp_path / "b")]
    monkeypatch.setattr(runner, "PARTS", (
        runner.Part("a", [sys.executable, "-c", script, *files], 0),
        runner.Part("b", [sys.executable, "-c", script, *reversed(files)], 1),
        runner.Part("after-b", [sys.executable, "-c", "print('the last')"], 1)))
    assert runner.main([]) == 0
    output = capfd.readouterr().out
    assert "all parts passed" in output
    assert output.index("b        passed") < output.index("after-b| the last")
    summary = output[output.index("\npart "):]
    assert summary.index("\na ") < summary.index("\nb ") < summary.index("\nafter-b ")


def test_parts_that_do_not_end_are_ended_and_shown(tmp_path):
    """In a process of its own, because the last resort ends it. pytest prints where it stands, and the tests that
    failed before are named; no later part begins."""
    (tmp_path / "conftest.py").write_text(f"import sys\nsys.path.append({str(TREE / 'tests/support')!r})\n"
                                          "from failures_at_once import pytest_configure\n")
    (tmp_path / "test_stuck.py").write_text("import time\n\ndef test_that_fails():\n    assert 0\n\n"
                                            "def test_that_never_ends():\n    time.sleep(1000)\n")
    script = tmp_path / "stuck.py"
    script.write_text(f"""if True:
        import importlib.util, sys
        spec = importlib.util.spec_from_file_location("run_parts", {str(TREE / "tests/run.py")!r})
        module = sys.modules["run_parts"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.ABORT_SECONDS = 60
        words = ["-p", "no:cacheprovider", "-n", "1", {str(tmp_path)!r}]
        module.PARTS = (module.Part("stuck", [*module.PYTEST, *words], 0),
                        module.Part("next", [sys.executable, "-c", "print('begun')"], 0))
        sys.exit(module.main(["--limit", "15"]))
        """)
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert result.returncode == 1
    assert "not ended after 0:15:" in result.stdout and "test_that_never_ends" in result.stdout
    assert "failed: stuck" in result.stdout and "begun" not in result.stdout
    assert "test_that_fails - assert 0" in result.stdout.partition("\nstuck:\n")[2]
