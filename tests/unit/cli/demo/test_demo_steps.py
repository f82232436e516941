"""The demo's steps: what a user sees of one, and what becomes of its end."""

import os
import signal
import subprocess
import sys
import threading
import time
import traceback

import pytest
from waiting import wait_until

from blkreel.cli.demo import steps as demo_steps
from blkreel.cli.demo.workspace import Workspace
from blkreel.common.command_line import PRIVILEGED
from blkreel.common.errors import BlkreelError


@pytest.fixture
def steps(tmp_path):
    return demo_steps.Steps(Workspace(tmp_path), total=2)


def stand_in(monkeypatch, code):
    """The command is Python code instead of `blkreel`; its arguments are in sys.argv."""
    monkeypatch.setattr(demo_steps, "BLKREEL", [sys.executable, "-c", code])


def test_the_command_of_this_installation_runs(steps, capfd):
    steps.begin("asking for the version")
    steps.blkreel("--version")
    out, err = capfd.readouterr()
    assert err.startswith("1/2 asking for the version ...\n    blkreel, version ")
    assert not out
    assert not steps.warnings


def test_a_failure_names_the_step_and_repeats_what_was_said(steps):
    steps.begin("making drives")
    steps.begin("reading a trace")
    with pytest.raises(BlkreelError) as caught:
        steps.blkreel("info", "/no/such/trace.parquet")
    assert "step 2/2 reading a trace: `blkreel info /no/such/trace.parquet` exited with" in str(caught.value)
    assert "no such trace" in str(caught.value) or "does not exist" in str(caught.value), caught.value


def test_done_but_not_trustworthy_goes_on_with_a_warning(steps, monkeypatch):
    stand_in(monkeypatch, "import sys; sys.exit(3)")
    steps.begin("replaying")
    steps.blkreel("replay", describe_warning=lambda: "the host was late")
    assert steps.warnings == ["1/2 replaying: the host was late"] and not steps.trustworthy
    steps.blkreel("replay", describe_warning=lambda: "")
    assert len(steps.warnings) == 1


@pytest.mark.parametrize("code", [1, 2, 4, 5, -signal.SIGKILL])
def test_any_other_end_is_a_failure(steps, monkeypatch, code):
    how = f"os.kill(os.getpid(), {-code})" if code < 0 else f"sys.exit({code})"
    stand_in(monkeypatch, f"import os, sys; {how}")
    steps.begin("replaying")
    with pytest.raises(BlkreelError, match=f"exited with {code}"):
        steps.blkreel("replay")


def test_results_go_where_they_are_wanted(steps, monkeypatch, tmp_path, capfd):
    stand_in(monkeypatch, "import sys; print('a table'); print('a note', file=sys.stderr)")
    with (tmp_path / "table").open("w") as table:
        steps.blkreel("compare", stdout=table)
    assert (tmp_path / "table").read_text() == "a table\n"
    assert capfd.readouterr() == ("", "    a note\n")


def test_ctrl_c_ends_the_command_and_what_it_started(steps, monkeypatch, tmp_path):
    stand_in(monkeypatch, f"""
import subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
open({str(tmp_path / "started")!r}, "w").write(str(child.pid))
time.sleep(600)
""")

    def is_waited_for():
        """And not still being started: what that leaves behind is the workspace's to end."""
        frame = sys._current_frames()[threading.main_thread().ident]
        return any(at.f_code is subprocess.Popen.wait.__code__ for at, _ in traceback.walk_stack(frame))

    def press():
        while not (tmp_path / "started").exists() or not (tmp_path / "started").read_text() or not is_waited_for():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        steps.blkreel("capture")
    assert time.monotonic() - started < 300
    child = (tmp_path / "started").read_text()
    wait_until(lambda: not subprocess.run(["ps", "-o", "stat=", "-p", child], capture_output=True,
                                          text=True).stdout.strip("Z \n"))


@pytest.mark.parametrize(("says", "remedy"), [("mount: /mnt: permission denied.", PRIVILEGED),
                                              ("mount: /mnt: wrong fs type", None)])
def test_what_a_container_refuses_comes_with_a_remedy(tmp_path, says, remedy):
    with pytest.raises(BlkreelError) as raised:
        Workspace(tmp_path).run("sh", "-c", f"echo {says} >&2; exit 32")
    assert raised.value.message.endswith(says) and raised.value.remedy == remedy
