"""Strangers at a broker's TLS port that send nothing, or only part of a handshake."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest

from broker_core.configuration.config import BrokerConfig
from broker_core.protocol.definitions import API_VERSIONS
from broker_core.server.runtime import Broker, start_broker
from tests.attacks.strangers import STRANGER, Wish, connect_as, needs_root
from tests.broker_core.server.raw_client import request_frame
from tests.certificates import Certificates
from tests.event_loops import on_both_event_loops
from tests.tls_peer import TlsPeer

KAFKA: Final = request_frame(API_VERSIONS, 0, {})
ANSWER: Final = KAFKA[8:12]


class Starter:
    """Starts a broker with a TLS listener in the test's folder."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self._properties = {
            "listeners": "SECRET://127.0.0.1:0",
            "inter.broker.listener.name": "SECRET",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.broker),
            "sasl.enabled.mechanisms": "PLAIN",
            "plain.sasl.jaas.config": 'PlainLoginModule required user_anna="x";',
            "log.dirs": str(folder / "logs"),
        }

    @contextlib.asynccontextmanager
    async def __call__(self, protocol: str = "SSL", **properties: str) -> AsyncIterator[Broker]:
        given = self._properties | {"listener.security.protocol.map": f"SECRET:{protocol}"}
        given |= {name.replace("_", "."): value for name, value in properties.items()}
        broker = await start_broker(BrokerConfig.from_properties(given))
        try:
            yield broker
        finally:
            await broker.close()


@pytest.fixture
def start(tmp_path: Path, certificates: Certificates) -> Starter:
    return Starter(tmp_path, certificates)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def come(broker: Broker, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> TlsPeer:
    endpoint = broker.network.endpoints["SECRET"]
    return await TlsPeer.connect(endpoint.host, endpoint.port, version)


async def is_served(broker: Broker) -> bool:
    """Return whether a request sent with the end of the handshake is answered."""
    peer = await come(broker)
    try:
        peer.writer.write(peer.hello())
        await peer.shake_hands(KAFKA)
        return ANSWER in await peer.read(12)
    except ConnectionError:
        return False
    finally:
        await peer.close()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_ip"])
@on_both_event_loops
async def test_connections_that_say_nothing_count_from_accept_on(
    start: Starter, limit: str, protocol: str
) -> None:
    async with start(protocol, **{limit: "20"}) as broker:
        peers = [await come(broker) for _ in range(20)]
        for peer in peers[:10]:
            peer.writer.write(peer.hello()[:40])
        await eventually(lambda: broker.connections == 20)
        more = [await come(broker) for _ in range(10)]
        for peer in more:
            assert await peer.is_closed_by_peer()
        assert broker.connections == broker.network.limits.connections == 20
        assert broker.network.limits.refused == 10
        for peer in (*peers, *more):
            await peer.close()
        await eventually(lambda: broker.connections == broker.network.limits.connections == 0)
        assert await is_served(broker)


@on_both_event_loops
async def test_connections_that_say_nothing_end_when_there_was_time_enough(start: Starter) -> None:
    async with start(connection_setup_timeout_ms="300") as broker:
        for said in (0, 40):
            peer = await come(broker)
            peer.writer.write(peer.hello()[:said])
            async with asyncio.timeout(8):  # shorter than the ten seconds of a handshake alone
                assert await peer.is_closed_by_peer()
            await peer.close()
        await eventually(lambda: broker.connections == 0)


@on_both_event_loops
async def test_thousands_that_leave_in_the_middle_leave_nothing_behind(start: Starter) -> None:
    async with start() as broker:
        assert await is_served(broker)
        await eventually(lambda: broker.connections == 0)
        files = open_files()
        source = random.Random(4711)

        async def leave() -> None:
            peer = await come(broker)
            hello = peer.hello()
            said = source.choice(
                [b"", hello[:3], hello[:100], hello, hello, b"\x16" + hello, KAFKA]
            )
            peer.writer.write(said)
            for _ in range(source.randrange(4)):
                await asyncio.sleep(0)
            if source.random() < 0.5:
                peer.reset()
            await peer.close()

        for _ in range(15):
            await asyncio.gather(*(leave() for _ in range(80)))
            assert await is_served(broker)
        await eventually(lambda: broker.connections == broker.network.limits.connections == 0)
        assert open_files() <= files + 5


@needs_root
@on_both_event_loops
async def test_an_account_that_may_not_connect_is_told_before_any_handshake(start: Starter) -> None:
    async with start(local_accounts="self") as broker:
        port = broker.network.endpoints["SECRET"].port
        assert await asyncio.to_thread(connect_as, STRANGER, Wish(port, b"")) == [b""]
        assert broker.network.limits.refused == 1
        assert await is_served(broker)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@on_both_event_loops
async def test_a_new_connection_waits_for_its_rate_before_it_is_answered(
    start: Starter, version: ssl.TLSVersion
) -> None:
    async with start(max_connection_creation_rate="3") as broker:
        peers = [await come(broker, version) for _ in range(5)]
        for peer in peers:
            peer.writer.write(peer.hello())
        for peer in peers:
            await peer.shake_hands(KAFKA)
            assert ANSWER in await peer.read(12)
            await peer.close()


@on_both_event_loops
async def test_a_failed_handshake_is_said_in_one_line(
    start: Starter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with start() as broker:
        endpoint = broker.network.endpoints["SECRET"]

        def distrust() -> None:
            address = (endpoint.host, endpoint.port)
            context = ssl.create_default_context()
            with (
                socket.create_connection(address) as plain,
                pytest.raises(ssl.SSLCertVerificationError),
            ):
                context.wrap_socket(plain, server_hostname="localhost")

        await asyncio.to_thread(distrust)
        words = "the client does not accept this listener's certificate: unknown CA"
        await eventually(lambda: words in caplog.text)
        assert len([each for each in caplog.messages if words in each]) == 1


@on_both_event_loops
async def test_a_broker_that_stops_ends_handshakes(start: Starter) -> None:
    async with start() as broker:
        peers = [await come(broker) for _ in range(3)]
        peers[1].writer.write(peers[1].hello()[:40])
        peers[2].writer.write(peers[2].hello())
        await peers[2].reader.read(1)
        await eventually(lambda: broker.connections == 3)
        async with asyncio.timeout(9):
            await broker.close()
        assert broker.connections == 0
        for peer in peers:
            with contextlib.suppress(ConnectionError):
                assert await peer.is_closed_by_peer()
            await peer.close()
