"""The options of `waylog up`, and what of them is wrong whatever the machine is like."""

from __future__ import annotations

import argparse
import logging
import shlex
from pathlib import Path
from typing import Final

from waylog.config import DEFAULT_HTTP, DEFAULT_MQTT, ConfigError
from waylog.network.local_accounts import ALL, SELF, parse_local_accounts

logger = logging.getLogger(__name__)

DEFAULT_KAFKA: Final = "127.0.0.1:9092"
PLACES_INTERVAL_S: Final = 300

_EXAMPLES: Final = """examples:
  waylog up                                  broker, gateway, resolver, history; data in ./data
  waylog up --data /srv/waylog --http 0.0.0.0:8080 --mqtt 0.0.0.0:1883
  waylog up --brokers 3                      three brokers: one may die, nothing is lost
  waylog up --bootstrap-servers kafka1:9092  on an Apache Kafka cluster
  waylog up --streams geofences,speed        with events of geofences and of speeding
  waylog up --no-history --open              for a load test: no Spark, every user accepted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog up`."""
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="what must not be lost (default $WAYLOG_DATA, ./data)",
    )
    add("--http", default=DEFAULT_HTTP, metavar="H:P", help="HTTP listener (default %(default)s)")
    add("--mqtt", default=DEFAULT_MQTT, metavar="H:P", help="MQTT listener (default %(default)s)")
    add(
        "--kafka",
        metavar="H:P",
        help=f"broker's listener (default {DEFAULT_KAFKA})",
    )
    add(
        "--brokers",
        type=int,
        metavar="N",
        help="broker processes (default 1); with 3, every record is on all three",
    )
    add(
        "--local-accounts",
        action="append",
        metavar="LIST",
        help="accounts of this machine, by name or uid with commas between, whose programs may "
        "connect to the brokers, beside root and the account that runs the platform; `all` for "
        "every account; may be given several times (default: no other)",
    )
    add("--bootstrap-servers", metavar="LIST", help="use this Kafka cluster, start no broker")
    add("--gateway-workers", type=int, default=1, metavar="N", help="gateway processes (default 1)")
    add("--resolvers", type=int, default=1, metavar="N", help="resolver processes (default 1)")
    add(
        "--streams",
        metavar="NAMES",
        help="topologies of `waylog streams list` with commas between, or `all`, in a process of "
        "their own, or `none` (default: geofences, which users' zones need; with --open none)",
    )
    add(
        "--streams-options",
        default="",
        metavar="WORDS",
        help="more of `waylog streams run`: --streams-options='--property speed.limit_kmh=100'",
    )
    add(
        "--forwarding",
        action="store_true",
        help="users may have their devices sent on to servers of their own (key: DATA/master.key)",
    )
    add(
        "--forwarding-options",
        default="",
        metavar="WORDS",
        help="more of `waylog forwarding run`: --forwarding-options='--forwarding-networks "
        "192.168.1.0/24'",
    )
    add("--schema-registry", metavar="H:P", help="a schema registry, too (default: none)")
    add("--geo", type=Path, metavar="INDEX", help="geocoding index (default: the embedded world)")
    add(
        "--tiles",
        action="append",
        default=[],
        type=Path,
        metavar="FILE.pmtiles",
        help="streets of the map, in the schema Shortbread (default: INDEX.pmtiles if there is "
        "one); may be given several times",
    )
    add(
        "--resolver-options",
        default="",
        metavar="WORDS",
        help="more of `waylog resolver`: --resolver-options='--movement-threshold 10 --renew'",
    )
    add(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="NETWORK",
        help="a reverse proxy in front of --http whose X-Forwarded-For is believed; may be given "
        "several times",
    )
    add(
        "--proxy-protocol",
        action="store_true",
        help="HTTP connections of trusted proxies begin with a PROXY header (version 1 or 2)",
    )
    add(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which browsers ask for --http, e.g. that of a reverse proxy; may be given "
        "several times",
    )
    add(
        "--metrics-access",
        choices=("admin", "user", "public"),
        default="admin",
        help="who reads the gateway's /metrics and /v1/pipeline, beside the token in "
        "DATA/metrics.token (default: %(default)s)",
    )
    add(
        "--push-contact",
        metavar="URI",
        help="mailto: or https: address of the operator; switches Web Push on",
    )
    add(
        "--map-url",
        metavar="URL",
        help="tiles of another server that the page offers as a base map: "
        "https://tiles.example.org/{z}/{x}/{y}.png (default: none; no browser asks elsewhere)",
    )
    add("--map-attribution", metavar="TEXT", help="whose map it is (default: its server's name)")
    add("--satellite-url", metavar="URL", help="the same, of pictures (default: none)")
    add("--satellite-attribution", metavar="TEXT", help="whose pictures these are")
    add(
        "--gateway-options",
        default="",
        metavar="WORDS",
        help="more of `waylog gateway`: --gateway-options='--mqtts 0.0.0.0:8883 ...'",
    )
    history = parser.add_mutually_exclusive_group()
    history.add_argument("--history", metavar="DIR_OR_URL", help="Parquet (default DATA/history)")
    history.add_argument("--no-history", action="store_true", help="start no history job, no JVM")
    add(
        "--history-options",
        default="",
        metavar="WORDS",
        help="more of `waylog history run`: --history-options='--engine arrow'",
    )
    add(
        "--places-interval",
        type=int,
        metavar="S",
        help=f"seconds between two searches for favourite places (default {PLACES_INTERVAL_S})",
    )
    add(
        "--encrypt-values",
        action="store_true",
        help="what the log keeps of a device can only be read with the device's key, which "
        "`waylog history erase` destroys (master key: DATA/master.key)",
    )
    add("--open", action="store_true", help="accept every user: for demonstrations and load tests")


