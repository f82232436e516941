"""Processes of a test: helpers of the replay, and whether any lives."""

from contextlib import suppress
from pathlib import Path


def helpers_of(pid):
    """Process ids of the running helpers of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(") ")
        except OSError:
            continue
        if name == "blkreel-replay" and rest.split()[1] == str(pid) and rest[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def has_helper(drive):
    """Whether a helper has the drive open: one writes on for up to half a second after its command is killed."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if (process / "comm").read_text() == "blkreel-replay\n" and any(
                    str(descriptor.readlink()) == str(drive) for descriptor in (process / "fd").iterdir()):
                return True
    return False


def lives(pid):
    """False for a zombie too: where no init adopts processes, nobody waits for them."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
