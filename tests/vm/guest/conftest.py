"""Fixtures of the guest: its drives, and the command without the start-up time of an emulated Python."""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from blkreel.traces.format.reader import open_trace
from tests.vm.guest.drives import Tracing, make_null_drive, nvme_path
from tests.vm.guest.forked import Forked, load_command

IN_GUEST = "BLKREEL_GUEST" in os.environ
# They load modules and take drives away: nothing for a machine that somebody uses. `make test-vm` runs them.
collect_ignore_glob = [] if IN_GUEST else ["test_*.py", "*/test_*.py"]

SCSI_DEBUG = Path("/sys/bus/pseudo/drivers/scsi_debug")
# Each script and each kind of programs once; tests/kernel runs the other pairs.
OTHER_PAIRS = {f"test_who_is_told_by_another_waited_for_its_read[{pair}]"
               for pair in ("turns-raw_tp", "generations-tp_btf")}

# Shared with the tests of this folder that are those of tests/kernel.
if IN_GUEST:
    pytest.register_assert_rewrite("tests.kernel")


def pytest_collection_modifyitems(items):
    """Skips what repeats another test here. All items of a run pass, those outside the guest as well."""
    if not IN_GUEST:
        return
    for item in items:
        parameters = getattr(item, "callspec", None) and item.callspec.params
        # The option stands for an old kernel on a new one. The old one needs no option.
        if "before block_io_start" in str(parameters) or "--without-io-start" in str(parameters):
            item.add_marker(pytest.mark.skip(reason="tested without the option by the kernel without block_io_start"))
        if parameters and parameters.get("source", "blktrace") != "blktrace":
            item.add_marker(pytest.mark.skip(reason="tests/kernel runs this source"))
        if item.name in OTHER_PAIRS:
            item.add_marker(pytest.mark.skip(reason="tests/kernel runs this pair"))


@pytest.fixture(scope="session")
def command_loaded():
    load_command()


@pytest.fixture
def blkreel(command_loaded, tmp_path):
    """The installed command like the fixture of this name outside, in a fork of this process.

    A Python that starts anew imports for twenty seconds here.
    """
    environment = {**os.environ, "BLKREEL_STATE_DIR": str(tmp_path / "state"), "COLUMNS": "200"}

    def start(*arguments, cwd=None, env=None):
        process = Forked(arguments, tmp_path / f"out-{len(started)}", tmp_path / f"err-{len(started)}", cwd,
                         {**environment, **(env or {})})
        started.append(process)
        return process

    def run(*arguments, check=True, code=None, timeout=300, **options):
        process = start(*arguments, **options)
        result = subprocess.CompletedProcess(arguments, process.wait(timeout), *process.output())
        codes = code if isinstance(code, tuple) else (code or 0,)
        if result.returncode not in codes and (check or code is not None):
            raise AssertionError(f"blkreel {' '.join(map(str, arguments))} exited with {result.returncode}\n"
                                 f"{result.stdout}\n{result.stderr}")
        return result

    started = []
    run.command = Path(sys.executable).with_name("blkreel")
    run.environment = environment
    run.start = start
    return run


@pytest.fixture
def nvme():
    """An NVMe drive with a volatile write cache, FUA, deallocate and write-zeroes; nothing stands on it."""
    path = nvme_path("GUEST001")
    subprocess.run(["blkdiscard", "-f", path], check=True)
    return path


@pytest.fixture
def nvme_drives():
    """All three of them, GUEST001 first."""
    return [nvme_path(serial) for serial in ("GUEST001", "GUEST002", "GUEST003")]


@pytest.fixture
def null_blk():
    """A factory: null_blk(irqmode=2, completion_nsec=...) is the path of a drive made of nothing, sizes in MiB."""
    with ExitStack() as stack:
        def make(**attributes):
            drive, directory = make_null_drive(f"t{len(made)}", **attributes)
            stack.callback(lambda: directory.exists() and directory.rmdir())
            make.directory_of[drive] = directory
            made.append(directory)
            return drive

        made = []
        make.directory_of = {}
        yield make


@pytest.fixture
def dm():
    """A factory: dm("linear", "0 2048 linear /dev/x 0") is the path of a device-mapper device."""
    names = []

    def make(name, table):
        subprocess.run(["dmsetup", "create", "--noudevsync", name], input=table, text=True, check=True)
        names.append(name)
        path = Path("/dev/mapper", name)
        if not path.exists():
            subprocess.run(["dmsetup", "mknodes", name], check=True)
        return str(path)

    yield make
    for name in reversed(names):
        subprocess.run(["dmsetup", "remove", "--noudevsync", "--retry", name], check=True)


@pytest.fixture
def scsi_debug():
    """A SCSI drive in memory whose faults are set as the module's parameters: scsi_debug(opts=..., every_nth=...)."""
    parameters = Path("/sys/module/scsi_debug/parameters")
    kept = {}

    def fault(**settings):
        for name, value in settings.items():
            file = SCSI_DEBUG / name
            kept.setdefault(file, file.read_text().strip())
            file.write_text(str(value))

    if not parameters.is_dir():
        pytest.skip("needs scsi_debug: modprobe scsi_debug")
    before = {path.name for path in Path("/sys/block").iterdir()}
    (SCSI_DEBUG / "add_host").write_text("1")
    deadline = time.monotonic() + 300
    while not (new := {path.name for path in Path("/sys/block").glob("sd*")} - before):
        assert time.monotonic() < deadline, "no drive came"
        time.sleep(0.1)
    fault.path = f"/dev/{new.pop()}"
    yield fault
    for file, value in kept.items():
        file.write_text(value)
    (SCSI_DEBUG / "add_host").write_text("-1")


@pytest.fixture
def rows_of(blkreel, tmp_path):
    """Capture a shell script on drives; the rows as a data frame, the capture's own summary as its attribute."""
    def run(drives, script, *options, code=0, **keywords):
        trace = tmp_path / "t.parquet"
        drives = [drives] if isinstance(drives, str) else drives
        result = blkreel("capture", *drives, "-o", trace, "--force", "--json", *options, "--", "sh", "-ec", script,
                         code=code, **keywords)
        opened = open_trace(trace)
        rows = opened.table().to_pandas()
        rows.attrs.update(metadata=opened.metadata, summary=json.loads(result.stdout), stderr=result.stderr)
        return rows

    return run


@pytest.fixture
def tracing():
    instance = Tracing("blkreel-test")
    yield instance
    instance.close()


@pytest.fixture
def loop_over(program):
    """A factory: loop_over(device) is a loop device on a block device, whose requests wait as long as that one does."""
    with ExitStack() as stack:
        def make(device):
            result = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", device], capture_output=True,
                                    text=True, check=True)
            path = result.stdout.strip()
            stack.callback(subprocess.run, ["losetup", "--detach", path], check=True)
            return path

        yield make
