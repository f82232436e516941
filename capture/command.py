"""The command of a capture: its user, its start and its end."""

import os
import pwd
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blkreel.common.errors import UsageError

_GRACE_S = 5.0  # between Ctrl-C, SIGTERM and SIGKILL


class Workload:
    """A command with the stdin, stdout and stderr of this process. It has a pid and does not run before release().

    So its I/O can be marked from the first one on. Create it while no other thread runs: until the command itself
    runs, its process is a fork of this one. streams: other files for its stdout and stderr, by name.
    """

    def __init__(self, command: list[str], user: pwd.struct_passwd | None, streams: dict[str, int] | None = None):
        self.process: subprocess.Popen[bytes] | None = None
        self._command = command
        self._error: OSError | None = None
        self._ended = threading.Event()
        pid_reader, pid_writer = os.pipe()
        release_reader, self._release = os.pipe()
        options = {**(_as_user(user) if user else {}), **(streams or {})}
        self._starter = threading.Thread(target=self._start, name="workload-start", daemon=True,
                                         args=(options, release_reader, pid_writer))
        self._starter.start()
        self.pid = int(os.read(pid_reader, 32) or 0)  # 0: the fork failed, and release() raises the reason
        os.close(pid_reader)
        os.close(release_reader)

    def release(self, on_exit: Callable[[], None]) -> None:
        """Run the command. on_exit is called in another thread when it ends. Raises UsageError if it cannot run."""
        os.write(self._release, b"1")
        self._close_release()
        if self._error:
            raise UsageError(f"cannot run {self._command[0]}: {self._error.strerror}",
                             "give a command that runs, behind --")
        threading.Thread(target=self._wait, args=(on_exit,), name="workload", daemon=True).start()

    def abandon(self) -> None:
        """Never run a command that was not released."""
        if self._release >= 0:
            self._close_release()
            if self.process:
                self.process.wait()

    def _close_release(self) -> None:
        os.close(self._release)
        self._release = -1
        self._starter.join()

    def _start(self, options: dict[str, Any], release_reader: int, pid_writer: int) -> None:
        def wait_for_release() -> None:
            os.close(self._release)
            os.write(pid_writer, str(os.getpid()).encode())
            os.close(pid_writer)
            if not os.read(release_reader, 1):
                os._exit(0)

        try:
            self.process = subprocess.Popen(self._command, preexec_fn=wait_for_release, **options)
        except OSError as error:
            self._error = error
        except subprocess.SubprocessError:
            pass  # abandoned
        finally:
            os.close(pid_writer)

    @property
    def exit_code(self) -> int | None:
        """As in a shell: 128 + N where signal N ended it. None while it runs."""
        code = self.process.poll() if self.process and self._ended.is_set() else None
        return code if code is None or code >= 0 else 128 - code

    def end(self, number: int) -> None:
        """End it by the signal that ended this process, then by stronger ones. The terminal sends Ctrl-C to both."""
        for step in (number, signal.SIGTERM, signal.SIGKILL):
            if step != signal.SIGINT and self.process:
                self.process.send_signal(step)
            if self._ended.wait(_GRACE_S):
                return

    def _wait(self, on_exit: Callable[[], None]) -> None:
        if self.process:
            self.process.wait()
        self._ended.set()
        on_exit()


def refuse_missing(command: list[str]) -> None:
    """Raise UsageError if the command does not exist, or is not executable."""
    if shutil.which(command[0]) is None:
        why = "not executable" if "/" in command[0] and Path(command[0]).is_file() else "no such command"
        raise UsageError(f"{why}: {command[0]}", "give a command that runs, behind --")


def user_of_command(name: str | None) -> pwd.struct_passwd | None:
    """The user to run the command as: `name`, else the caller of sudo, else None for the present user.

    As root, an application would leave root's files in its owner's home, and often behave differently.
    """
    try:
        if name:
            return pwd.getpwnam(name)
        caller = os.environ.get("SUDO_UID")
        if os.geteuid() == 0 and caller and int(caller):
            return pwd.getpwuid(int(caller))
    except (KeyError, ValueError):
        raise UsageError(f"no such user: {name or caller}", "name one with --user, as in: --user root") from None
    return None


def _as_user(user: pwd.struct_passwd) -> dict[str, Any]:
    environment = {**os.environ, "HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name,
                   "SHELL": user.pw_shell}
    runtime = Path(f"/run/user/{user.pw_uid}")
    if runtime.is_dir():
        environment["XDG_RUNTIME_DIR"] = str(runtime)
    if user.pw_uid == os.geteuid():
        return {"env": environment}
    return {"env": environment, "user": user.pw_uid, "group": user.pw_gid,
            "extra_groups": os.getgrouplist(user.pw_name, user.pw_gid)}
