"""How each process of a `waylog up` is started."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Final

from waylog.cli import check_words, parse_words
from waylog.config import ConfigError, Endpoint, parse_endpoint
from waylog.network.free_ports import FreePorts
from waylog.supervision.platform_plan import PlatformPlan, settle
from waylog.supervision.process_spec import ProcessSpec

_WAYLOG: Final = (sys.executable, "-m", "waylog.cli")
#: Seconds for a start of the history job: Spark may have to load packages first.
_HISTORY_READY_S: Final = 600.0
#: What `waylog up` decides itself, by the command that would be told otherwise: names of argparse.
_DECIDED_HERE: Final = {
    "gateway": (
        *("bootstrap_servers", "http", "mqtt", "users", "data", "history", "open", "relay", "edge"),
        *("workers_share_port", "mqtt_workers", "mqtt_worker"),
    ),
    "resolver": (
        *("bootstrap_servers", "geo", "action", "from_earliest", "from_offset", "from_date"),
    ),
    "history": ("bootstrap_servers", "out", "once", "places_interval"),
    "streams": ("bootstrap_servers", "action", "names", "module"),
    "forwarding": ("bootstrap_servers", "forwarding", "refused_ports"),
}
#: Where processes listen, by command: names of argparse. No forwarding may reach any of them.
LISTENERS: Final = {
    "gateway": ("http", "mqtt", "mqtts"),
    "geo": ("listen",),
    "schema-registry": ("listeners",),
}


def waylog_command(*words: str) -> list[str]:
    """Return a command of this installation."""
    return [*_WAYLOG, *words]


class PlatformProcesses:
    """The processes beside the brokers."""

    def __init__(self, plan: PlatformPlan) -> None:
        self._plan = plan

    def check(self, ports: FreePorts) -> None:
        """Raise ConfigError or CommandError for options that a process would refuse later."""
        plan = self._plan
        plain = PlatformProcesses(
            replace(
                plan,
                gateway_options=(),
                resolver_options=(),
                history_options=(),
                streams_options=(),
                forwarding_options=(),
            )
        )
        gateway = _checked(self.gateway(1), plain.gateway(1))
        _checked(self.geo(), plain.geo())
        _checked(self.resolver(1), plain.resolver(1))
        if plan.history is not None:
            _checked(self.history_job(plan.history), plain.history_job(plan.history))
        if plan.streams:
            _checked(self.streams(), plain.streams())
        if plan.forwarding:
            without = PlatformProcesses(replace(plan, forwarding_options=()))
            _checked(self.forwarding(), without.forwarding())
        if plan.schema_registry:
            _checked(*[self.registry(plan.schema_registry)] * 2)
        if gateway.mqtts and parse_endpoint(gateway.mqtts).port:
            settle(ports, "--mqtts", gateway.mqtts)

    def beside_brokers(self) -> list[ProcessSpec]:
        """Return those that are started together, once the brokers are ready."""
        specs = self._of_the_platform()
        return [*specs, self.forwarding()] if self._plan.forwarding else specs

    def _of_the_platform(self) -> list[ProcessSpec]:
        """Return those that do nothing outside of the platform."""
        plan = self._plan
        specs = [
            self.geo(),
            *(self.gateway(number) for number in range(1, plan.gateway_workers + 1)),
            *(self.resolver(number) for number in range(1, plan.resolvers + 1)),
        ]
        specs += [self.streams()] if plan.streams else []
        return specs + ([self.registry(plan.schema_registry)] if plan.schema_registry else [])

    def geo(self) -> ProcessSpec:
        """Return the geocoder."""
        words = ["geo", "serve", "--listen", str(self._plan.geo_http), *self._geo_index("--index")]
        for path in self._plan.tiles:
            words += ["--tiles", str(path)]
        return ProcessSpec("geo", waylog_command(*words))

    def _geo_index(self, option: str) -> list[str]:
        return [option, str(self._plan.geo)] if self._plan.geo else []

    def gateway(self, number: int) -> ProcessSpec:
        """Return a gateway; they are counted from 1."""
        plan = self._plan
        words = [
            "gateway",
            "--bootstrap-servers", plan.bootstrap_servers,
            "--http", str(plan.http),
            "--mqtt", str(plan.mqtt),
            "--users", str(plan.data.users),
            "--places", str(plan.data.places),
            "--geo-url", f"http://{plan.geo_http}",
            "--data", str(plan.data.root),
            "--metrics-token-file", str(plan.data.metrics_token),
            *plan.gateway_options,
        ]  # fmt: skip
        if plan.history is not None:
            words += ["--history", plan.history]
        words += ["--open"] if plan.open else ["--demo-token", str(plan.data.demo_token)]
        if plan.gateway_workers > 1:
            relay = str(plan.data.root / "relay.sock")
            words += ["--workers-share-port", "--relay" if number == 1 else "--edge", relay]
            words += ["--mqtt-workers", str(plan.gateway_workers), "--mqtt-worker", str(number)]
        # It writes what waits for MQTT clients, for STOP_TIMEOUT_S of
        # gateway.mqtt.journal.kafka_journal at most.
        return ProcessSpec(f"gateway-{number}", waylog_command(*words), stop_timeout_s=70.0)

    def resolver(self, number: int) -> ProcessSpec:
        """Return a resolver; they are counted from 1."""
        words = ["resolver", "--bootstrap-servers", self._plan.bootstrap_servers]
        words += [*self._geo_index("--geo"), *self._plan.resolver_options]
        return ProcessSpec(f"resolver-{number}", waylog_command(*words))

    def streams(self) -> ProcessSpec:
        """Return the process of all topologies."""
        words = ["streams", "run", *self._plan.streams]
        words += ["--bootstrap-servers", self._plan.bootstrap_servers, *self._plan.streams_options]
        return ProcessSpec("streams", waylog_command(*words))

    def forwarding(self) -> ProcessSpec:
        """Return the process that sends fixes on to users' own servers.

        Raises ConfigError if some process of the platform listens on a port that is not known.
        """
        plan = self._plan
        served = [] if plan.brokers is None else list(plan.brokers.endpoints)
        for spec in self._of_the_platform():
            served += _listeners(spec)
        ports = ",".join(map(str, sorted({each.port for each in served})))
        words = ["forwarding", "run", "--bootstrap-servers", plan.bootstrap_servers]
        words += ["--refused-ports", ports, *plan.forwarding_options]
        return ProcessSpec("forwarding", waylog_command(*words))

    def registry(self, listener: Endpoint) -> ProcessSpec:
        """Return the schema registry."""
        words = ["schema-registry", "--bootstrap-servers", self._plan.bootstrap_servers]
        words += ["--listeners", str(listener), "--users", str(self._plan.data.users)]
        words += ["--open"] if self._plan.open else []
        return ProcessSpec("schema-registry", waylog_command(*words))

    def history_job(self, history: str) -> ProcessSpec:
        """Return the history job, which writes to a folder or URL."""
        words = [
            "history", "run",
            "--bootstrap-servers", self._plan.bootstrap_servers,
            "--out", history,
            "--places", str(self._plan.data.places),
            "--places-interval", str(self._plan.places_interval_s),
            *self._plan.history_options,
        ]  # fmt: skip
        return ProcessSpec("history", waylog_command(*words), ready_timeout_s=_HISTORY_READY_S)


def _listeners(spec: ProcessSpec) -> list[Endpoint]:
    """Return where a process listens; raises ConfigError for a port that the system chooses."""
    words = spec.argv[len(_WAYLOG) :]
    arguments = parse_words(words)
    found = []
    for name in LISTENERS.get(words[0], ()):
        for text in (getattr(arguments, name) or "none").split(","):
            if text == "none":
                continue
            endpoint = parse_endpoint(text)
            if not endpoint.port:
                raise ConfigError(
                    f"{words[0]}: --{name} {text}: with --forwarding a port has to be named, which "
                    "no forwarding may reach then"
                )
            found.append(endpoint)
    return found


def _checked(spec: ProcessSpec, plain: ProcessSpec) -> argparse.Namespace:
    """Check a process's words, also against those without the words of --...-options."""
    words, plain_words = spec.argv[len(_WAYLOG) :], plain.argv[len(_WAYLOG) :]
    arguments = check_words(words)
    command = words[0]
    decided = parse_words(plain_words)
    for name in _DECIDED_HERE.get(command, ()):
        if getattr(arguments, name) != getattr(decided, name):
            raise ConfigError(
                f"--{command}-options: `waylog up` decides about --{name.replace('_', '-')} itself"
            )
    return arguments
