"""What blkreel keeps on a machine for one user: the directory of its state, and a secret."""

import hashlib
import hmac
import os
import secrets
from contextlib import AbstractContextManager, suppress
from functools import cache
from pathlib import Path

from blkreel.common.files.safe_files import open_own, write_file

from .errors import BlkreelError, OutputExists, SafetyError, os_errors
from .system import user_directory

_SECRET_BYTES = 32


def state_directory() -> Path:
    """Where drives are remembered: BLKREEL_STATE_DIR, else /var/lib/blkreel/drives for root, else the user's."""
    if directory := os.environ.get("BLKREEL_STATE_DIR"):
        return Path(directory)
    if os.geteuid() == 0:
        return Path("/var/lib/blkreel/drives")
    return user_directory("XDG_STATE_HOME", ".local/state") / "blkreel/drives"


def state_errors(failure: str) -> AbstractContextManager[None]:
    """Turns an OSError of a file there into a BlkreelError."""
    return os_errors(BlkreelError, failure, "choose another directory: export BLKREEL_STATE_DIR=DIR")


def keyed_hash(purpose: str, data: bytes) -> str:
    """A hash that only this user on this machine can make, in hex; "" where the secret cannot be stored.

    purpose: separates the uses, so that a hash of one is none of another.
    """
    secret = _secret(state_directory() / "secret")
    return hmac.new(secret, purpose.encode() + b"\0" + data, hashlib.sha256).hexdigest() if secret else ""


@cache
def _secret(path: Path) -> bytes | None:
    """The secret of this user, made at its first use; None where it can neither be read nor written."""
    try:
        if (secret := _stored(path)) is None:
            with suppress(OutputExists):  # another process was first
                write_file(path, secrets.token_bytes(_SECRET_BYTES), mode=0o600)
            secret = _stored(path)
        return secret
    except (OSError, SafetyError):
        return None


def _stored(path: Path) -> bytes | None:
    try:
        descriptor = open_own(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        secret = file.read(_SECRET_BYTES + 1)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077 or len(secret) != _SECRET_BYTES:
        raise PermissionError(f"{path} can be read by others, or is damaged")
    return secret
