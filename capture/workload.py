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
    """A running command with our stdin, stdout and stderr. on_exit is called, in a thread of its own, when it ends."""

    def __init__(self, command: list[str], user: pwd.struct_passwd | None, on_exit):
        options = _as_user(user) if user else {}
        try:
            self.process = subprocess.Popen(command, **options)
        except OSError as error:
            raise UsageError(f"cannot run {command[0]}: {error.strerror}",
                             "give a command that runs, behind --") from None
        self._ended = threading.Event()
        threading.Thread(target=self._wait, args=(on_exit,), name="workload", daemon=True).start()

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
