"""One answer of `blkreel doctor`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One answer. status: ok, missing (needed for what `area` names), or note (works, but know this)."""

    area: str
    name: str
    status: str
    detail: str
    remedy: str = ""
