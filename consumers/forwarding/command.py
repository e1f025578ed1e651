"""`waylog forwarding`: sends fixes of users on to servers of their own; lists and pauses that."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from waylog.cli import EXIT_DONE, EXIT_FAILED, CommandError
from waylog.config import (
    DEFAULT_BOOTSTRAP_SERVERS,
    ConfigError,
    check_bootstrap_servers,
    check_finite,
    check_name,
)
from waylog.console.common import add_json, print_rows
from waylog.forwarding.definition import GROUP
from waylog.malformed import MALFORMED

if TYPE_CHECKING:
    from consumers.forwarding.worker import WorkerSettings
    from waylog.forwarding.known_forwardings import KnownForwardings
    from waylog.forwarding.pauses import Pause
    from waylog.sealing.value_keys import KeyRing

logger = logging.getLogger(__name__)

_PORT_MAX: Final = 65_535
#: What the table for people has; JSON has all.
_COLUMNS: Final = ("user", "id", "name", "kind", "url", "state", "forwarded", "refused", "error")

_EXAMPLES: Final = """examples:
  waylog forwarding run                                    to servers in the internet
  waylog forwarding run --forwarding-networks 192.168.1.0/24
                                                           and to those of the home network
  waylog forwarding list --user anna                       what is sent on, and how it fares
  waylog forwarding pause --host example.org --reason 'its operator asks for it'
  waylog forwarding pauses                                 what is paused, by whom and why
  waylog forwarding resume --host example.org

