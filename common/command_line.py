"""Commands in messages, as the user would type them.

Messages are written with `blkreel COMMAND`. as_typed() turns that into a command that works when pasted: with the path
by which the program was called, and with sudo where the command needs root.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from blkreel.common.files.safe_files import caller_of_sudo
from blkreel.common.printable import printable

PROGRAM = "blkreel"
# In a message, as_typed() replaces the dots by the arguments of the running command.
AS_ROOT = f"run as root: sudo {PROGRAM} ..."
PRIVILEGED = "run it outside the container, or: docker run --privileged"
_AS_ROOT_COMMANDS = ("capture", "demo", "emulate", "precondition", "replay", "test", "top")
_OTHER_COMMANDS = ("anonymize", "check", "compare", "concat", "doctor", "drives", "export", "import", "info", "merge",
                   "model-drive", "model", "power", "predict", "recover", "report", "results", "samples", "slice")
COMMANDS = (*_AS_ROOT_COMMANDS, *_OTHER_COMMANDS)
_COMMAND = re.compile(rf"(?<![\w/.-])(sudo )?{PROGRAM} (?:({'|'.join(COMMANDS)})\b|(\.\.\.))")
# Where sudo looks for programs (secure_path of Debian, Ubuntu, Fedora and SUSE).
_SUDO_PATH = os.pathsep.join(("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"))


def command_line(*arguments: object) -> str:
    """`blkreel report runs/a`, as the user would type it."""
    return as_typed(" ".join([PROGRAM, *(quoted(str(argument)) for argument in arguments)]))


def running_words() -> list[str]:
    """The running command with its arguments, to be given again."""
    return [PROGRAM, *sys.argv[1:]]


def quoted(word: str) -> str:
    """A word of a command for a shell; with control characters or bytes that are not UTF-8 as for bash and zsh."""
    if printable(word) == word:
        return shlex.quote(word)
    return "$'" + printable(word.replace("\\", "\\\\").replace("'", "\\'")) + "'"


def running_command() -> str:
    """`replay`, without its arguments; of a program that uses the package, its name."""
    return next((word for word in sys.argv[1:2] if word in COMMANDS), Path(sys.argv[0]).name)


def as_typed(text: str, argv: Sequence[str] | None = None) -> str:
    """A message with its commands as the user would type them. argv: of this process.

    A text that names no command stays as it is. Root needs no sudo, and a caller of sudo needs it again.
    """
    argv = sys.argv if argv is None else argv

    def typed(match: re.Match[str]) -> str:
        sudo, name, dots = match.groups()
        if dots and Path(argv[0]).name != PROGRAM:
            return match[0]  # the program is another one that uses the package
        under_sudo = caller_of_sudo() is not None
        with_sudo = under_sudo and (name in _AS_ROOT_COMMANDS or bool(sudo)) or bool(sudo) and os.geteuid() != 0
        words = shlex.join(argv[1:]) if dots else name
        return " ".join(filter(None, ("sudo" if with_sudo else "", _program(argv[0], with_sudo), words)))

    return _COMMAND.sub(typed, text)


def _program(called: str, with_sudo: bool) -> str:
    """The program as the shell, or sudo, finds it: by its name on the search path, else by its path."""
    path = Path(called) if Path(called).name == PROGRAM else Path(sys.executable).with_name(PROGRAM)
    if not path.exists():
        return PROGRAM
    on_path = shutil.which(PROGRAM, path=_SUDO_PATH if with_sudo else None)
    if on_path and Path(on_path).samefile(path):
        return PROGRAM
    # sudo does not search the user's path, so a program that the shell found there needs its whole path.
    found_by_shell = shutil.which(PROGRAM)
    by_name = found_by_shell is not None and Path(found_by_shell) == path
    return shlex.quote(str(path.absolute() if with_sudo and by_name else path))
