"""Which processes a `waylog up` has, at which addresses, and with what they are told."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from waylog.cli import CommandError
from waylog.config import ConfigError, DataDirectory, Endpoint, parse_endpoint
from waylog.network.free_ports import FreePorts, PortTaken
from waylog.network.local_accounts import SELF
from waylog.supervision.broker_processes import BrokerProcesses
from waylog.supervision.listening_check import describe_taken
from waylog.supervision.up_options import (
    DEFAULT_KAFKA,
    PLACES_INTERVAL_S,
    gateway_options,
    option_words,
)


@dataclass(frozen=True)
class PlatformPlan:
    """The addresses, folders and options of one `waylog up`."""

    data: DataDirectory
    http: Endpoint
    mqtt: Endpoint
    brokers: BrokerProcesses | None  # None: an existing cluster
    bootstrap_servers: str
    geo_http: Endpoint
    geo: Path | None
    tiles: tuple[Path, ...]
    resolver_options: tuple[str, ...]
    gateway_options: tuple[str, ...]
    history: str | None
    history_options: tuple[str, ...]
    places_interval_s: int
    gateway_workers: int
    resolvers: int
    #: Topologies that run, or `all`; empty if none do.
    streams: tuple[str, ...]
    streams_options: tuple[str, ...]
    forwarding: bool
    forwarding_options: tuple[str, ...]
    schema_registry: Endpoint | None
    open: bool

    @classmethod
    def of(
        cls, arguments: argparse.Namespace, data: DataDirectory, ports: FreePorts
    ) -> PlatformPlan:
        """Choose addresses and folders; raises CommandError if a port is taken."""
        http = settle(ports, "--http", arguments.http)
        mqtt = settle(ports, "--mqtt", arguments.mqtt)
        brokers = None
        if arguments.bootstrap_servers is None:
            first = settle(ports, "--kafka", arguments.kafka or DEFAULT_KAFKA)
            accounts = ",".join(arguments.local_accounts or [SELF])
            brokers = BrokerProcesses.plan(
                data.broker, first, arguments.brokers or 1, ports, data.metrics_token, accounts
            )
        history = None if arguments.no_history else arguments.history or str(data.history)
        return cls(
            data=data,
            http=http,
            mqtt=mqtt,
            brokers=brokers,
            bootstrap_servers=(
                arguments.bootstrap_servers if brokers is None else brokers.bootstrap_servers
            ),
            geo_http=ports.settle(Endpoint("127.0.0.1", 0)),
            geo=arguments.geo,
            tiles=tuple(arguments.tiles),
            resolver_options=tuple(option_words("--resolver-options", arguments.resolver_options)),
            gateway_options=tuple(gateway_options(arguments)),
            history=history,
            history_options=tuple(option_words("--history-options", arguments.history_options)),
            places_interval_s=(
                PLACES_INTERVAL_S
                if arguments.places_interval is None
                else arguments.places_interval
            ),
            gateway_workers=arguments.gateway_workers,
            resolvers=arguments.resolvers,
            streams=_topologies(arguments),
            streams_options=tuple(option_words("--streams-options", arguments.streams_options)),
            forwarding=arguments.forwarding,
            forwarding_options=tuple(
                option_words("--forwarding-options", arguments.forwarding_options)
            ),
            schema_registry=(
                arguments.schema_registry
                and settle(ports, "--schema-registry", arguments.schema_registry)
            ),
            open=arguments.open,
        )


def settle(ports: FreePorts, option: str, text: str) -> Endpoint:
    """Return the address that an option names, with a free port in place of port 0."""
    endpoint = parse_endpoint(text)
    try:
        return ports.settle(endpoint)
    except PortTaken as error:
        raise CommandError(describe_taken(option, endpoint, error)) from None


def _topologies(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the topologies that are asked for; by default those that users' zones need."""
    if arguments.streams is None:
        # In open mode there are no users who could draw a zone.
        return () if arguments.open else ("geofences",)
    return () if arguments.streams == "none" else _names("--streams", arguments.streams)


def _names(option: str, text: str | None) -> tuple[str, ...]:
    """Return the names of a list with commas; none if it is not given."""
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ConfigError(f"{option}: names with commas between are expected, or `all`")
    return names