Users make forwardings themselves, over HTTP (POST /v1/forwardings). Their secrets are sealed:
WAYLOG_MASTER_KEY, or WAYLOG_FORWARDING_KEY, names the file with the key, for gateways too.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog forwarding`."""
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="forwarding", metavar="ACTION", required=True)
    run_parser = actions.add_parser("run", help="send until stopped")
    listing = actions.add_parser("list", help="list all forwardings, without secrets")
    pausing = actions.add_parser("pause", help="hold forwardings up, which owners cannot resume")
    pauses = actions.add_parser("pauses", help="list what administrators have paused")
    resuming = actions.add_parser("resume", help="end what was paused with the same options")
    for each in (run_parser, listing, pausing, pauses, resuming):
        each.add_argument(
            "--bootstrap-servers",
            default=DEFAULT_BOOTSTRAP_SERVERS,
            metavar="LIST",
            help="Kafka brokers (default %(default)s)",
        )
    add = run_parser.add_argument
    add(
        "--forwarding-networks",
        default="",
        metavar="LIST",
        help="networks beside the internet that forwardings may reach, such as "
        "192.168.1.0/24,fd00::/8 (default: none; never this machine)",
    )
    add(
        "--refused-ports",
        default="",
        metavar="LIST",
        help="ports of the platform, which no forwarding reaches in these networks either; those "
        "of --bootstrap-servers are always among them",
    )
    add("--group", default=GROUP, help="consumer group (default %(default)s)")
    add(
        "--tls-ca",
        type=Path,
        metavar="FILE",
        help="PEM: authorities beside those of the system whose certificates servers may have, "
        "with https and with mqtts",
    )
    add(
        "--request-timeout",
        type=float,
        default=10.0,
        metavar="S",
        help="how long a server may take to answer (default %(default)s)",
    )
    add(
        "--retry-backoff-max",
        type=float,
        default=600.0,
        metavar="S",
        help="the longest pause before a server is tried again that could not be reached "
        "(default %(default)s)",
    )
    add(
        "--session-timeout",
        type=float,
        default=10.0,
        metavar="S",
        help="how long the group waits for a process that is silent before others get its "
        "partitions; brokers have bounds, of 6 s and 30 min unless they are told otherwise "
        "(default %(default)s)",
    )
    for each in (listing, pausing, resuming):
        each.add_argument("--user", metavar="U", help="only those of this user")
        each.add_argument("--host", metavar="NAME", help="only those to this server")
    for each in (pausing, resuming):
        each.add_argument("--id", metavar="ID", help="only this one of the user's")
    pausing.add_argument(
        "--reason", required=True, metavar="TEXT", help="why: the owners are shown it"
    )
    add_json(listing)
    add_json(pauses)


def check(arguments: argparse.Namespace) -> None:
    """Check the options; see waylog.cli.CommandModule."""
    check_bootstrap_servers(arguments.bootstrap_servers)
    if arguments.forwarding in ("pause", "resume"):
        _asked_pause(arguments)
    if arguments.forwarding != "run":
        return
    check_name("--group", arguments.group)
    check_finite(arguments, "--request-timeout", "--retry-backoff-max", "--session-timeout")
    if not 0.1 <= arguments.request_timeout <= 120:
        raise ConfigError("--request-timeout is 0.1 to 120 s")
    if not arguments.retry_backoff_max > 0:
        raise ConfigError("--retry-backoff-max is more than 0 s")
    if not 1 <= arguments.session_timeout <= 1800:
        raise ConfigError("--session-timeout is 1 to 1800 s")
    _settings(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked for; raises CommandError, ConfigError."""
    from waylog.kafka.clients import LogUnreachable

    check(arguments)
    try:
        return _ACTIONS[arguments.forwarding](arguments)
    except LogUnreachable as error:
        raise CommandError(str(error)) from None


def _settings(arguments: argparse.Namespace) -> WorkerSettings:
    from consumers.forwarding.schedule import Pauses
    from consumers.forwarding.ways_out import trusted_authorities
    from consumers.forwarding.worker import WorkerSettings
    from waylog.network.outbound.reachable_networks import ReachableNetworks

    try:
        networks = ReachableNetworks(_list(arguments.forwarding_networks), _ports(arguments))
    except ConfigError as error:
        raise ConfigError(f"--forwarding-networks: {error}") from None
    try:
        trusted = trusted_authorities(arguments.tls_ca)
    except ConfigError as error:
        raise ConfigError(f"--tls-ca: {error}") from None
    return WorkerSettings(
        bootstrap_servers=arguments.bootstrap_servers,
        group=arguments.group,
        client_id=f"forwarding-{os.getpid()}",
        networks=networks,
        trusted=trusted,
        pauses=Pauses(longest_s=arguments.retry_backoff_max),
        timeout_s=arguments.request_timeout,
        session_timeout_s=arguments.session_timeout,
    )


def _list(text: str) -> list[str]:
    return [each for each in (part.strip() for part in text.split(",")) if each]


def _ports(arguments: argparse.Namespace) -> set[int]:
    named = _list(arguments.refused_ports)
    if not all(each.isdecimal() and 0 < int(each) <= _PORT_MAX for each in named):
        raise ConfigError("--refused-ports: numbers of ports, separated by commas")
    brokers = [each.rpartition(":")[2] for each in _list(arguments.bootstrap_servers)]
    return {int(each) for each in (*named, *brokers) if each.isdecimal()}


def _keys(bootstrap_servers: str) -> KeyRing:
    from waylog.forwarding.keys import NO_KEY, forwarding_keys

    ring = forwarding_keys(bootstrap_servers)
    if ring is None:
        raise ConfigError(NO_KEY)
    # Another key than that of the log is told now, and not by what cannot be read later.
    ring.catch_up()
    return ring


# ---- run ----


def _run(arguments: argparse.Namespace) -> int:
    import uvloop

    from waylog.kafka.clients import ensure_topics
    from waylog.kafka.topics import FORWARDING_TOPICS, TOPICS
    from waylog.observability.log_lines import configure_logging
    from waylog.process.garbage_collection import tune_garbage_collector

    configure_logging()
    settings = _settings(arguments)
    ensure_topics(arguments.bootstrap_servers, (*TOPICS, *FORWARDING_TOPICS))
    keys = _keys(arguments.bootstrap_servers)
    tune_garbage_collector()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, keys))


async def _serve(settings: WorkerSettings, keys: KeyRing) -> int:
    """Work until a signal (return 0), or until background work fails (return 1)."""
    from consumers.forwarding.worker import ForwardingWorker
    from waylog.observability.telemetry import KafkaLogHandler, KafkaTelemetry
    from waylog.process.serving import serving

    async with serving(callbacks_of=("consumers.", "waylog."), mistakes=(ConfigError,)) as process:
        telemetry = KafkaTelemetry(settings.bootstrap_servers, settings.client_id)
        process.closing.callback(telemetry.close)
        handler = KafkaLogHandler(telemetry)
        logging.getLogger().addHandler(handler)
        process.closing.callback(logging.getLogger().removeHandler, handler)
        worker = ForwardingWorker(settings, keys)
        await process.start(worker.start(process.closing))
        process.ready()
        logger.info("forwarding ready kafka=%s", settings.bootstrap_servers)
        # Another process with a new producer can store progress again.
        await process.stopped(lambda: worker.fatal)
        logger.info("stopping")
    logger.info("forwarding stopped")
    return EXIT_FAILED if process.has_failed else EXIT_DONE


# ---- list, pause, resume ----


def _known(arguments: argparse.Namespace, *topics: str) -> KnownForwardings:
    from waylog.forwarding.known_forwardings import KnownForwardings
    from waylog.kafka.ranges.topic_reader import read_topic

    known = KnownForwardings(_keys(arguments.bootstrap_servers))
    for topic in topics:
        for message in read_topic(arguments.bootstrap_servers, topic):
            known.take(topic, message.key(), message.value())
    return known


def _show(arguments: argparse.Namespace) -> int:
    from waylog.forwarding.pauses import host_of, usual_host
    from waylog.forwarding.shown import shown
    from waylog.kafka.topics import FORWARDING, FORWARDING_PROGRESS

    known = _known(arguments, FORWARDING, FORWARDING_PROGRESS)
    users = known.users() if arguments.user is None else [arguments.user]
    host = None if arguments.host is None else usual_host(arguments.host)
    pauses = known.pauses()
    rows: list[dict[str, Any]] = [
        {"user": user}
        | shown(*(each, forwarding, known.progress(user, each)), pauses.of(user, each, forwarding))
        for user in users
        for each, forwarding in known.of_user(user).items()
        if host is None or host == host_of(forwarding.url)
    ]
    if not arguments.json:
        rows = [{name: row[name] for name in _COLUMNS} for row in rows]
    print_rows(rows, as_json=arguments.json)
    return EXIT_DONE


def _show_pauses(arguments: argparse.Namespace) -> int:
    from waylog.forwarding.pauses import shown_pause
    from waylog.kafka.topics import FORWARDING

    pauses = _known(arguments, FORWARDING).pauses()
    print_rows([shown_pause(*each) for each in pauses.items()], as_json=arguments.json)
    return EXIT_DONE


def _asked_pause(arguments: argparse.Namespace) -> Pause:
    from waylog.forwarding.pauses import new_pause

    try:
        return new_pause(
            getattr(arguments, "reason", "it is resumed"),
            f"account {os.getuid()} of the machine",
            time.time_ns() // 1_000_000,
            user=arguments.user,
            host=arguments.host,
            forwarding=arguments.id,
        )
    except MALFORMED as error:
        raise ConfigError(str(error)) from None


def _pause(arguments: argparse.Namespace) -> int:
    from waylog.forwarding.definition import encode
    from waylog.forwarding.pauses import PAUSES_MAX, pause_key
    from waylog.kafka.librdkafka_producer import append_records
    from waylog.kafka.topics import FORWARDING

    servers, pause = arguments.bootstrap_servers, _asked_pause(arguments)
    keys = _keys(servers)
    if len(list(_known(arguments, FORWARDING).pauses().items())) >= PAUSES_MAX:
        raise CommandError(f"there are {PAUSES_MAX} pauses at most; end one")
    key = pause_key(secrets.token_hex(8), pause.user)
    value = keys.seal_value(FORWARDING, encode(pause), key)
    append_records(servers, [(FORWARDING, key, value)], "the pause")
    _note(servers, f"{pause.by} has paused {pause}: {pause.reason}")
    return EXIT_DONE


def _resume(arguments: argparse.Namespace) -> int:
    from waylog.forwarding.pauses import pause_key
    from waylog.kafka.librdkafka_producer import append_records
    from waylog.kafka.topics import FORWARDING

    servers, asked = arguments.bootstrap_servers, _asked_pause(arguments)
    keys = [
        pause_key(pause_id, pause.user)
        for pause_id, pause in _known(arguments, FORWARDING).pauses().items()
        if pause.scope == asked.scope
    ]
    if not keys:
        raise CommandError(f"nobody has paused {asked} (see `waylog forwarding pauses`)")
    append_records(servers, [(FORWARDING, each, None) for each in keys], "the end of the pause")
    _note(servers, f"{asked.by} has resumed {asked}")
    return EXIT_DONE


def _note(bootstrap_servers: str, text: str) -> None:
    """Tell what was changed, in topic `log` too, where an audit looks for it."""
    from waylog.observability.log_lines import configure_logging
    from waylog.observability.telemetry import KafkaLogHandler, KafkaTelemetry

    configure_logging()
    telemetry = KafkaTelemetry(bootstrap_servers, "waylog-forwarding")
    handler = KafkaLogHandler(telemetry)
    logger.addHandler(handler)
    logger.info("%s", text)
    logger.removeHandler(handler)
    telemetry.close()


_ACTIONS: Final = {
    "run": _run,
    "list": _show,
    "pause": _pause,
    "pauses": _show_pauses,
    "resume": _resume,
}
