"""Commands without what most have: memory, descriptors, stdin and stdout, a directory. They end with one line that
names it, or do without."""

import errno
import os
import shlex
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from small_trace import new_trace

from blkreel.common.limits import limit_reached


@pytest.fixture
def limited(blkreel, tmp_path):
    """limited(option, value, *words) runs a command below a limit of ulimit."""
    def run(option, value, *words):
        script = f"ulimit -c 0; ulimit {option} {value}; exec {shlex.join([str(blkreel.command), *map(str, words)])}"
        return subprocess.run(["/bin/bash", "-c", script], env=blkreel.environment, capture_output=True, text=True,
                              cwd=tmp_path, timeout=300)
    return run


@pytest.mark.parametrize(("option", "value", "message"), [
    ("-v", 300_000, "not enough memory: the virtual memory of this process is limited to 307 MB; raise the limit: "
                    "ulimit -v unlimited"),
    ("-n", 20, "too many open files: the limit of this process is 20; raise the limit, as root: ulimit -n 4096")])
def test_a_limit_that_no_command_works_with_is_named(limited, option, value, message):
    result = limited(option, value, "report", "sample:app-start")
    assert (result.returncode, result.stderr) == (1, f"blkreel: {message}\n")


def test_a_page_is_made_where_v8_has_too_little_memory(limited, tmp_path):
    """V8 reserves 64 GiB of virtual memory, and a process in which it cannot do so ends by a signal."""
    page = limited("-v", 12_000_000, "report", "sample:app-start", "-o", "page.html")
    assert page.returncode == 0, page.stderr
    assert ("This picture needs JavaScript, because blkreel cannot draw charts: the virtual memory"
            in (tmp_path / "page.html").read_text())
    picture = limited("-v", 12_000_000, "report", "sample:app-start", "--chart", "read-tail", "-o", "picture.png")
    assert picture.returncode == 1
    assert picture.stderr == ("blkreel: cannot draw charts: the virtual memory of this process is limited to 12.3 GB; "
                              "raise the limit: ulimit -v unlimited\n")


@pytest.mark.parametrize(("error", "message"), [
    (MemoryError(), "not enough memory"), (OSError(errno.ENOMEM, "Cannot allocate memory"), "not enough memory"),
    (ImportError("libarrow.so: failed to map segment from shared object"), "not enough memory"),
    (RuntimeError("can't start new thread"), "too many threads"),
    (OSError(errno.EMFILE, "Too many open files", "/tmp"), "too many open files"),
    (ImportError("no such module"), None), (OSError(errno.ENOENT, "No such file"), None),
    (RuntimeError("another"), None)])
def test_errors_of_a_resource_that_ran_out(error, message):
    limit = limit_reached(error)
    assert limit is None if message is None else limit.message.startswith(message)


def test_a_thread_without_memory_for_its_stack_names_the_limit_of_memory():
    """The message of Python is the same for both limits."""
    program = ("import resource; from blkreel.common.limits import limit_reached\n"
               "resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))\n"
               "print(limit_reached(RuntimeError(\"can't start new thread\")))")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("not enough memory: the virtual memory of this process is limited to 8.59 GB")


def test_pyarrow_of_a_command_frees_memory_as_malloc_does():
    """How much its own allocator keeps depends on the machine. A captured command does not get the variable."""
    code = ("import os\nfrom blkreel.cli.command_table import find_command\nfind_command('anonymize')\n"
            "import pyarrow\nprint(pyarrow.default_memory_pool().backend_name, *os.environ)")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ARROW_")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    backend, *variables = done.stdout.split()
    assert backend == "system" and "ARROW_DEFAULT_MEMORY_POOL" not in variables


@pytest.mark.parametrize("descriptor", [0, 1, 2])
def test_a_closed_descriptor_is_given_to_the_null_device(blkreel, tmp_path, descriptor):
    code = ("import os, sys; from blkreel.cli.main import main; sys.argv = ['blkreel', 'samples', '-q']\n"
            "try: main()\nexcept SystemExit: pass\n"
            f"open({str(tmp_path / 'target')!r}, 'w').write(os.readlink('/proc/self/fd/{descriptor}') + "
            f"str(os.get_inheritable({descriptor})))")
    script = f'exec "{blkreel.command.with_name("python")}" -c "$1" {descriptor}>&-'
    subprocess.run(["/bin/bash", "-c", script, "bash", code], check=True, env=blkreel.environment, timeout=300)
    assert (tmp_path / "target").read_text() == "/dev/nullTrue"


def test_a_stdout_on_a_full_disk_is_one_line(blkreel):
    with open("/dev/full", "w") as full:
        result = subprocess.run([blkreel.command, "samples", "--json"], stdout=full, stderr=subprocess.PIPE, text=True,
                                env=blkreel.environment, timeout=300)
    assert result.returncode == 1 and result.stderr == (
        f"blkreel: no space left for stdout, or for temporary files in {tempfile.gettempdir()}; free some space "
        "(df -h), or choose another directory: export TMPDIR=DIR\n")


def test_a_current_directory_that_was_removed_is_named(blkreel, tmp_path):
    script = f'mkdir gone; cd gone; rmdir ../gone; exec "{blkreel.command}" report sample:app-start -o page.html'
    result = subprocess.run(["/bin/sh", "-c", script], stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                            env=blkreel.environment, timeout=300)
    assert (result.returncode, result.stderr) == (1, "blkreel: the current directory was removed; change to another "
                                                     "one: cd\n")


def test_a_figure_keeps_its_unit_where_the_encoding_lacks_it(blkreel, tmp_path):
    new_trace(tmp_path / "t.parquet", {"lost": {"total": 0}}, submit_ns=np.arange(100), latency_ns=7000)
    result = subprocess.run([blkreel.command, "report", tmp_path / "t.parquet", "--all"], stdout=subprocess.PIPE,
                            env={**blkreel.environment, "PYTHONIOENCODING": "ascii"}, timeout=300, check=True)
    assert b"7.00 us" in result.stdout and b"?" not in result.stdout
