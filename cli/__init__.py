"""The `blkreel` command: one file a subcommand."""
