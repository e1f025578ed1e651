"""Another account of the machine connects to the brokers' ports: it gets no answer."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.definitions import API_VERSIONS, FETCH, METADATA, PRODUCE
from broker_core.protocol.definitions.vote import VOTE
from tests.attacks.strangers import FRIEND, STRANGER, Wish, connect_as, needs_root
from tests.broker_core.server.raw_client import fetch_body, produce_body, request_frame
from tests.certificates import Certificates
from tests.contract.broker_process import BrokerProcess
from waylog.config import Endpoint, load_properties, save_properties
from waylog.network.free_ports import FreePorts
from waylog.supervision.broker_processes import BrokerProcesses

pytestmark = needs_root

TOPIC = "t"
TIMEOUT_S = 60.0
BATCH = bytes(build_batch([(1000, b"k", b"of a stranger", ())]))
PRODUCED = request_frame(PRODUCE, 8, produce_body(TOPIC, BATCH))
REQUESTS = {
    "ApiVersions": request_frame(API_VERSIONS, 0, {}),
    "Metadata": request_frame(METADATA, 4, {"topics": None}),
    "Produce": PRODUCED,
    "Fetch": request_frame(FETCH, 11, fetch_body(TOPIC, 0)),
}


def await_condition(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def create_topic(servers: str) -> None:
    """Create a topic as root, with an ordinary Kafka client."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(TOPIC, 1, -1)]).values():
        future.result(TIMEOUT_S)


def end_offset(servers: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=TIMEOUT_S)
    finally:
        consumer.close()
    return int(end)


class Brokers:
    """The brokers of `waylog up`, started as it starts them."""

    def __init__(self, folder: Path, number: int) -> None:
        ports = FreePorts()
        first = ports.settle(Endpoint("127.0.0.1", 0))
        self.planned = BrokerProcesses.plan(folder, first, number, ports)
        self.logs = [folder / f"{spec.name}.log" for spec in self.planned.specs()]
        self.running = []
        for spec, log in zip(self.planned.specs(), self.logs, strict=True):
            with log.open("wb") as output:
                self.running.append(subprocess.Popen(spec.argv, stdout=output, stderr=output))
        self.ports = {
            name: int(port)
            for path in sorted(folder.glob("*/server.properties"))
            for name, port in re.findall(
                r"(\w+)://127\.0\.0\.1:(\d+)", load_properties(path)["listeners"]
            )
            for name in [f"{path.parent.name} {name}"]
        }
        await_condition(
            lambda: all("serves" in log.read_text(encoding="utf-8") for log in self.logs),
            "the brokers serve",
        )

    def said(self) -> str:
        return "".join(log.read_text(encoding="utf-8") for log in self.logs)

    def stop(self) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait(TIMEOUT_S)


@pytest.fixture(params=[1, 3], ids=["one broker", "three brokers"])
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Brokers]:
    running = Brokers(tmp_path, request.param)
    yield running
    running.stop()


def test_another_account_is_answered_nothing_by_any_listener_of_the_platforms_brokers(
    brokers: Brokers,
) -> None:
    servers = brokers.planned.bootstrap_servers
    create_topic(servers)
    requests = REQUESTS | {"Vote": request_frame(VOTE, 2, {"cluster_id": None, "topics": []})}
    asked = [(name, what) for name in brokers.ports for what in requests]
    wishes = [Wish(brokers.ports[name], requests[what]) for name, what in asked]
    answers = dict(zip(asked, connect_as(STRANGER, *wishes), strict=True))
    assert {each for each, answer in answers.items() if answer} == set()
    assert end_offset(servers) == 0
    controllers = [name for name in brokers.ports if "CONTROLLER" in name]
    assert len(controllers) == (0 if len(brokers.running) == 1 else 3)
    for name, port in brokers.ports.items():
        (answer,) = connect_as(0, Wish(port, REQUESTS["ApiVersions"]))
        assert answer, name
    await_condition(lambda: f"uid {STRANGER}" in brokers.said(), "the log names the account")


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    started: list[BrokerProcess] = []

    def start(**properties: str) -> BrokerProcess:
        broker = BrokerProcess(tmp_path, **properties)
        broker.start()
        started.append(broker)
        create_topic(broker.bootstrap_servers)
        return broker

    yield start
    for broker in started:
        broker.stop()


def port_of(broker: BrokerProcess) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])


