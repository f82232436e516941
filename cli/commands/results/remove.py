"""`blkreel results remove`: results out of a catalog."""

from pathlib import Path

import click

from blkreel.cli.options import catalog as options
from blkreel.cli.options.types import as_json
from blkreel.common.files.json_file import print_json
from blkreel.common.printable import printable


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@options.catalog
@as_json
def command(ids: tuple[str, ...], catalog: Path | None, as_json: bool) -> None:
    """Remove results from a catalog. Runs and tests stay. ID: an id, or at least 4 digits that it begins with.

    Nothing is removed if one of the ids is unknown.

    \b
    blkreel results remove 28391376 b4ef1663
    """
    opened = options.opened(catalog)
    results = [opened.entry(id_) for id_ in dict.fromkeys(map(opened.find, ids))]
    for result in results:
        opened.remove(result)
    opened.refresh()
    if as_json:
        print_json({"version": 1, "catalog": str(opened.directory), "removed": [
            {"id": result["id"], "label": result["label"], "path": result["path"]} for result in results]})
        return
    for removed in results:
        print(printable(f"removed {removed['id'][:12]}  {removed['label']}, {removed['workload']['title']}; "
                        f"add it again: blkreel results add {removed['path']}"))
