"""Shared parts of the console tools: connection options, offsets and times, printing of rows."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka.admin import AdminClient

from waylog.administration.log_access import LogAccess
from waylog.config import DEFAULT_BOOTSTRAP_SERVERS, ConfigError
from waylog.kafka.connection.properties import load_client_properties, sourced_properties
from waylog.observability.log_lines import one_line

_PIPE_COLUMNS: Final = 20_000


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the brokers and the client's properties."""
    group = parser.add_argument_group("connection")
    group.add_argument(
        "--bootstrap-servers",
        default=DEFAULT_BOOTSTRAP_SERVERS,
        metavar="LIST",
        help="brokers, HOST:PORT,... (default %(default)s)",
    )
    group.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="properties of the client (security.protocol, sasl.*, ssl.*), in Kafka's or "
        "librdkafka's names; default: $WAYLOG_KAFKA_CONFIG",
    )
    group.add_argument(
        "-X",
        dest="properties",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one property of the client; may be given several times",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option `--json`, output for programs."""
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """Return NAME=VALUE words as a dict; raises ConfigError."""
    found = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise ConfigError(f"{option} {word}: NAME=VALUE is expected")
        found[name] = value
    return found


def security(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the client properties of the command line; raises ConfigError and CommandError."""
    from_file = load_client_properties(arguments.command_config) if arguments.command_config else {}
    return from_file | sourced_properties(pairs(arguments.properties, "-X"), "-X")


def access_of(arguments: argparse.Namespace) -> LogAccess:
    """Return how the command line says that the log is reached; raises ConfigError."""
    return LogAccess(arguments.bootstrap_servers, security(arguments))


def connect(arguments: argparse.Namespace) -> AdminClient:
    """Return an admin client of a cluster that answers.

    Raises CommandError if no broker answers, ConfigError for unknown client properties.
    """
    access = access_of(arguments)
    try:
        return access.connect()
    except ConfigError as error:
        sources = [str(arguments.command_config)] if arguments.command_config else []
        sources += ["-X"] if arguments.properties else []
        raise ConfigError(f"{' and '.join(sources)}: {error}" if sources else str(error)) from None


def count(text: str) -> int:
    """Parse a whole number of at least 1; for use as the type of an option."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: a whole number of at least 1 is expected")
    return int(text)


def print_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print a table for people, or a JSON object a line for programs."""
    if as_json:
        for row in rows:
            sys.stdout.write(shown_json(msgspec.json.encode(dict(row)).decode()) + "\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        Console(stderr=True).print("nothing to show")
        return
    # A terminal gets wide cells folded; a program that reads lines gets each row on one line.
    on_terminal = sys.stdout.isatty()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, value in rows[0].items():
        numeric = isinstance(value, int) and not isinstance(value, bool)
        table.add_column(
            name.replace("_", " "),
            justify="right" if numeric else "left",
            overflow="fold",
            no_wrap=not on_terminal,
        )
    for row in rows:
        # Text, because a string with square brackets would be read as markup. Names that others
        # have chosen must not move a terminal's cursor, or hide letters.
        table.add_row(
            *(Text("" if value is None else one_line(str(value))) for value in row.values())
        )
    console = Console(width=None if on_terminal else _PIPE_COLUMNS)
    console.print(table)


def shown_json(text: str) -> str:
    """Return JSON as a terminal may show it: what is not printable is escaped, with one meaning.

    A program gets it as it is.
    """
    if text.isprintable() or not sys.stdout.isatty():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def say(rows: Sequence[Mapping[str, Any]], text: str, *, as_json: bool) -> None:
    """Print the outcome: a sentence for people, rows for programs."""
    if as_json:
        print_rows(rows, as_json=True)
    else:
        print("\n".join(map(one_line, text.split("\n"))))