def check_options(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for options that are wrong, by themselves or together."""
    counts = (arguments.gateway_workers, arguments.resolvers)
    if min(counts) < 1 or (arguments.brokers is not None and arguments.brokers < 1):
        raise ConfigError("--brokers, --gateway-workers and --resolvers must be at least 1")
    _check_contradictions(arguments)
    _check_local_accounts(arguments)


def _check_contradictions(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for options that others would make useless."""
    if arguments.bootstrap_servers is not None and arguments.local_accounts is not None:
        raise ConfigError(
            "--local-accounts is for the brokers that `waylog up` starts; it starts none with "
            "--bootstrap-servers"
        )
    if arguments.no_history:
        for option, given in (
            ("--history-options", arguments.history_options),
            ("--places-interval", arguments.places_interval is not None),
        ):
            if given:
                raise ConfigError(f"{option} is for the history job; --no-history starts none")
    if arguments.streams_options and arguments.streams in (None, "none"):
        raise ConfigError("--streams-options is for topologies; name some with --streams")
    if arguments.forwarding_options and not arguments.forwarding:
        raise ConfigError("--forwarding-options is for forwardings; say --forwarding too")


def say_what_has_no_effect(arguments: argparse.Namespace) -> None:
    """Log which options have no effect: no mistake, since scripts may always give them."""
    if arguments.bootstrap_servers is not None:
        for option, value in (("--brokers", arguments.brokers), ("--kafka", arguments.kafka)):
            if value is not None:
                logger.warning(
                    "%s %s has no effect: with --bootstrap-servers no broker is started",
                    *(option, value),
                )


def _check_local_accounts(arguments: argparse.Namespace) -> None:
    if arguments.local_accounts is None:
        return
    text = ",".join(arguments.local_accounts)
    if not text.strip(", "):
        raise ConfigError(f"--local-accounts: a list is expected, `{SELF}` or `{ALL}`")
    try:
        parse_local_accounts(text)
    except ConfigError as error:
        raise ConfigError(f"--local-accounts: {error}") from None


def option_words(option: str, text: str) -> list[str]:
    """Return the words of an option that has more of another command's; raises ConfigError."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None


def gateway_options(arguments: argparse.Namespace) -> list[str]:
    """Return the options that are passed on to every gateway process."""
    words = option_words("--gateway-options", arguments.gateway_options)
    for network in arguments.trusted_proxy:
        words += ["--trusted-proxy", network]
    if arguments.proxy_protocol:
        words.append("--proxy-protocol")
    if arguments.push_contact is not None:
        words += ["--push-contact", arguments.push_contact]
    for option in ("map_url", "map_attribution", "satellite_url", "satellite_attribution"):
        value = getattr(arguments, option)
        if value is not None:
            # One word, since a value may begin with a dash.
            words.append(f"--{option.replace('_', '-')}={value}")
    for name in arguments.host:
        words += ["--host", name]
    words += ["--metrics-access", arguments.metrics_access]
    return words
