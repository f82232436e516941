"""Fixtures that all tests share: scratch drives, the installed command, and traces to read."""

import fcntl
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from capture_sources import only_unseen
from command_server import CommandServer
from failures_at_once import pytest_configure as pytest_configure
from held_drive import held_drive as make_held_drive
from held_drive import restore_request_size
from loop_device import attach_loop, detach_loop, own_loop
from terminal import Terminal
from waiting import wait_until

from blkreel.replay.drive.claim import held
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import RECORD_COLUMNS, EngineOptions, Lane, run_engine

MEMORY = Path("/dev/shm")
TRACING = Path("/sys/kernel/tracing")

# A busy machine is no failure, and the result of a commit does not depend on chance. `make fuzz` searches at random,
# and longer, with --hypothesis-profile=random.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True, max_examples=50)
hypothesis.settings.register_profile("random", deadline=None, derandomize=False, print_blob=True, max_examples=500)
hypothesis.settings.load_profile("repeatable")

# A shell starts its background jobs with Ctrl-C ignored, and every program started from here would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """The objects of five thousand tests stay: the garbage collector need not look at them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure(config):
    gc.unfreeze()  # libraries look for leaks at the end


@pytest.fixture(scope="session", autouse=True)
def state_of_the_tests(tmp_path_factory):
    """Functions and commands that tests call must not write to the state and the cache of the user."""
    if "BLKREEL_STATE_DIR" not in os.environ:
        os.environ["BLKREEL_STATE_DIR"] = str(tmp_path_factory.mktemp("state"))
    if "BLKREEL_CACHE_DIR" not in os.environ:
        base = tmp_path_factory.getbasetemp()
        # The workers share what they read of samples.
        os.environ["BLKREEL_CACHE_DIR"] = str((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache")


@pytest.fixture(autouse=True)
def state_of_the_test(tmp_path, monkeypatch):
    """One test does not find what another one left behind."""
    monkeypatch.setenv("BLKREEL_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def require_root():
    if os.geteuid() != 0:
        pytest.skip("needs root: run `sudo make test`")


@pytest.fixture
def loop_drive(require_root, tmp_path):
    """A factory of scratch drives: loop_drive(size_bytes, where="memory"|"disk") is a path like /dev/loop3.

    replaceable: no other test gets the device while it is detached.
    """
    with ExitStack() as stack:
        def make(size_bytes=64 << 20, where="memory", direct_io=True, read_only=False, partscan=False,
                 replaceable=False):
            directory = MEMORY if where == "memory" else tmp_path
            image = directory / f"blkreel-test-{os.getpid()}-{len(made)}.img"
            image.touch()
            stack.callback(image.unlink)
            os.truncate(image, size_bytes)
            flags = ["--direct-io=on"] if direct_io else []
            flags += ["--read-only"] if read_only else []
            flags += ["--partscan"] if partscan else []
            path = attach_loop(image, *flags, path=own_loop(stack) if replaceable else None)
            stack.callback(detach_loop, path)
            restore_request_size(path)
            made[path] = image
            return path

        made = {}
        make.image_of = made.__getitem__
        yield make


@pytest.fixture
def held_drive(loop_drive, tmp_path):
    """A drive whose writes wait while it is held: tests/support/services/held_drive.py."""
    with make_held_drive(loop_drive(), tmp_path / "below") as drive:
        yield drive


@pytest.fixture
def tracer(require_root):
    """The kernel has one tracer for all: the sources other than bpf."""
    with Path(tempfile.gettempdir(), "blk-tracer.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def zram_drive(require_root):
    """A drive of 16 MiB that is neither a file nor a loop device, and bio-based: memory that the kernel compresses."""
    control = Path("/sys/class/zram-control")
    try:
        number = (control / "hot_add").read_text().strip()
    except OSError as error:
        pytest.skip(f"needs zram: {error.strerror}; modprobe zram")
    drive = Path(f"/sys/block/zram{number}")
    its_inode = drive.stat().st_ino
    try:
        (drive / "disksize").write_text("16M")
        yield Path(f"/dev/zram{number}")
    finally:
        # The kernel lets go of the node some time after its last user has ended.
        deadline = time.monotonic() + 300
        while inode_of(drive) == its_inode:  # a test may have taken it away, and its number be another test's since
            try:
                (control / "hot_remove").write_text(number)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def inode_of(path):
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def removed(directory):
    try:
        directory.rmdir()
    except OSError:
        return False
    return True


@pytest.fixture(scope="session")
def tracefs():
    """Mounted if that is possible."""
    if not os.geteuid() and not (TRACING / "instances").is_dir():
        subprocess.run(["mount", "-t", "tracefs", "nodev", TRACING], check=False)


@pytest.fixture
def tracing_instance(require_root, tracefs):
    """The directory of a trace of the kernel's own, of this test alone."""
    if not (TRACING / "instances").is_dir():
        pytest.skip("needs the tracing directory: mount -t tracefs nodev /sys/kernel/tracing")
    instance = TRACING / "instances" / f"blkreel-test-{os.getpid()}"
    instance.mkdir()
    (instance / "buffer_size_kb").write_text("8192")
    # It begins with the options of the top level, which a capture with ftrace beside this test sets for binary output.
    for option in ("nobin", "context-info"):
        (instance / "trace_options").write_text(option)
    yield instance
    # Events that are just being written hold it for a moment.
    wait_until(lambda: removed(instance))


@pytest.fixture
def issued_to(tracing_instance):
    """issued_to(drive) starts a watch; calling what it returns gives [(kind, offset_bytes, length_bytes)].

    The kernel's own trace of the requests that a driver gets, or with event="block_bio_queue" of the bios that a
    drive without requests gets. The kind is the kernel's letters: `WFS` is a write with FUA, `FWS` one after a flush.
    """
    instance = tracing_instance
    (instance / "trace_clock").write_text("global")

    def watch(drive, event="block_rq_issue"):
        device = Path(drive).stat().st_rdev
        switch = instance / "events/block" / event
        (switch / "filter").write_text(f"dev == {os.major(device) << 20 | os.minor(device)}")
        (instance / "trace").write_text("")
        (switch / "enable").write_text("1")

        def seen():
            (switch / "enable").write_text("0")
            found = re.findall(rf"{event}: \S+ (\w+) (?:\d+ \(.*?\) )?(\d+) \+ (\d+)",
                               (instance / "trace").read_text())
            return [(kind, int(sector) * 512 % 2**64, int(sectors) * 512) for kind, sector, sectors in found]

        return seen

    return watch


@pytest.fixture(scope="session")
def command_server():
    server = CommandServer()
    yield server
    server.close()


@pytest.fixture
def blkreel(tmp_path, command_server):
    """Runs the installed command: blkreel("info", path) is a CompletedProcess with text output, and
    blkreel.start("info", path) what subprocess.Popen makes, with pipes for its outputs. An exit code other than 0, or
    other than `code` (a number or several), fails the test; check=False takes any.

    It is a fork of the session's server (tests/support/services/command_server.py) where nothing but a directory and
    a timeout are given. State that a drive's preparation leaves behind goes to the test's own directory.
    """
    command = Path(sys.executable).with_name("blkreel")
    # Messages name the command by its path, also where the caller's search path has it.
    search_path = os.pathsep.join(directory for directory in os.environ["PATH"].split(os.pathsep)
                                  if not (Path(directory) / "blkreel").exists())
    environment = {**os.environ, "PATH": search_path, "BLKREEL_STATE_DIR": str(tmp_path / "state"), "COLUMNS": "200"}

    def run(*arguments, check=True, code=None, timeout=300, **options):
        codes = code if isinstance(code, tuple) else (code or 0,)
        environment_here = {**environment, **options.pop("env", {})}
        words = [str(command), *map(str, arguments)]
        if options.keys() <= {"cwd"} and command_server.takes(environment_here):
            result = command_server.run(words, env=environment_here, timeout=timeout, **options)
        else:
            result = subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=environment_here,
                                    **options)
        if result.returncode not in codes and (code is not None or check and not only_unseen(
                result.returncode, result.stderr)):
            raise AssertionError(f"blkreel {' '.join(map(str, arguments))} exited with {result.returncode}\n"
                                 f"{result.stdout}\n{result.stderr}")
        return result

    def start(*arguments, env=None, **options):
        environment_here = {**environment, **(env or {})}
        words = [str(command), *map(str, arguments)]
        if command_server.takes(environment_here):
            return command_server.start(words, env=environment_here, **options)
        return subprocess.Popen(words, env=environment_here, text=True,
                                **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})

    run.command = command
    run.environment = environment
    run.start = start
    return run


@pytest.fixture
def started(blkreel, tmp_path):
    """Starts a capture in a session of its own, as a terminal would, and waits until it records."""
    running = []

    def start(*arguments, output=tmp_path / "t.parquet"):
        process = blkreel.start("capture", "-o", output, *arguments, start_new_session=True)
        running.append(process)
        metadata = output.with_name(f".{output.name}.spool") / "metadata.json"
        wait_until(lambda: metadata.exists() and "epoch_ns" in metadata.read_text(), process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def as_nobody(require_root, blkreel):
    """The words before a command that run it as an ordinary user."""
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*words, blkreel.command, "--version"], capture_output=True).returncode:
        pytest.skip("needs a checkout and a Python that other users may read")
    return words


@pytest.fixture
def tiny_filesystem(require_root, tmp_path):
    """A directory that is full after 1 MiB."""
    directory = tmp_path / "tiny"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory], check=True)
    yield directory
    subprocess.run(["umount", "--lazy", directory], check=True)


