"""`waylog up`: the platform on one machine, under a supervisor.

Broker, gateway, geocoder, resolvers and the history job are ordinary processes that know each other
only by address; each can run on another machine instead (docs/deploy.md).
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import logging
import os
import shlex
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from waylog.cli import EXIT_DONE, CommandError, check_words, parse_words
from waylog.config import (
    DEFAULT_HTTP,
    DEFAULT_MQTT,
    ConfigError,
    DataDirectory,
    Endpoint,
    local_url,
    parse_endpoint,
)
from waylog.history.storage_url import check_storage_url
from waylog.kafka.errors import error_text
from waylog.network.free_ports import FreePorts, PortTaken
from waylog.network.local_accounts import ALL, SELF, parse_local_accounts
from waylog.observability.log_lines import configure_logging
from waylog.private_files import make_private, temporary_folder
from waylog.process.background import spawn
from waylog.process.notify import notify_ready, notify_starting
from waylog.process.watchdog import EventLoopWatchdog
from waylog.supervision import preflight
from waylog.supervision.broker_processes import BrokerProcesses
from waylog.supervision.listening_check import describe_taken
from waylog.supervision.output_audience import is_readable_by_others
from waylog.supervision.reserved_ports import ReservedPorts
from waylog.supervision.supervisor import (
    ProcessSpec,
    StartError,
    SupervisionError,
    Supervisor,
)

logger = logging.getLogger(__name__)

DEMO_USER: Final = "demo"
_WAYLOG: Final = (sys.executable, "-m", "waylog.cli")
DEFAULT_KAFKA: Final = "127.0.0.1:9092"
_PLACES_INTERVAL_S: Final = 300
#: Seconds for a start of the history job: Spark may have to load packages first.
_HISTORY_READY_S: Final = 600.0
#: Seconds within which systemd hears of `waylog up` while that starts. The start may take longer:
#: each process has a limit of its own.
_SAYS_SO_S: Final = 60.0
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
}

_EXAMPLES: Final = """examples:
  waylog up                                  broker, gateway, resolver, history; data in ./data
  waylog up --data /srv/waylog --http 0.0.0.0:8080 --mqtt 0.0.0.0:1883
  waylog up --brokers 3                      three brokers: one may die, nothing is lost
  waylog up --bootstrap-servers kafka1:9092  on an Apache Kafka cluster
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
    add("--schema-registry", metavar="H:P", help="a schema registry, too (default: none)")
    add("--geo", type=Path, metavar="INDEX", help="geocoding index (default: the embedded world)")
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
        help=f"seconds between two searches for favourite places (default {_PLACES_INTERVAL_S})",
    )
    add(
        "--encrypt-values",
        action="store_true",
        help="what the log keeps of a device can only be read with the device's key, which "
        "`waylog history erase` destroys (master key: DATA/master.key)",
    )
    add("--open", action="store_true", help="accept every user: for demonstrations and load tests")


