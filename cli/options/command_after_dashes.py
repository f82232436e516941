"""A command line that ends with `-- COMMAND ...`."""

import click

KEY = "blkreel.command"  # of Context.meta: the words after `--`


class CommandAfterDashes(click.Command):
    """Takes everything after `--` as the command to run, with its options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[KEY] = []
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[KEY] = args[:at], args[at + 1:]
            if not ctx.meta[KEY]:
                raise click.UsageError("no command after --", ctx)
        elif not ctx.resilient_parsing:
            self.refuse_missing_dashes(ctx, args)
        return super().parse_args(ctx, args)

    def refuse_missing_dashes(self, ctx: click.Context, args: list[str]) -> None:
        """Raise UsageError for a command without `--` before it."""
