"""`blkreel results site`: a static site of a catalog."""

from pathlib import Path

import click

from blkreel.analysis.charts.theme import NO_BRAND
from blkreel.analysis.report import drives_file
from blkreel.analysis.report.page import brand
from blkreel.benchmarks.site import build
from blkreel.cli.options import catalog as options
from blkreel.cli.options import types
from blkreel.common.console import notice
from blkreel.common.errors import UsageError
from blkreel.common.files.json_file import print_json
from blkreel.common.printable import printable


@click.command()
@click.option("-o", "--output", type=types.OUTPUT, required=True, metavar="DIR",
              help="Write the site to this directory: a new one, an empty one, or an earlier site.")
@click.option("--site-title", "title", default="Drives", show_default=True, metavar="TEXT", help="Title of the site.")
@click.option("--url", default="", metavar="URL", help="Where the site will stand: for the links of the feed.")
@types.drives
@types.theme
@options.catalog
@types.as_json
def command(output: Path, title: str, url: str, drives: Path | None, theme: Path | None, catalog: Path | None,
            as_json: bool) -> int:
    """Make a static site of a catalog: an overview, and a page for each drive, workload and pair of drives.

    It works offline and needs no server. A second build writes only what differs, and removes the pages of results that
    are gone. The files of the results are copied: they hold the names of hosts and directories.

    \b
    blkreel results site -o site/
    blkreel results site -o site/ --drives drives.toml --theme brand.toml --site-title "SSD lab"
    blkreel results site -o site/ --url https://example.org/ssd/
    """
    if url and not url.startswith(("https://", "http://")):
        raise UsageError(f"--url {url}: not a web address", "write --url https://example.org/ssd/")
    opened = options.opened(catalog)
    colors = brand.load(theme) if theme else NO_BRAND
    drive_list = drives_file.load(drives) if drives else None
    built = build(opened, output, title=title, url=f"{url.rstrip('/')}/" if url else "", brand=colors,
                  drives_file=drive_list)
    options.warn_damaged(opened.damaged.values())
    if drive_list:
        for text in drive_list.unmatched({drive.label: drive.facts.get("model", "") for drive in built.content.drives}):
            notice(text)
    for name in built.edited:
        notice(f"left: {printable(str(output / name))} was edited, and its result is gone")
    if as_json:
        print_json({"version": 1, "catalog": str(opened.directory), "directory": str(output),
                    "files": built.files, "written": built.written,
                    "removed": built.removed, "edited": list(built.edited), "drives": len(built.content.drives),
                    "workloads": len(built.content.conditions), "results": len(built.content.results),
                    "left_out": dict(built.left_out)})
    else:
        click.echo(f"{len(built.content.results):,} results of {len(built.content.drives):,} drives: "
                   f"{built.files:,} files, {built.written:,} written, {built.removed:,} removed")
        click.echo(f"Site: {printable(str(output / 'index.html'))}")
    return types.NOT_TRUSTWORTHY if opened.damaged else 0
