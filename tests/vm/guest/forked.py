"""The installed command without the start-up time of an emulated Python: in a fork of a process with all imports.

What a command imports besides, this process imports before the next one.
"""

import gc
import os
import select
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from command_server import PACKAGES


def load_command():
    for name in ("blkreel.cli.main", "blkreel.cli.commands.capture", "blkreel.cli.commands.drive.replay",
                 "blkreel.cli.commands.drive.drives", "blkreel.cli.commands.drive.precondition",
                 "blkreel.cli.commands.trace.check", "pandas", "pyarrow.compute", "pyarrow.pandas_compat",
                 "pyarrow.parquet"):
        import_module(name)


class Forked:
    """The command with these arguments in a fork of this process. Its output goes to the files out and err."""

    def __init__(self, arguments, out, err, cwd, environment):
        self._paths, self.returncode = (out, err), None
        self._modules = Path(f"{out}.modules")
        gc.freeze()  # a collection in the fork would copy the pages of all objects
        self.pid = os.fork()
        if self.pid == 0:
            _become_command(arguments, out, err, cwd, environment)

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
            if pid and self._modules.exists():  # it was not killed
                for name in self._modules.read_text().splitlines():
                    with suppress(ImportError):
                        import_module(name)
        return self.returncode

    def wait(self, timeout=300):
        if self.returncode is None:
            ended = os.pidfd_open(self.pid)
            try:
                if not select.select([ended], [], [], timeout)[0]:
                    os.kill(self.pid, signal.SIGKILL)
                    raise AssertionError(f"still running after {timeout} s: {self.output()}")
            finally:
                os.close(ended)
        return self.poll()

    def output(self):
        return tuple(path.read_text() for path in self._paths)


def _become_command(arguments, out, err, cwd, environment):
    """In the child: run the command and never come back."""
    code, known = 1, set(sys.modules)
    try:
        for number in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(cwd or Path.cwd())
        os.environ.clear()
        os.environ.update(environment)
        for descriptor, path in ((0, "/dev/null"), (1, out), (2, err)):
            opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(opened, descriptor)
            os.close(opened)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)
        sys.argv = ["blkreel", *map(str, arguments)]
        try:
            import_module("blkreel.cli.main").main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:  # a child must not go on as a second pytest
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
            new = [name for name in list(sys.modules) if name not in known and name.partition(".")[0] in PACKAGES]
            Path(f"{out}.modules").write_text("\n".join(new))
        finally:
            os._exit(code)