def run(arguments: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM, then stop everything."""
    configure_logging(line="%(levelname)s %(message)s")
    counts = (arguments.gateway_workers, arguments.resolvers)
    if min(counts) < 1 or (arguments.brokers is not None and arguments.brokers < 1):
        raise ConfigError("--brokers, --gateway-workers and --resolvers must be at least 1")
    data = DataDirectory(arguments.data) if arguments.data else DataDirectory.default()
    _check(arguments, data)
    make_private(data)
    with _lock(data.root / "lock"):
        os.environ.update(temporary_folder(data.temporary))
        if arguments.encrypt_values:
            _name_master_key(data)
        with ReservedPorts() as ports:
            platform = _Platform.plan(arguments, data, ports)
            platform.check(ports)
            os.environ.update(ports.environment())
            asyncio.run(platform.run())
    return EXIT_DONE


def _check(arguments: argparse.Namespace, data: DataDirectory) -> None:
    """Raise ConfigError or CommandError for mistakes, before anything starts."""
    _check_contradictions(arguments)
    _check_local_accounts(arguments)
    preflight.check_limits()
    preflight.check_data(data)
    if arguments.geo is not None:
        preflight.check_index(arguments.geo)
    if not arguments.no_history:
        check_storage_url("--history", arguments.history or str(data.history), written=True)
    if arguments.bootstrap_servers is not None:
        preflight.check_cluster(arguments.bootstrap_servers)
    _say_what_has_no_effect(arguments)


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


def _say_what_has_no_effect(arguments: argparse.Namespace) -> None:
    # No mistake: scripts may always give them.
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


def _name_master_key(data: DataDirectory) -> None:
    """Set the master key's file for all processes, unless the environment names another."""
    from waylog.sealing.sealing import ENVIRONMENT
    from waylog.sealing.value_encryption import ensure_master_key

    path = Path(os.environ.setdefault(ENVIRONMENT, str(data.master_key.resolve())))
    ensure_master_key(path)


def _words(option: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None


def _gateway_options(arguments: argparse.Namespace) -> list[str]:
    """Return the options that are passed on to every gateway process."""
    words = _words("--gateway-options", arguments.gateway_options)
    for network in arguments.trusted_proxy:
        words += ["--trusted-proxy", network]
    if arguments.proxy_protocol:
        words.append("--proxy-protocol")
    if arguments.push_contact is not None:
        words += ["--push-contact", arguments.push_contact]
    for name in arguments.host:
        words += ["--host", name]
    words += ["--metrics-access", arguments.metrics_access]
    return words


def _tell(*lines: str) -> None:
    """Print lines; the platform runs on if they cannot be written, or nobody reads them."""
    try:
        print(*lines, sep="\n", flush=True)
    except OSError as error:
        logger.warning("the output goes nowhere from now on: %s", error.strerror)
        # What is buffered, and what will be printed, would fail again.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


async def _tell_of_start() -> None:
    """Report that the start goes on, until cancelled; systemd ends it if that stops."""
    while True:
        notify_starting(_SAYS_SO_S)
        await asyncio.sleep(_SAYS_SO_S / 3)


def _lock(path: Path) -> IO[str]:
    handle = path.open("w", encoding="utf-8")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        raise CommandError(
            f"another `waylog up` is running on {path.parent.resolve()}; stop it, or choose "
            "another folder with --data"
        ) from None
    return handle


def _settle(ports: FreePorts, option: str, text: str) -> Endpoint:
    """Return the address that an option names, with a free port in place of port 0."""
    endpoint = parse_endpoint(text)
    try:
        return ports.settle(endpoint)
    except PortTaken as error:
        raise CommandError(describe_taken(option, endpoint, error)) from None


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


@dataclass(frozen=True)
class _Platform:
    """The processes, addresses and options of one `waylog up`."""

    data: DataDirectory
    http: Endpoint
    mqtt: Endpoint
    brokers: BrokerProcesses | None  # None: an existing cluster
    bootstrap_servers: str
    geo_http: Endpoint
    geo: Path | None
    resolver_options: tuple[str, ...]
    gateway_options: tuple[str, ...]
    history: str | None
    history_options: tuple[str, ...]
    places_interval_s: int
    gateway_workers: int
    resolvers: int
    schema_registry: Endpoint | None
    open: bool

    @classmethod
    def plan(
        cls, arguments: argparse.Namespace, data: DataDirectory, ports: FreePorts
    ) -> _Platform:
        """Choose addresses and folders; raises CommandError if a port is taken."""
        http = _settle(ports, "--http", arguments.http)
        mqtt = _settle(ports, "--mqtt", arguments.mqtt)
        brokers = None
        if arguments.bootstrap_servers is None:
            first = _settle(ports, "--kafka", arguments.kafka or DEFAULT_KAFKA)
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
            resolver_options=tuple(_words("--resolver-options", arguments.resolver_options)),
            gateway_options=tuple(_gateway_options(arguments)),
            history=history,
            history_options=tuple(_words("--history-options", arguments.history_options)),
            places_interval_s=(
                _PLACES_INTERVAL_S
                if arguments.places_interval is None
                else arguments.places_interval
            ),
            gateway_workers=arguments.gateway_workers,
            resolvers=arguments.resolvers,
            schema_registry=(
                arguments.schema_registry
                and _settle(ports, "--schema-registry", arguments.schema_registry)
            ),
            open=arguments.open,
        )

    def check(self, ports: FreePorts) -> None:
        """Raise ConfigError or CommandError for options that a process would refuse later."""
        plain = replace(self, gateway_options=(), resolver_options=(), history_options=())
        gateway = _checked(self._gateway(1), plain._gateway(1))
        _checked(self._geo(), plain._geo())
        _checked(self._resolver(1), plain._resolver(1))
        if self.history is not None:
            _checked(self._history_job(self.history), plain._history_job(self.history))
        if self.schema_registry:
            _checked(*[self._registry(self.schema_registry)] * 2)
        if gateway.mqtts and parse_endpoint(gateway.mqtts).port:
            _settle(ports, "--mqtts", gateway.mqtts)

    async def run(self) -> None:
        """Start in order, print the ready line, wait for the signal, stop in reverse order."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopping.set)
        supervisor = Supervisor(self.data.root, self.data.logs)
        self._note_history()
        starting = asyncio.create_task(self._start(supervisor))
        telling = spawn(_tell_of_start(), "telling of the start")
        ending = {
            asyncio.create_task(stopping.wait()),
            # The history job is started last and not waited for: its usage error may come later.
            asyncio.create_task(supervisor.wait_refused()),
        }
        watchdog: EventLoopWatchdog | None = None
        try:
            done, _ = await asyncio.wait({starting, *ending}, return_when=asyncio.FIRST_COMPLETED)
            if starting in done:
                starting.result()
                self.data.http_url.write_text(local_url(self.http), encoding="utf-8")
                self._print_ready(await self._sign_in_link())
                telling.cancel()
                notify_ready()
                watchdog = EventLoopWatchdog(loop)
                done, _ = await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            _tell("waylog stopping")
        except StartError as error:
            raise CommandError(str(error), error.status) from None
        except SupervisionError as error:
            raise CommandError(str(error)) from None
        finally:
            for task in (starting, telling, *ending):
                task.cancel()
            try:
                self.data.http_url.unlink(missing_ok=True)
            finally:
                await supervisor.stop()
                await asyncio.gather(starting, telling, *ending, return_exceptions=True)
                if watchdog is not None:
                    watchdog.close()

    def _note_history(self) -> None:
        """Write down where the history is, for commands that compare with it."""
        if self.history is None:
            self.data.history_url.unlink(missing_ok=True)
        else:
            is_url = "://" in self.history
            place = self.history if is_url else str(Path(self.history).absolute())
            self.data.history_url.write_text(place + "\n", encoding="utf-8")

    async def _start(self, supervisor: Supervisor) -> None:
        loop = asyncio.get_running_loop()
        if self.brokers is not None:
            brokers = self.brokers.specs()
            for spec in brokers:
                supervisor.start(spec)
            await asyncio.gather(*(supervisor.wait_ready(spec.name) for spec in brokers))
        preparing = loop.run_in_executor(None, self._prepare)
        await self._ensure_demo_user()
        await preparing
        names = []
        specs = [
            self._geo(),
            *(self._gateway(number) for number in range(1, self.gateway_workers + 1)),
            *(self._resolver(number) for number in range(1, self.resolvers + 1)),
        ]
        specs += [self._registry(self.schema_registry)] if self.schema_registry else []
        for spec in specs:
            supervisor.start(spec)
            names.append(spec.name)
        await asyncio.gather(*(supervisor.wait_ready(name) for name in names))
        if self.history is not None:
            # A JVM takes ten seconds to start, and nothing that a phone needs depends on it.
            supervisor.start(self._history_job(self.history))

    def _prepare(self) -> None:
        from confluent_kafka import KafkaException

        from waylog.kafka.clients import LogUnreachable, ensure_topics

        try:
            ensure_topics(self.bootstrap_servers)
        except (LogUnreachable, KafkaException) as error:
            raise StartError(f"the topics could not be created: {error_text(error)}") from error

    async def _ensure_demo_user(self) -> None:
        if self.open:
            return
        words = ["--users", str(self.data.users), "--token-file", str(self.data.demo_token)]
        process = await asyncio.create_subprocess_exec(
            *self._waylog("user", "ensure", DEMO_USER, *words),
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await process.communicate()
        if process.returncode != 0:
            raise StartError(f"the demo user could not be made: {errors.decode().strip()}")

    async def _sign_in_link(self) -> str:
        """Return the URL of the live map, which signs in the first browser that opens it."""
        url = f"{local_url(self.http)}/"
        if self.open:
            return url
        if is_readable_by_others(sys.stdout.fileno(), os.environ.get("JOURNAL_STREAM")):
            return f"{url} (sign in by the link that `waylog link` prints)"
        process = await asyncio.create_subprocess_exec(
            *self._waylog("link", "--users", str(self.data.users), "--gateway", url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        link, errors = await process.communicate()
        if process.returncode != 0:
            raise StartError(f"no link for the live map could be made: {errors.decode().strip()}")
        return f"{link.decode().strip()} (once; `waylog link` prints another one)"

    def _print_ready(self, live_map: str) -> None:
        lines = [f"live map     {live_map}"]
        if not self.open:
            lines.append(f"demo user    {DEMO_USER}, password in {self.data.demo_token}")
        lines.append(f"data, logs   {self.data.root.resolve()}")
        if self.brokers is not None:
            places = [self.http, *(broker.metrics for broker in self.brokers.brokers)]
            pages = ",".join(f" http://{place}/metrics" for place in places)
            lines.append(f"metrics     {pages} (token in {self.data.metrics_token})")
        where = f"http={self.http} mqtt={self.mqtt} kafka={self.bootstrap_servers}"
        _tell(*lines, f"waylog ready {where}")

    def _waylog(self, *words: str) -> list[str]:
        return [*_WAYLOG, *words]

    def _geo(self) -> ProcessSpec:
        words = ("geo", "serve", "--listen", str(self.geo_http), *self._geo_index("--index"))
        return ProcessSpec("geo", self._waylog(*words))

    def _geo_index(self, option: str) -> list[str]:
        return [option, str(self.geo)] if self.geo else []

    def _gateway(self, number: int) -> ProcessSpec:
        words = [
            "gateway",
            "--bootstrap-servers", self.bootstrap_servers,
            "--http", str(self.http),
            "--mqtt", str(self.mqtt),
            "--users", str(self.data.users),
            "--places", str(self.data.places),
            "--geo-url", f"http://{self.geo_http}",
            "--data", str(self.data.root),
            "--metrics-token-file", str(self.data.metrics_token),
            *self.gateway_options,
        ]  # fmt: skip
        if self.history is not None:
            words += ["--history", self.history]
        words += ["--open"] if self.open else ["--demo-token", str(self.data.demo_token)]
        if self.gateway_workers > 1:
            relay = str(self.data.root / "relay.sock")
            words += ["--workers-share-port", "--relay" if number == 1 else "--edge", relay]
            words += ["--mqtt-workers", str(self.gateway_workers), "--mqtt-worker", str(number)]
        # It writes what waits for MQTT clients, for STOP_TIMEOUT_S of
        # gateway.mqtt.journal.kafka_journal at most.
        return ProcessSpec(f"gateway-{number}", self._waylog(*words), stop_timeout_s=70.0)

    def _resolver(self, number: int) -> ProcessSpec:
        words = ["resolver", "--bootstrap-servers", self.bootstrap_servers]
        words += [*self._geo_index("--geo"), *self.resolver_options]
        return ProcessSpec(f"resolver-{number}", self._waylog(*words))

    def _registry(self, listener: Endpoint) -> ProcessSpec:
        words = ["schema-registry", "--bootstrap-servers", self.bootstrap_servers]
        words += ["--listeners", str(listener), "--users", str(self.data.users)]
        words += ["--open"] if self.open else []
        return ProcessSpec("schema-registry", self._waylog(*words))

    def _history_job(self, history: str) -> ProcessSpec:
        words = [
            "history", "run",
            "--bootstrap-servers", self.bootstrap_servers,
            "--out", history,
            "--places", str(self.data.places),
            "--places-interval", str(self.places_interval_s),
            *self.history_options,
        ]  # fmt: skip
        return ProcessSpec("history", self._waylog(*words), ready_timeout_s=_HISTORY_READY_S)
