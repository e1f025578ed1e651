"""The command `waylog`: a table of subcommands, each loaded only when it is called.

A command is a module with `add_arguments(parser)` and `run(arguments) -> int`. It is named here as
text, because this package imports none of the others, and because `waylog --help` should not load
Spark.
"""

from __future__ import annotations

from waylog import interrupts

# isort: split
import argparse
import difflib
import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, NoReturn, Protocol, cast

from waylog.config import ARROW_MEMORY_POOL, ConfigError
from waylog.extras import extra_of, install_command
from waylog.os_errors import describe_os_error
from waylog.private_files import create_private_files

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = interrupts.EXIT_INTERRUPTED
#: Imported by name, as the commands are: they stand above this module.
_CLIENT_PROPERTIES = "waylog.kafka.connection.properties"
_CLIENTS_REACH = "waylog.kafka.reach"


class Command(NamedTuple):
    """One subcommand: its name, the module that has it, and its line in `waylog --help`."""

    name: str
    module: str
    help: str


class CommandModule(Protocol):
    """The interface of a command's module.

    The module of a service also has `check(arguments)`. It raises ConfigError or CommandError for
    wrong options that can be detected before anything is started.
    """

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


class CommandError(Exception):
    """A user's mistake or an expected failure, printed as one line."""

    def __init__(self, message: str, status: int = EXIT_FAILED) -> None:
        """`status` is the command's exit status."""
        super().__init__(message)
        self.status = status


COMMANDS = (
    Command("up", "waylog.supervision.up", "the whole platform under a supervisor"),
    Command("broker", "broker_core.server.command", "one broker process"),
    Command("log", "broker_core.server.log_command", "check the files of a broker's logs"),
    Command("gateway", "gateway.command", "one gateway process: HTTP, WebSocket, MQTT"),
    Command("bridge", "gateway.bridge.command", "fixes from an MQTT cluster, addresses back"),
    Command(
        "resolver", "consumers.resolver.command", "one resolver process: fixes in, addresses out"
    ),
    Command("connect", "consumers.connect.command", "a worker for Kafka Connect's connectors"),
    Command("forwarding", "consumers.forwarding.command", "fixes on to servers of users' own"),
    Command("schema-registry", "gateway.schema_registry.command", "schemas of records, over HTTP"),
    Command("streams", "consumers.streams.commands.command", "geofences, speed, others"),
    Command("user", "gateway.users.user_command", "add, list and revoke users"),
    Command("link", "gateway.users.link_command", "a one-time link that opens the live map"),
    Command("device", "gateway.users.device_command", "tokens for single devices"),
    Command("geo", "geoservice.commands.command", "ask, build and serve a geocoding index"),
    Command("topics", "waylog.console.topics", "create, describe, alter and delete topics"),
    Command("produce", "waylog.console.produce", "write records to a topic"),
    Command("consume", "waylog.console.consume", "read records of a topic"),
    Command("offsets", "waylog.console.offsets", "show the offsets of a topic"),
    Command("groups", "waylog.console.groups", "list, describe and reset consumer groups"),
    Command("dead-letters", "waylog.console.dead_letters", "see refused records, send them again"),
    Command("cluster", "waylog.console.cluster", "brokers, controllers, elections, moves"),
    Command("audit", "waylog.audit.command", "where the fixes of a device or of a day are"),
    Command("replay", "waylog.replay.command", "send recorded tracks as devices would"),
    Command("history", "spark.history.command", "keep the history as Parquet"),
    Command("places", "spark.places.command", "find favourite places"),
    Command("fleet", "spark.fleet.command", "heat map, gaps and quality of data of all devices"),
    Command("load", "load_tests.command", "load the platform and account for every fix"),
)


def _load(command: Command) -> CommandModule:
    return cast(CommandModule, importlib.import_module(command.module))


class _Parser(argparse.ArgumentParser):
    """A parser that reports a wrong argument with the usage of the subcommand it was given to."""

    _words: Sequence[str] = ()

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        self._words = sys.argv[1:] if args is None else args
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            # A subcommand's parser is called by the one above it, and sees the argument first.
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """End the process with one line; of several mistakes it names an unknown option.

        The word after an unknown option may have been meant as its value, so an error about that
        word would mislead.
        """
        unknown = self._unknown_options()
        if message.endswith("expected one argument"):
            message += self._quoted()
        elif unknown and not message.startswith("unrecognized"):
            message = f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown)}"
        self.end(message)

    def end(self, message: str) -> NoReturn:
        """Print one line, and end the process: a screen full of usage would hide the mistake."""
        more = "" if "--help" in message else f"; see `{self.prog} --help`"
        self.exit(EXIT_USAGE, f"{self.prog}: error: {message}{more}\n")

    def _quoted(self) -> str:
        """Return a hint on how to give an option a value that begins with a dash, if needed."""
        for option, value in pairwise(self._words):
            action = self._option_string_actions.get(option)
            if action is not None and action.nargs is None and value.startswith("-"):
                return f"; a value that begins with - is given as {option}='{value}'"
        return ""

    def _unknown_options(self) -> list[str]:
        commands = {
            name
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for name in action.choices
        }
        options = self._option_string_actions
        unknown = []
        for word in self._words:
            if word == "--" or word in commands:
                break
            name = word.partition("=")[0]
            if word.startswith("--") and not any(each.startswith(name) for each in options):
                unknown.append(word)
        return unknown

    def _meant(self, unknown: Sequence[str]) -> str:
        near = [
            match
            for word in unknown
            if word.startswith("--")
            for match in self._like(word.partition("=")[0])
        ]
        return f"; did you mean {', '.join(near)}?" if near else ""

    def _like(self, name: str) -> list[str]:
        options = [each for each in self._option_string_actions if each.startswith("--")]
        near = difflib.get_close_matches(name, options, n=1, cutoff=0.7)
        # Options may be abbreviated, and an abbreviation may be misspelt.
        short = {option[: len(name)]: option for option in options}
        return near or [
            short[each] for each in difflib.get_close_matches(name, short, n=1, cutoff=0.8)
        ]


