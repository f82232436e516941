"""Options of the commands that make one trace of several."""

import click

onto = click.option("--onto", type=click.Choice(("separate", "one")), default="separate", show_default=True,
                    help="separate: each trace keeps its devices. one: all I/Os on one device, at their offsets.")
