"""Requirements of capture and replay on this machine, for `blkreel doctor`."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Check:
    """A result. status: ok, missing (required for `area`), or note (works, with a limit)."""

    area: str
    name: str
    status: Literal["ok", "missing", "note"]
    detail: str
    remedy: str = ""
