"""The traces that ship with blkreel, by name. Any command takes `sample:NAME` for a trace."""

from pathlib import Path

from .errors import UsageError
from .places import Place, place

PREFIX = "sample:"
_DIRECTORY = Path(__file__).with_name("samples")
SAMPLES = {
    "game-load": "a game loads from a cold cache: its menu, then a race",
    "download": "a BitTorrent download of an album of pictures",
    "game-download": "the same game loads while a torrent downloads to the same drive",
    "app-start": "an office application starts from a cold cache, with a document",
    "package-install": "a package and all it needs is installed",
    "compile": "a program is compiled from a cold cache",
}


def located(trace) -> Place:
    """A trace as a user names it: its path or URL. Raises UsageError for a sample that does not exist."""
    text = str(trace)
    return sample_path(text.removeprefix(PREFIX)) if text.startswith(PREFIX) else place(trace)


def called(path: Place) -> str:
    """What a trace is called where a user reads it: a sample by its name, any other by its path."""
    shipped = path.parent == _DIRECTORY and path.stem in SAMPLES
    return f"{PREFIX}{path.stem}" if shipped else str(path)


def sample_path(name: str) -> Path:
    """Where the sample of that name lies. Raises UsageError for a name that none has."""
    if name not in SAMPLES:
        raise UsageError(f"no sample is called {name!r}", f"there are: {', '.join(SAMPLES)}")
    return _DIRECTORY / f"{name}.parquet"