@pytest.fixture
def program():
    """Finds a program that a test looks through, or skips with the package that brings it."""
    def find(name, package=None):
        path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
        if not path:
            pytest.skip(f"needs {name}: apt-get install {package or name}")
        return path

    return find


@pytest.fixture
def a_plan():
    """Makes a plan for the engine: a_plan(offset_bytes=[...], due_ns=..., op=...), single values repeated."""
    def make(offset_bytes, due_ns=-1, length_bytes=4096, op=0, flags=0, stream=0, burst=-1):
        count = len(offset_bytes)
        given = {"due_ns": due_ns, "offset_bytes": offset_bytes, "length_bytes": length_bytes, "op": op,
                 "flags": flags, "stream": stream, "burst": burst, "source_row": np.arange(count)}
        return {name: np.broadcast_to(np.asarray(value, "i8"), count) for name, value in given.items()}

    return make


@pytest.fixture
def issue():
    """Runs plan blocks or lanes through the engine: issue(block, ..., target=path) is (totals, records by column)."""
    def run(*blocks, target=(), on_rows=None, on_note=None, depth=1024, **options):
        parts = [{name: np.empty(0, kind) for name, kind in RECORD_COLUMNS}]

        def keep(columns):
            parts.append({name: column.copy() for name, column in columns.items()})
            if on_rows:
                on_rows(columns)

        with ExitStack() as stack:
            paths = target if isinstance(target, list | tuple) else [target]
            options = {"claims": [stack.enter_context(held(find_target(path))) for path in paths]} | options
            lanes = blocks if blocks and isinstance(blocks[0], Lane) else [Lane(blocks, depth)]
            totals = run_engine(EngineOptions(**options), lanes, keep, on_note or (lambda note: None))
        return totals, {name: np.concatenate([part[name] for part in parts]) for name, _ in RECORD_COLUMNS}

    return run


@pytest.fixture(scope="module")
def no_pictures():
    """Pages that a module makes in this process have no pictures for readers without JavaScript."""
    from page_reader import without_pictures  # imports what the tests in a guest do without

    with without_pictures():
        yield


@pytest.fixture
def on_terminal(blkreel):
    """on_terminal("top", drive) runs the command on a terminal: a Terminal, which is closed in the end."""
    running = []

    def run(*words, env=None, **options):
        terminal = Terminal([blkreel.command, *words], env={**blkreel.environment, **(env or {})}, **options)
        running.append(terminal)
        return terminal

    yield run
    for terminal in running:
        terminal.close()