@contextmanager
def stopped(broker: BrokerProcess) -> Iterator[None]:
    """Suspend a broker: connections wait in the backlog, where their account cannot be checked."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def test_accounts_that_are_named_may_connect_and_others_may_not(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    port = port_of(start_broker(local_accounts=f"{FRIEND}"))
    wish = Wish(port, REQUESTS["Metadata"])
    assert connect_as(FRIEND, wish)[0]
    assert connect_as(0, wish)[0]
    assert not connect_as(STRANGER, wish)[0]


def test_each_listener_may_have_accounts_of_its_own_with_tls_too(tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path,
        listeners="PLAINTEXT://127.0.0.1:0,OTHERS://127.0.0.1:0,SSL://127.0.0.1:0",
        listener_security_protocol_map="OTHERS:PLAINTEXT",
        local_accounts="self",
        listener_name_others_local_accounts="all",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(Certificates(tmp_path / "certificates").broker),
    )
    broker.start()
    try:
        pattern = re.compile(r"listener (\w+) at 127\.0\.0\.1:(\d+)")
        await_condition(lambda: len(pattern.findall("".join(broker.output))) == 2, "it serves")
        ports = {name: int(port) for name, port in pattern.findall("".join(broker.output))}
        wishes = [
            Wish(port_of(broker), REQUESTS["Metadata"]),
            Wish(ports["OTHERS"], REQUESTS["Metadata"]),
            Wish(ports["SSL"], REQUESTS["Metadata"], tls=True),
        ]
        answers = [bool(answer) for answer in connect_as(STRANGER, *wishes)]
        assert answers == [False, True, False]
        assert all(connect_as(0, *wishes))
    finally:
        broker.stop()


def test_who_has_gone_before_the_broker_looks_is_not_taken_for_root(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(local_accounts="self")
    request = request_frame(PRODUCE, 8, produce_body(TOPIC, BATCH, acks=0))
    endings = ("close", "shut down", "reset", "linger", "short FIN_WAIT_2")
    wishes = [Wish(port_of(broker), request, ending=ending) for ending in endings]
    with stopped(broker):
        connect_as(STRANGER, *wishes * 50)
    # Again with a broker that accepts connections as fast as it can.
    connect_as(STRANGER, *wishes * 100)
    assert end_offset(broker.bootstrap_servers) == 0


def test_another_familys_socket_and_other_addresses_of_loopback_are_the_accounts_too(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    port = FreePorts().settle(Endpoint("127.0.0.1", 0)).port
    start_broker(
        listeners=f"PLAINTEXT://:{port}",
        advertised_listeners=f"PLAINTEXT://127.0.0.1:{port}",
        local_accounts=f"{FRIEND}",
    )
    request = REQUESTS["Metadata"]
    ways = [
        Wish(port, request),
        Wish(port, request, source=("127.0.0.2", 0)),
        Wish(port, request, host="127.0.0.3"),
        Wish(port, request, host="::ffff:127.0.0.1", family=socket.AF_INET6),
    ]
    if socket.has_ipv6 and Path("/proc/net/if_inet6").exists():
        ways.append(Wish(port, request, host="::1", family=socket.AF_INET6))
    assert all(connect_as(FRIEND, *ways))
    ways.append(Wish(port, request, device="lo"))
    assert not any(connect_as(STRANGER, *ways))


@pytest.fixture
def networks() -> Iterator[tuple[str, str]]:
    """Two network namespaces with a virtual cable: one has 10.213.9.1 and .2, the other .3."""
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` (iproute2)")
    here, there = (f"wl{os.getpid()}-{side}" for side in ("a", "b"))

    def ip(*words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no network namespaces here: {done.stderr.strip()}")

    try:
        ip("netns", "add", here)
        ip("netns", "add", there)
        cable = ("type", "veth", "peer", "name", "eth0", "netns", there)
        ip("-n", here, "link", "add", "eth0", *cable)
        for space, hosts in ((here, (1, 2)), (there, (3,))):
            for host in hosts:
                ip("-n", space, "address", "add", f"10.213.9.{host}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", space, "link", "set", device, "up")
        yield here, there
    finally:
        for space in (here, there):
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)


def test_by_every_address_of_the_machine_it_is_the_same_account_and_from_elsewhere_none(
    networks: tuple[str, str], tmp_path: Path
) -> None:
    here, there = networks
    config = tmp_path / "server.properties"
    properties = {
        "listeners": "PLAINTEXT://10.213.9.1:9092,LOOPBACK://127.0.0.1:9093",
        "listener.security.protocol.map": "LOOPBACK:PLAINTEXT",
        "log.dirs": str(tmp_path / "logs"),
        "local.accounts": f"{FRIEND}",
        "num.partitions": "1",
    }
    save_properties(config, properties)
    log = tmp_path / "log"
    words = [sys.executable, "-m", "waylog.cli", "broker", "--config", str(config)]
    with log.open("wb") as output:
        broker = subprocess.Popen(["ip", "netns", "exec", here, *words], stderr=output)
    try:
        await_condition(lambda: "LOOPBACK at" in log.read_text(encoding="utf-8"), "it serves")
        request = REQUESTS["Metadata"]
        outside = Wish(9092, request, host="10.213.9.1")
        second = ("10.213.9.2", 0)
        ways = [
            outside,
            replace(outside, source=second),
            replace(outside, source=("127.0.0.1", 0)),
            Wish(9093, request),
            Wish(9093, request, source=second),
        ]
        assert all(connect_as(FRIEND, *ways, space=here))
        # A socket that is bound to a device cannot be found by its addresses alone.
        ways += [
            replace(outside, device="eth0"),
            replace(outside, source=second, device="eth0"),
            Wish(9093, request, device="lo"),
        ]
        assert not any(connect_as(STRANGER, *ways, space=here))
        assert connect_as(STRANGER, outside, space=there)[0]
    finally:
        broker.terminate()
        broker.wait(TIMEOUT_S)


def test_the_next_one_at_the_same_port_does_not_vouch_for_the_one_before(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(local_accounts="self")
    port = port_of(broker)
    sources = FreePorts()
    for _ in range(20):
        source = ("127.0.0.1", sources.settle(Endpoint("127.0.0.1", 0)).port)
        with stopped(broker):
            connect_as(STRANGER, Wish(port, PRODUCED, source=source, ending="reset"))
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            connection.bind(source)
            connection.connect(("127.0.0.1", port))
        with connection:
            connection.settimeout(TIMEOUT_S)
            connection.sendall(REQUESTS["ApiVersions"])
            assert connection.recv(100)
    assert end_offset(broker.bootstrap_servers) == 0


def test_refusals_are_logged_with_what_to_change_and_do_not_fill_the_log(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(local_accounts="self")
    began = time.monotonic()
    connect_as(STRANGER, *[Wish(port_of(broker), REQUESTS["Metadata"])] * 100)

    def lines() -> list[str]:
        return [line for line in broker.output if "is refused" in line]

    await_condition(lines, "a line in the log")
    assert len(lines()) <= 1 + (time.monotonic() - began) / 10
    assert re.search(
        rf"127\.0\.0\.1:\d+ is refused by listener PLAINTEXT: account uid {STRANGER} is not among "
        r"local\.accounts=self; listener\.name\.plaintext\.local\.accounts, or local\.accounts",
        lines()[0],
    )


def test_the_brokers_own_account_may_connect(tmp_path: Path) -> None:
    """Root starts the other brokers: this one changes to another account before anything else."""
    program = (
        "import encodings.ascii, encodings.idna, importlib, os, pkgutil, sys\n"
        "import broker_core, uvloop, waylog.cli\n"
        # Imported now, while this folder can still be read.
        "for module in pkgutil.walk_packages(broker_core.__path__, 'broker_core.'):\n"
        "    importlib.import_module(module.name)\n"
        f"os.setgroups([]); os.setgid({FRIEND}); os.setuid({FRIEND})\n"
        "sys.exit(waylog.cli.main(sys.argv[1:]))"
    )
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    os.chown(folder, FRIEND, FRIEND)
    words = [
        *(
            "--override",
            f"log.dirs={folder}/logs",
            "--override",
            "listeners=PLAINTEXT://127.0.0.1:0",
        ),
        *("--override", "local.accounts=self"),
    ]
    config = folder / "server.properties"
    config.touch()
    os.chown(config, FRIEND, FRIEND)
    log = tmp_path / "log"
    with log.open("wb") as output:
        broker = subprocess.Popen(
            [sys.executable, "-c", program, "broker", "--config", str(config), *words],
            stderr=output,
            cwd="/",
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        )
    try:
        pattern = re.compile(r"serves 127\.0\.0\.1:(\d+)")
        await_condition(
            lambda: pattern.search(log.read_text(encoding="utf-8")), "the broker serves"
        )
        found = pattern.search(log.read_text(encoding="utf-8"))
        assert found is not None
        wish = Wish(int(found[1]), REQUESTS["Metadata"])
        assert connect_as(FRIEND, wish)[0]
        assert connect_as(0, wish)[0]
        assert not connect_as(STRANGER, wish)[0]
    finally:
        broker.terminate()
        broker.wait(TIMEOUT_S)
        subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_where_accounts_look_alike_none_of_them_may_connect(tmp_path: Path) -> None:
    """Only root and the service's own account are mapped, as under systemd's PrivateUsers=."""
    words = ["unshare", "--user", "--map-root-user"]
    if not shutil.which("unshare") or subprocess.run([*words, "true"], check=False).returncode:
        pytest.skip("no user namespaces here")
    config, log = tmp_path / "server.properties", tmp_path / "log"
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "logs")}
    save_properties(config, properties | {"local.accounts": "self"})
    words += [sys.executable, "-m", "waylog.cli", "broker", "--config", str(config)]
    with log.open("wb") as output:
        broker = subprocess.Popen(words, stderr=output)
    try:
        pattern = re.compile(r"serves 127\.0\.0\.1:(\d+)")
        await_condition(lambda: pattern.search(log.read_text(encoding="utf-8")), "it serves")
        found = pattern.search(log.read_text(encoding="utf-8"))
        assert found is not None
        wish = Wish(int(found[1]), REQUESTS["Metadata"])
        assert connect_as(0, wish)[0]
        assert not connect_as(STRANGER, wish)[0]
        await_condition(
            lambda: "as which this user namespace has all accounts" in log.read_text("utf-8"),
            "the log says so",
        )
    finally:
        broker.terminate()
        broker.wait(TIMEOUT_S)
