"""Options of the commands that read or write a catalog of results."""

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from blkreel.common.console import notice
from blkreel.common.progress import ProgressTask
from blkreel.common.system import user_directory

from . import types

if TYPE_CHECKING:
    from blkreel.benchmarks.catalog import Catalog
    from blkreel.benchmarks.catalog.result import CatalogError

ENVIRONMENT = "BLKREEL_CATALOG"


def default_catalog() -> Path:
    """/var/lib/blkreel/catalog of root, else ~/.local/share/blkreel/catalog."""
    if os.geteuid() == 0:
        return Path("/var/lib/blkreel/catalog")
    return user_directory("XDG_DATA_HOME", ".local/share") / "blkreel/catalog"


catalog = click.option("--catalog", type=types.PATH, metavar="DIR",
                       help=f"Directory of the catalog. [default: ${ENVIRONMENT}, else "
                            "~/.local/share/blkreel/catalog, of root /var/lib/blkreel/catalog]")
drive = click.option("--drive", "drive_texts", type=types.LABEL, multiple=True, metavar="TEXT",
                     help="Only results of drives with this text in label, model, firmware or unit. Repeatable.")
workload = click.option("--workload", "workload_texts", multiple=True, metavar="TEXT",
                        help="Only results of workloads with this text in title or file name, or whose checksum "
                             "begins with it. Repeatable.")


def opened(directory: Path | None, *, create: bool = False) -> "Catalog":
    """The catalog of --catalog. Raises CatalogError."""
    from blkreel.benchmarks.catalog import Catalog

    return Catalog.open(directory or os.environ.get(ENVIRONMENT) or default_catalog(), create=create,
                        progress=_progress)


def _progress(step: str, total: float | None = None) -> AbstractContextManager[ProgressTask]:
    from blkreel.cli.ui.progress import progress  # which most commands on a catalog do not need

    return progress(step, total)


def warn_damaged(errors: Iterable["CatalogError"]) -> None:
    for error in errors:
        notice(f"left out: {error}")
