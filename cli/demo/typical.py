"""The load on the nine typical drives, simulated: alone, and beside the writes."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from blkreel.replay.simulated.spec import PREFIX, typical_drives

from . import pairs
from .pairs import Pairs
from .steps import Steps

# A minute of writes before the load: by then a small write cache is full, as in any longer download.
_SIMULATED = " (simulated)"
_LEAD = ("--background-lead", "60s")


@dataclass(frozen=True)
class TypicalDrive:
    """run: its directory."""

    name: str
    title: str
    run: Path
    pairs: Pairs


def label(title: str) -> str:
    """Of its runs in reports."""
    return f"{title}{_SIMULATED}"


def is_label(text: str) -> bool:
    return text.endswith(_SIMULATED)


def replay_all(steps: Steps, trace: str | Path, runs: Path, options: tuple[str, ...]) -> list[TypicalDrive]:
    """The fastest beside the writes first. runs: directory for their runs."""
    titles = {name: drive["title"] for name, drive in typical_drives().items()}

    def replay(name: str) -> None:
        steps.blkreel("replay", trace, "--on", f"{PREFIX}{name}", *options, *_LEAD, "--label", label(titles[name]),
                      "-o", runs / name, "-q", describe_warning=lambda: "")

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        try:
            list(pool.map(replay, titles))
        finally:
            pool.shutdown(cancel_futures=True)
    drives = [TypicalDrive(name, title, runs / name, pairs.of_runs([runs / name])) for name, title in titles.items()]
    return sorted(drives, key=lambda drive: drive.pairs.beside_ns)
