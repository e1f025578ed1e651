"""The options that `waylog up` passes to the processes it starts."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from tests.command_help import help_of
from tests.consumers.running import Broker
from waylog.cli import CommandError
from waylog.config import ConfigError, DataDirectory, load_properties
from waylog.extras import EXTRAS
from waylog.network.free_ports import FreePorts
from waylog.supervision.platform_plan import PlatformPlan
from waylog.supervision.platform_processes import LISTENERS, PlatformProcesses
from waylog.supervision.reserved_ports import ReservedPorts
from waylog.supervision.up import add_arguments, check_start


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    free = ("--http", "127.0.0.1:0", "--mqtt", "127.0.0.1:0", "--kafka", "127.0.0.1:0")
    return parser.parse_args([*free, *words])


def gateway_words(folder: Path, *words: str) -> list[str]:
    plan = PlatformPlan.of(options(*words), DataDirectory(folder), FreePorts())
    return list(PlatformProcesses(plan).gateway(1).argv)


def test_what_is_said_about_proxies_and_push_reaches_the_gateway(tmp_path: Path) -> None:
    proxies = ("--trusted-proxy", "10.0.0.0/8", "--trusted-proxy", "::1", "--proxy-protocol")
    contact = ("--push-contact", "mailto:ops@example.org")
    words = gateway_words(tmp_path, *proxies, *contact)
    start = words.index("--trusted-proxy")
    assert tuple(words[start : start + len(proxies) + 2]) == proxies + contact


def test_names_and_who_reads_metrics_reach_the_gateway(tmp_path: Path) -> None:
    hosts = ("--host", "map.example", "--host", "map.example:8443")
    words = gateway_words(tmp_path, *hosts, "--metrics-access", "user")
    start = words.index("--host")
    assert tuple(words[start : start + 6]) == (*hosts, "--metrics-access", "user")
    assert words[words.index("--metrics-token-file") + 1] == str(tmp_path / "metrics.token")


def test_base_maps_of_other_servers_reach_the_gateway(tmp_path: Path) -> None:
    words = gateway_words(tmp_path)
    assert not [word for word in words if word.startswith(("--map", "--satellite"))]
    given = ("--map-url=https://a.example/{z}/{x}/{y}.png", "--map-attribution=-me")
    pictures = ("--satellite-url=https://b.example/{z}/{x}/{y}.jpg", "--satellite-attribution=you")
    words = gateway_words(tmp_path, *given, *pictures)
    assert {*given, *pictures} <= set(words)


def test_other_options_of_the_gateway_are_passed_on_as_words(tmp_path: Path) -> None:
    words = gateway_words(tmp_path, "--gateway-options=--tls-key 'my key.pem'")
    assert words[words.index("--tls-key") + 1] == "my key.pem"
    with pytest.raises(ConfigError, match="--gateway-options"):
        gateway_words(tmp_path, "--gateway-options='")


def test_topologies_are_one_process_with_what_else_it_is_told(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    for given, topologies in (
        ([], ("geofences",)),
        (["--open"], ()),
        (["--streams", "none"], ()),
    ):
        plan = PlatformPlan.of(options(*given), data, FreePorts())
        assert plan.streams == topologies
        names = [each.name for each in PlatformProcesses(plan).beside_brokers()]
        assert ("streams" in names) == bool(topologies)
    more = "--streams-options=--property speed.limit_kmh=100"
    plan = PlatformPlan.of(options("--streams", "speed, trips", more), data, FreePorts())
    [spec] = [each for each in PlatformProcesses(plan).beside_brokers() if each.name == "streams"]
    words = list(spec.argv)
    begin = words.index("streams")
    assert words[begin : begin + 4] == ["streams", "run", "speed", "trips"]
    assert words[words.index("--bootstrap-servers") + 1] == plan.bootstrap_servers
    assert words[-2:] == ["--property", "speed.limit_kmh=100"]


def test_forwardings_are_sent_by_one_process_that_does_not_reach_the_platform(
    tmp_path: Path,
) -> None:
    more = "--forwarding-options=--forwarding-networks 192.168.1.0/24"
    given = options("--forwarding", "--brokers", "2", more)
    plan = PlatformPlan.of(given, DataDirectory(tmp_path), FreePorts())
    [spec] = [
        each for each in PlatformProcesses(plan).beside_brokers() if each.name == "forwarding"
    ]
    words = list(spec.argv)
    refused = words[words.index("--refused-ports") + 1].split(",")
    assert plan.brokers is not None
    brokers = [
        each
        for broker in plan.brokers.brokers
        for each in (broker.listener, broker.metrics, broker.controller)
        if each is not None
    ]
    assert len(brokers) == 6
    served = [plan.http, plan.mqtt, plan.geo_http, *brokers]
    assert {str(each.port) for each in served} == set(refused)
    assert words[-2:] == ["--forwarding-networks", "192.168.1.0/24"]


def test_no_forwarding_reaches_what_other_options_have_listen(tmp_path: Path) -> None:
    tls = "--gateway-options=--mqtts 127.0.0.1:18883 --tls-certificate c --tls-key k"
    given = options("--forwarding", tls, "--schema-registry", "127.0.0.1:0")
    plan = PlatformPlan.of(given, DataDirectory(tmp_path), FreePorts())
    assert plan.schema_registry is not None
    words = list(PlatformProcesses(plan).forwarding().argv)
    refused = words[words.index("--refused-ports") + 1].split(",")
    assert {"18883", str(plan.schema_registry.port)} <= set(refused)
    any_port = "--gateway-options=--mqtts 127.0.0.1:0 --tls-certificate c --tls-key k"
    plan = PlatformPlan.of(options("--forwarding", any_port), plan.data, FreePorts())
    with pytest.raises(ConfigError, match=r"--mqtts 127\.0\.0\.1:0: with --forwarding a port"):
        PlatformProcesses(plan).forwarding()


@pytest.mark.parametrize(
    "words",
    [
        *("gateway", "geo serve", "resolver", "streams run", "forwarding run", "history run"),
        "schema-registry",
    ],
)
def test_each_option_to_listen_is_one_that_forwardings_are_kept_from(words: str) -> None:
    found = re.findall(r"^ +--([\w-]+) H:P", help_of(words.split()), re.MULTILINE)
    assert set(found) == set(LISTENERS.get(words.split(maxsplit=1)[0], ()))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--forwarding", "--forwarding-options=--refused-ports 1"), "decides about --refused"),
        (("--forwarding", "--forwarding-options=--forwarding-networks x"), "is not a network"),
        (("--forwarding-options=--group x",), "--forwarding-options is for forwardings"),
        (("--streams", "tripps"), "there is no topology tripps"),
        (("--streams", "speed,"), "--streams: names with commas between are expected"),
        (("--streams", "speed", "--streams-options=trips"), "unrecognized arguments: trips"),
        (("--streams", "speed", "--streams-options=--module x.py"), "--module x.py: there is no"),
        (("--streams", "speed", "--streams-options=--property x=1"), "has no such property"),
        (("--streams-options=--property x=1",), "--streams-options is for topologies"),
    ],
)
def test_options_with_a_mistake_are_refused_before_anything_starts(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    data = DataDirectory(tmp_path / "data")
    given = options("--no-history", *words)
    with ReservedPorts() as ports, pytest.raises(ConfigError, match=message):
        check_start(given, data)
        PlatformProcesses(PlatformPlan.of(given, data, ports)).check(ports)


@pytest.mark.parametrize(
    ("words", "accounts"),
    [
        ((), "self"),
        (("--open",), "self"),
        (("--local-accounts", "all"), "all"),
        (("--local-accounts", "root,4711", "--local-accounts", "4712"), "root,4711,4712"),
    ],
)
@pytest.mark.parametrize("brokers", ["1", "3"])
def test_brokers_let_no_other_account_in_unless_it_is_named(
    tmp_path: Path, words: tuple[str, ...], accounts: str, brokers: str
) -> None:
    data = DataDirectory(tmp_path)
    plan = PlatformPlan.of(options("--brokers", brokers, *words), data, FreePorts())
    assert plan.brokers is not None
    specs = plan.brokers.specs()
    assert len(specs) == int(brokers)
    for spec in specs:
        assert load_properties(Path(spec.argv[-1]))["local.accounts"] == accounts


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--local-accounts", "no-such"), "--local-accounts: this machine has no account no-such"),
        (("--local-accounts", ""), "--local-accounts: a list is expected"),
    ],
)
def test_a_wrong_list_of_accounts_is_refused_before_anything_starts(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_start(options(*words), DataDirectory(tmp_path))


def test_without_spark_the_other_engine_is_named_and_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXTRAS, "spark", ("no_such_module",))
    data = DataDirectory(tmp_path)
    with ReservedPorts() as ports:
        plan = PlatformPlan.of(options("--data", str(tmp_path)), data, ports)
        with pytest.raises(CommandError, match=r"waylog\[spark\]', or choose --engine ar") as hint:
            PlatformProcesses(plan).check(ports)
    assert "--history-options='--engine arrow', or --no-history" in str(hint.value)
    with ReservedPorts() as ports:
        words = ("--data", str(tmp_path), "--history-options=--engine arrow")
        PlatformProcesses(PlatformPlan.of(options(*words), data, ports)).check(ports)


def test_options_of_brokers_that_are_not_started_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(tmp_path)
    try:
        words = ("--bootstrap-servers", broker.address, "--brokers", "3", "--no-history")
        check_start(options(*words), DataDirectory(tmp_path / "data"))
    finally:
        broker.kill()
    assert "--brokers 3 has no effect" in caplog.text
    assert "--kafka 127.0.0.1:0 has no effect" in caplog.text