class _CheckingParser(_Parser):
    """A parser that raises ConfigError for a wrong argument instead of ending the process."""

    def end(self, message: str) -> NoReturn:
        raise ConfigError(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise ConfigError(message or "it would only print its help")


def _check_command(words: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """End the process if the first word is not a command, and name similar commands."""
    name = next((word for word in words if not word.startswith("-")), None)
    names = [command.name for command in COMMANDS]
    if name is not None and name not in names:
        near = difflib.get_close_matches(name, names, n=2)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        parser.error(f"there is no command {name}; {meant}`waylog --help` lists all")


def _parser(
    loaded: Command | None, parser_class: type[_Parser] = _Parser
) -> argparse.ArgumentParser:
    parser = parser_class(
        prog="waylog",
        description="A location platform: phones send where they are; every fix is in a "
        "replicated log before it is acknowledged, and comes back as an address.",
        epilog="examples:\n  waylog up\n  waylog geo reverse 47.1410 9.5209\n"
        "  waylog COMMAND --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.name,
            help=command.help,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            # A command's own options are not known before its module is loaded.
            add_help=command is loaded,
        )
        if command is loaded:
            subparser.description = command.help
            _load(command).add_arguments(subparser)
    return parser


def _named(words: Sequence[str]) -> Command:
    return next(each for each in COMMANDS if each.name == words[0])


def parse_words(words: Sequence[str]) -> argparse.Namespace:
    """Parse one of our command lines; raises ConfigError, which begins with the command's name."""
    command = _named(words)
    try:
        return _parser(command, _CheckingParser).parse_args(words)
    except ConfigError as error:
        raise ConfigError(f"{command.name}: {error}") from None


def check_words(words: Sequence[str]) -> argparse.Namespace:
    """Parse one of our command lines that is to be run later, and do its quick checks.

    Returns its arguments. Raises ConfigError and CommandError with a message that begins with the
    command's name.
    """
    arguments = parse_words(words)
    command = _named(words)
    try:
        check = getattr(_load(command), "check", None)
        if check is not None:
            check(arguments)
        return arguments
    except ConfigError as error:
        raise ConfigError(f"{command.name}: {error}") from None
    except CommandError as error:
        raise CommandError(f"{command.name}: {error}", error.status) from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its status: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    create_private_files()
    words = list(sys.argv[1:] if argv is None else argv)
    name = next((word for word in words if not word.startswith("-")), None)
    command = next((each for each in COMMANDS if each.name == name), None)
    try:
        return _run(command, words)
    except ModuleNotFoundError as error:
        extra = extra_of(error.name or "", name or "")
        if extra is None:
            raise
        print(
            f"waylog {name}: {error.name} is not installed: {install_command(extra)}",
            file=sys.stderr,
        )
        return EXIT_FAILED
    finally:
        logging.shutdown()


def _run(command: Command | None, words: Sequence[str]) -> int:
    parser = _parser(command)
    _check_command(words, parser)
    arguments = parser.parse_args(words)
    assert command is not None
    if command.module.startswith("spark."):
        os.environ.setdefault(*ARROW_MEMORY_POOL)
    try:
        if hasattr(arguments, "bootstrap_servers"):
            importlib.import_module(_CLIENT_PROPERTIES).choose_bootstrap_servers(arguments)
        if hasattr(arguments, "bootstrap_servers") and os.environ.get("WAYLOG_KAFKA_CONFIG"):
            # Each client of the command would meet the mistake, and not each would end by it.
            importlib.import_module(_CLIENTS_REACH).check_configured_properties()
        module = _load(command)
        interrupts.raise_again()
        return module.run(arguments)
    except ConfigError as error:
        print(f"waylog {command.name}: {error}", file=sys.stderr)
        return EXIT_USAGE
    except CommandError as error:
        print(f"waylog {command.name}: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of the output (`| head`) closed the pipe.
        sys.stderr.close()
        return EXIT_DONE
    except OSError as error:
        if error.filename is None:
            raise
        # A file that the user has named, or that belongs to what was named.
        print(f"waylog {command.name}: {describe_os_error(error)}", file=sys.stderr)
        return EXIT_FAILED


if __name__ == "__main__":
    # The commands import this module by its name, so CommandError is that module's class, not the
    # one of `__main__`.
    from waylog.cli import main as main_by_name

    sys.exit(main_by_name())
