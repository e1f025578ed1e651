from __future__ import annotations

import errno
import logging
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks.strangers import STRANGER, Squatter, needs_root
from tests.ports import reserved_ports
from waylog.config import Endpoint
from waylog.network.free_ports import FreePorts, PortTaken
from waylog.supervision.reserved_ports import ReservedPorts, is_held

ANY = Endpoint("127.0.0.1", 0)

needs_ipv6 = pytest.mark.skipif(
    not Path("/proc/net/if_inet6").exists(), reason="this machine has no IPv6"
)


def address_of(endpoint: Endpoint) -> tuple[str, int]:
    return endpoint.host, endpoint.port


def listening(endpoint: Endpoint) -> socket.socket:
    """Listen as asyncio does in a process of the platform."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind((endpoint.host, endpoint.port))
    server.listen()
    return server


def test_processes_of_the_same_account_share_a_held_port_one_after_the_other() -> None:
    with ReservedPorts() as ports:
        endpoint = ports.settle(ANY)
        for _ in range(3):
            with listening(endpoint) as server, socket.create_connection(address_of(endpoint)):
                connection, _ = server.accept()
                # The server closes first, so that it leaves a connection in TIME_WAIT.
                connection.close()


def test_a_held_port_refuses_connections_while_nobody_listens() -> None:
    with ReservedPorts() as ports:
        endpoint = ports.settle(ANY)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address_of(endpoint), 5)


def test_two_platforms_of_one_account_do_not_share_a_port() -> None:
    with ReservedPorts() as ports:
        endpoint = ports.settle(ANY)
        for other in (ReservedPorts(), FreePorts()):
            with pytest.raises(PortTaken) as refused:
                other.settle(endpoint)
            assert refused.value.errno == errno.EADDRINUSE
        with socket.socket() as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                plain.bind(address_of(endpoint))


def test_a_port_that_is_refused_takes_none_away_that_is_held() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, ReservedPorts() as ports:
        endpoint = ports.settle(ANY)
        with pytest.raises(PortTaken):
            ports.settle(Endpoint("127.0.0.1", other.getsockname()[1]))
        with pytest.raises(PortTaken):
            FreePorts().settle(endpoint)


def test_a_port_is_free_again_when_it_is_no_longer_held() -> None:
    with ReservedPorts() as ports:
        endpoint = ports.settle(ANY)
    assert FreePorts().settle(endpoint) == endpoint


def test_processes_know_which_ports_are_held_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with ReservedPorts() as ports:
        held = [ports.settle(ANY), ports.settle(ANY)]
        for name, value in ports.environment().items():
            monkeypatch.setenv(name, value)
        assert all(is_held(endpoint) for endpoint in held)
        assert not is_held(FreePorts().settle(ANY))
        assert not is_held(Endpoint("0.0.0.0", held[0].port))
        assert not is_held(Endpoint(ANY.host, held[0].port // 10))


@needs_ipv6
@pytest.mark.parametrize(
    ("host", "beside"),
    [("127.0.0.1", "::1"), ("0.0.0.0", "::1"), ("::1", "127.0.0.1"), ("::", "127.0.0.1")],
)
def test_of_loopback_the_same_port_of_the_other_family_is_held(host: str, beside: str) -> None:
    with ReservedPorts() as ports:
        port = ports.settle(Endpoint(host, 0)).port
        with pytest.raises(PortTaken) as refused:
            FreePorts().settle(Endpoint(beside, port))
        assert refused.value.errno == errno.EADDRINUSE


def test_all_addresses_of_a_name_are_held() -> None:
    with ReservedPorts() as ports:
        named = ports.settle(Endpoint("localhost", 0))
        found = socket.getaddrinfo(*address_of(named), type=socket.SOCK_STREAM)
        for family, *_, address in found:
            with socket.socket(family) as other, pytest.raises(OSError, match="in use"):
                other.bind(address)


def in_namespaces(kind: str, setup: str, program: str) -> tuple[str, str]:
    """Run a program in namespaces that a shell command has set up; return what it prints."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("there is no unshare (util-linux) or no ip (iproute2)")
    done = subprocess.run(
        [
            *("unshare", *kind.split(), "sh", "-c", f'{{ {setup}; }} || exit 99; exec "$@"', "sh"),
            *(sys.executable, "-c", program),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode == 99 or done.stderr.startswith("unshare:"):
        pytest.skip("no namespaces here")
    return done.stdout, done.stderr


@needs_root
def test_a_name_is_held_at_all_of_its_addresses_or_at_none(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("127.0.0.2 twice\n127.0.0.3 twice\n")
    program = (
        "import socket\n"
        "from waylog.config import Endpoint\n"
        "from waylog.network.free_ports import FreePorts, PortTaken\n"
        "from waylog.supervision.reserved_ports import ReservedPorts\n"
        "def is_free(host, port):\n"
        "    try: return bool(FreePorts().settle(Endpoint(host, port)))\n"
        "    except PortTaken: return False\n"
        "hosts = '127.0.0.2', '127.0.0.3'\n"
        "with ReservedPorts() as ports:\n"
        "    port = ports.settle(Endpoint('twice', 0)).port\n"
        "    print(*(is_free(host, port) for host in hosts))\n"
        "for taken in hosts:\n"
        "    with socket.create_server((taken, 0)) as other, ReservedPorts() as ports:\n"
        "        port = other.getsockname()[1]\n"
        "        try: ports.settle(Endpoint('twice', port))\n"
        "        except PortTaken: print(*(is_free(host, port) for host in hosts))\n"
    )
    # In the machine's own network another program could have the same port at one address.
    setup = f"ip link set lo up && mount --bind '{tmp_path / 'hosts'}' /etc/hosts"
    output, errors = in_namespaces("--net --mount", setup, program)
    assert errors == ""
    assert output.splitlines() == ["False False", "False True", "True False"]


@needs_root
def test_without_ipv6_nothing_is_said_of_it() -> None:
    program = (
        "import logging\n"
        "logging.basicConfig()\n"
        "from waylog.config import Endpoint\n"
        "from waylog.supervision.reserved_ports import ReservedPorts\n"
        "with ReservedPorts() as ports: print(ports.settle(Endpoint('127.0.0.1', 0)).host)\n"
    )
    switch = "/proc/sys/net/ipv6/conf/lo/disable_ipv6"
    setup = f"ip link set lo up && {{ test ! -e {switch} || echo 1 > {switch}; }}"
    assert in_namespaces("--net", setup, program) == ("127.0.0.1\n", "")


NO_IPV6 = (
    "ip link set lo up && for each in all lo; do "
    "switch=/proc/sys/net/ipv6/conf/$each/disable_ipv6; test ! -e $switch || echo 1 > $switch; done"
)


@needs_root
def test_a_name_that_has_an_address_of_ipv6_too_is_served_without_ipv6(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n::1 localhost only6\n")
    program = (
        "import asyncio, uvloop\n"
        "from pathlib import Path\n"
        "from broker_core.configuration.config import BrokerConfig\n"
        "from broker_core.server.runtime import start_broker\n"
        "from gateway.http.listener import start_http\n"
        "from geoservice.web.listener import listen\n"
        "from tests.gateway.mqtt.in_memory import Platform\n"
        "from tests.gateway.parts import parts\n"
        "from waylog.config import Endpoint\n"
        "from waylog.network.connection_pool import ConnectionPool\n"
        "from waylog.network.free_ports import PortTaken\n"
        "from waylog.supervision.reserved_ports import ReservedPorts\n"
        "ANY = Endpoint('localhost', 0)\n"
        "async def serve():\n"
        f"    folder = Path({str(tmp_path)!r})\n"
        "    broker = await start_broker(BrokerConfig.from_properties({\n"
        "        'listeners': 'PLAINTEXT://localhost:0', 'metrics.listener': 'localhost:0',\n"
        "        'log.dirs': str(folder / 'logs')}))\n"
        "    await broker.close()\n"
        "    async with parts(folder) as services:\n"
        "        server = await start_http(ANY, services, 'test')\n"
        "        await server.close()\n"
        "    await listen(asyncio.Protocol, ANY, ConnectionPool(1)).close()\n"
        "    async with Platform().listening(endpoint=ANY): pass\n"
        "with ReservedPorts() as ports:\n"
        "    print(ports.settle(ANY).host)\n"
        "    try: ports.settle(Endpoint('only6', 0))\n"
        "    except PortTaken as error: print(error.strerror)\n"
        "asyncio.run(serve())\n"
        "uvloop.run(serve())\n"
        "print('all serve')\n"
    )
    setup = f"mount --bind '{tmp_path / 'hosts'}' /etc/hosts && {NO_IPV6}"
    output, errors = in_namespaces("--net --mount", setup, program)
    assert output.splitlines()[::2] == ["localhost", "all serve"], errors


def test_a_host_that_has_no_address_is_refused_in_words() -> None:
    with ReservedPorts() as ports, pytest.raises(PortTaken) as refused:
        ports.settle(Endpoint("no-such-host.invalid", 8080))
    assert refused.value.strerror


@needs_root
def test_no_other_account_gets_a_held_port_whether_a_process_listens_or_not() -> None:
    with ReservedPorts() as ports:
        endpoint = ports.settle(ANY)
        found = [*taken_by_a_stranger(endpoint)]
        with listening(endpoint):
            found += taken_by_a_stranger(endpoint)
        found += taken_by_a_stranger(endpoint)
    assert found == []
    assert taken_by_a_stranger(endpoint)


def taken_by_a_stranger(endpoint: Endpoint) -> list[str]:
    with Squatter(STRANGER, [endpoint.port]) as squatter:
        return squatter.stop()


@needs_ipv6
def test_where_localhost_leads_to_another_program_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    [port] = reserved_ports(1)  # others may have that of an outgoing connection for IPv4
    with (
        socket.create_server(("::1", port), family=socket.AF_INET6),
        caplog.at_level(logging.WARNING),
        ReservedPorts() as ports,
    ):
        ports.settle(Endpoint("127.0.0.1", port))
    assert f"[::1]:{port} is in use" in caplog.text
