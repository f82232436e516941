"""The command whose I/O is captured: as which user it runs, and how it is ended."""

import os
import pwd
import shutil
import signal
import subprocess
import threading
from pathlib import Path

from blkreel.traces.errors import UsageError

_GRACE_S = 5.0  # between Ctrl-C, SIGTERM and SIGKILL


class Workload:
    """A command with our stdin, stdout and stderr. It has its pid, and does not run before release().

    So whoever watches it can be told its pid before it does anything. To be made while no other thread runs: until
    the command itself runs, its process is a fork of this one. streams: other files for its stdout and stderr, by name.
    """

    def __init__(self, command: list[str], user: pwd.struct_passwd | None, streams: dict[str, int] | None = None):
        self.process: subprocess.Popen | None = None
        self._command, self._error = command, None
        self._ended = threading.Event()
        told, tells = os.pipe()
        held, self._go = os.pipe()
        self._starter = threading.Thread(target=self._start, name="workload-start", daemon=True,
                                         args=({**(_as_user(user) if user else {}), **(streams or {})}, held, tells))
        self._starter.start()
        self.pid = int(os.read(told, 32) or 0)  # 0: it could not even be forked, and release() says why
        os.close(told)
        os.close(held)

    def release(self, on_exit) -> None:
        """Let it run. on_exit is called, in a thread of its own, when it ends. Raises UsageError where it cannot."""
        os.write(self._go, b"1")
        self._let_go()
        if self._error:
            raise UsageError(f"cannot run {self._command[0]}: {self._error.strerror}",
                             "give a command that runs, behind --")
        threading.Thread(target=self._wait, args=(on_exit,), name="workload", daemon=True).start()

    def abandon(self) -> None:
        """Where it was not released, it never runs."""
        if self._go is not None:
            self._let_go()
            if self.process:
                self.process.wait()

    def _let_go(self):
        os.close(self._go)
        self._go = None
        self._starter.join()

    def _start(self, options, held, tells):
        def wait_for_release():
            os.close(self._go)
            os.write(tells, str(os.getpid()).encode())
            os.close(tells)
            if not os.read(held, 1):
                os._exit(0)

        try:
            self.process = subprocess.Popen(self._command, preexec_fn=wait_for_release, **options)
        except OSError as error:
            self._error = error
        except subprocess.SubprocessError:
            pass  # abandoned
        finally:
            os.close(tells)

    @property
    def exit_code(self) -> int | None:
        """As a shell gives it: 128 + N where signal N ended it. None while it runs."""
        code = self.process.poll() if self._ended.is_set() else None
        return code if code is None or code >= 0 else 128 - code

    def end(self, number: int) -> None:
        """End it as we were ended, then insist. Ctrl-C has reached it already: the terminal sends it to both."""
        for step in (number, signal.SIGTERM, signal.SIGKILL):
            if step != signal.SIGINT:
                self.process.send_signal(step)
            if self._ended.wait(_GRACE_S):
                return

    def _wait(self, on_exit):
        self.process.wait()
        self._ended.set()
        on_exit()


def refuse_missing(command: list[str]) -> None:
    """Raise UsageError where the command does not exist: before anything else is touched."""
    if shutil.which(command[0]) is None:
        raise UsageError(f"no such command: {command[0]}", "give a command that runs, behind --")


def user_of_command(name: str | None) -> pwd.struct_passwd | None:
    """The user to run the command as: `name`, else whoever called sudo, else None for the present one.

    An application started as root would leave root's files in its owner's home, and often behave differently.
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


def give_to_caller(path: Path) -> None:
    """Make an output belong to whoever called sudo."""
    caller, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if os.geteuid() == 0 and caller and group:
        os.chown(path, int(caller), int(group))


def _as_user(user):
    environment = {**os.environ, "HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name,
                   "SHELL": user.pw_shell}
    runtime = Path(f"/run/user/{user.pw_uid}")
    if runtime.is_dir():
        environment["XDG_RUNTIME_DIR"] = str(runtime)
    if user.pw_uid == os.geteuid():
        return {"env": environment}
    return {"env": environment, "user": user.pw_uid, "group": user.pw_gid,
            "extra_groups": os.getgrouplist(user.pw_name, user.pw_gid)}
