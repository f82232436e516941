"""The sample traces that ship with blkreel. Any command accepts `sample:NAME` as a trace."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blkreel.common.errors import UsageError, did_you_mean
from blkreel.common.files.storage_url import Location, parse_location
from blkreel.common.files.typed_document import parse_toml

PREFIX = "sample:"
_DIRECTORY = Path(__file__).parent
_COMPUTING = _DIRECTORY / "computing.toml"  # written by `make samples`
SAMPLES = {
    "model-load": "a language model of 4 GB loads from a cold cache (llama.cpp)",
    "model-load-mmap": "the same model loads as a mapped file",
    "model-load-direct": "the same model loads with direct I/O",
    "model-download": "the same model loads with plain reads beside a download at 1 Gbit/s",
    "data-scan": "a query reads a table of Parquet files (DuckDB)",
    "database-restart": "a database server starts and reads its table into memory (PostgreSQL)",
    "database-queries": "a database server starts cold and finds rows for 8 clients (PostgreSQL)",
    "download-300m-steady": "a download at 300 Mbit/s, written back steadily (curl)",
    "download-1g-steady": "a download at 1 Gbit/s, written back steadily (curl)",
    "download-300m": "a download at 300 Mbit/s with the default writeback (curl)",
    "download-1g": "a download at 1 Gbit/s with the default writeback (curl)",
    "file-copy": "a file of 8 GB is copied from another drive and synced (cp)",
    "update-unpack": "an update is unpacked and synced (tar and zstd)",
    "update-verify": "a download of 5 GB is verified (aria2c)",
    "game-small": "a strategy game starts on a small map, from an archive of 3.3 GB (0 A.D.)",
    "game-load": "the same game starts on a large map, and is played (0 A.D.)",
    "game-download": "the same beside a download at 300 Mbit/s to the same drive",
    "download": "a BitTorrent download of an album of pictures (aria2c)",
    "app-start": "an office application starts from a cold cache, with a document",
    "package-install": "a package and all it needs are installed (dpkg)",
}
TITLES = {
    "model-load": "Model load",
    "model-load-mmap": "Model load, mapped",
    "model-load-direct": "Model load, direct I/O",
    "model-download": "Model load during a download",
    "data-scan": "Data scan",
    "database-restart": "Database restart",
    "database-queries": "Database queries",
    "download-300m-steady": "Steady download at 300 Mbit/s",
    "download-1g-steady": "Steady download at 1 Gbit/s",
    "download-300m": "Download at 300 Mbit/s",
    "download-1g": "Download at 1 Gbit/s",
    "file-copy": "File copy",
    "update-unpack": "Update, unpacking",
    "update-verify": "Update, verification",
    "game-small": "Game load, small map",
    "game-load": "Game load",
    "game-download": "Game load during a download",
    "download": "Download",
    "app-start": "Application start",
    "package-install": "Package installation",
}


def compute_shares() -> dict[str, float]:
    """By sample: the load time of its I/Os on a drive without latency / the recorded one. Waits for a network count as
    computing."""
    return {name: float(share) for name, share in parse_toml(_COMPUTING.read_bytes()).items()}


def located(trace: str | Location) -> Location:
    """The path or URL of a trace as a user names it. Raises UsageError for an unknown sample."""
    text = str(trace)
    return sample_path(text.removeprefix(PREFIX)) if text.startswith(PREFIX) else parse_location(trace)


def called(path: Location) -> str:
    """The name of a trace in output: a sample by its name, any other by its path."""
    return f"{PREFIX}{path.stem}" if _is_sample(path) else str(path)


def _is_sample(path: Location) -> bool:
    return path.parent == _DIRECTORY and path.stem in SAMPLES


def workload_names(path: Location, metadata: Mapping[str, Any]) -> dict[str, str | None]:
    """`title` and `description` of the workload of a trace, from its metadata; None without one. Samples have
    theirs here."""
    title, description = metadata.get("title"), metadata.get("description")
    if _is_sample(path):
        title, description = title or TITLES[path.stem], description or SAMPLES[path.stem]
    return {"title": title, "description": description}


def sample_path(name: str) -> Path:
    """The path of a sample. Raises UsageError for an unknown name."""
    if name not in SAMPLES:
        raise UsageError(f"unknown sample: {name!r}", did_you_mean(name, SAMPLES, f"samples: {', '.join(SAMPLES)}"))
    return _DIRECTORY / f"{name}.parquet"
