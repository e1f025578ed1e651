"""The subcommands of `waylog geo`."""
