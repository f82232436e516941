"""`blkreel results`: a catalog of results (docs/catalog.md)."""

import click

from blkreel.cli.command_groups import LazyGroup


class _Results(LazyGroup):
    parent = "results"


@click.group(cls=_Results, name="results")
def command() -> None:
    """Keep the results of runs and tests in a catalog: a directory that git and rsync copy.

    \b
    blkreel results add runs/*/ tests/*/
    blkreel results list --drive 990
    blkreel compare new-run/ --catalog catalog/
    """
