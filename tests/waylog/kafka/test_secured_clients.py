"""Our own producer and reader where clients log in, speak TLS or seal values."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker_core.security.scram import BY_NAME, credential_from_password
from broker_core.server.runtime import Broker
from tests.certificates import Certificates
from tests.ports import reserved_ports
from tests.waylog.kafka.conftest import PASSWORD, USER, StartBroker, login, over_tls
from waylog.config import ConfigError
from waylog.kafka.batch_producer import BatchProducer
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.clients import AppendError, RecordPosition
from waylog.kafka.connection.properties import client_properties
from waylog.kafka.connection.security import connection_security
from waylog.kafka.fetched_records import FetchedRecord
from waylog.sealing.sealed_log import SealedLog
from waylog.sealing.sealing import MAGIC
from waylog.sealing.value_keys import KeyRing

LOGIN = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
BOTH = {"listeners": "SASL_SSL://127.0.0.1:0"}


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give a function that writes the property file which the environment names."""
    file = tmp_path / "client.properties"

    def write(properties: Mapping[str, str]) -> None:
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        monkeypatch.setenv("WAYLOG_KAFKA_CONFIG", str(file))

    return write


@asynccontextmanager
async def producing(broker: Broker, **more: Any) -> AsyncIterator[BatchProducer]:
    producer = BatchProducer(str(broker.endpoint), "test", asyncio.get_running_loop(), **more)
    try:
        yield producer
    finally:
        await producer.close(0)


class Taken:
    """Keeps what a reader hands over."""

    def __init__(self) -> None:
        self.records: list[FetchedRecord] = []
        self._more = asyncio.Event()

    def take(self, records: list[FetchedRecord]) -> None:
        self.records += records
        self._more.set()

    async def values(self, count: int) -> list[bytes | None]:
        """Return the values of all records once there are that many."""
        async with asyncio.timeout(60):
            while len(self.records) < count:
                self._more.clear()
                await self._more.wait()
        return [record.value() for record in self.records]


@asynccontextmanager
async def reading(broker: Broker, **more: Any) -> AsyncIterator[Taken]:
    taken = Taken()
    reader = BatchReader(
        *(str(broker.endpoint), "test", "four", asyncio.get_running_loop()),
        on_records=taken.take,
        **more,
    )
    reader.start()
    try:
        yield taken
    finally:
        await reader.close()


@pytest.mark.parametrize("how", ["certificate", "scram", "plain"])
async def test_what_is_appended_under_the_environments_properties_is_read_under_them(
    start_secured: StartBroker,
    certificates: Certificates,
    configured: Callable[..., None],
    how: str,
) -> None:
    if how == "certificate":
        own = str(certificates.make(common_name="gateway"))
        broker = await start_secured(listeners="SSL://127.0.0.1:0", ssl_client_auth="required")
        shown = {"ssl.keystore.type": "PEM", "ssl.keystore.location": own}
        configured(over_tls(shown, certificates))
    elif how == "scram":
        broker = await start_secured(**BOTH)
        configured(over_tls(login("SCRAM-SHA-512"), certificates))
    else:
        broker = await start_secured(**LOGIN)
        configured(login("PLAIN"))
    async with reading(broker) as taken, producing(broker) as producer:
        async with asyncio.timeout(60):
            positions = await asyncio.gather(
                *(producer.append("four", b"%d" % number, b"key") for number in range(5000))
            )
        assert [position.offset for position in positions] == list(range(5000))
        assert await taken.values(5000) == [b"%d" % number for number in range(5000)]


async def test_sessions_that_end_all_the_time_lose_repeat_and_reorder_nothing(
    start_secured: StartBroker,
) -> None:
    broker = await start_secured(**LOGIN, connections_max_reauth_ms="400")
    secured = {"security": connection_security(client_properties(login("SCRAM-SHA-256")))}
    loop = asyncio.get_running_loop()
    async with reading(broker, **secured) as taken, producing(broker, **secured) as producer:
        futures: list[asyncio.Future[RecordPosition]] = []
        until = loop.time() + 3
        async with asyncio.timeout(60):
            while loop.time() < until:
                number = len(futures)
                futures += [
                    producer.append("four", b"%d" % each, b"key")
                    for each in range(number, number + 20)
                ]
                await futures[-1]
            positions = await asyncio.gather(*futures)
        assert [position.offset for position in positions] == list(range(len(futures)))
        values = await taken.values(len(futures))
    assert values == [b"%d" % number for number in range(len(futures))]


async def test_a_broker_that_comes_back_gets_what_has_waited_over_a_new_login(
    start_secured: StartBroker, certificates: Certificates
) -> None:
    listener = {"listeners": f"SASL_SSL://127.0.0.1:{reserved_ports(1)[0]}"}
    broker = await start_secured(**listener)
    properties = over_tls(login("SCRAM-SHA-512"), certificates)
    secured = {"security": connection_security(client_properties(properties))}
    async with reading(broker, **secured) as taken, producing(broker, **secured) as producer:
        async with asyncio.timeout(60):
            await producer.append("four", b"0", b"key")
        await broker.close()
        waiting = [producer.append("four", b"%d" % each, b"key") for each in range(1, 100)]
        await start_secured(**listener)
        async with asyncio.timeout(60):
            await asyncio.gather(*waiting)
        assert await taken.values(100) == [b"%d" % number for number in range(100)]


async def test_who_is_not_let_in_says_why_and_goes_on_when_it_is(
    start_secured: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_secured(**LOGIN)
    for mechanism in BY_NAME.values():
        broker.scram_users.put(USER, mechanism, credential_from_password(mechanism, "another"))
    secured = {"security": connection_security(client_properties(login("SCRAM-SHA-256")))}
    with caplog.at_level(logging.DEBUG):
        async with reading(broker, **secured) as taken, producing(broker, **secured) as producer:
            waiting = producer.append("four", b"value", b"key")
            async with asyncio.timeout(60):
                # The reader tells it too.
                while producer.trouble is None or caplog.text.count(" does not let us in: ") < 2:
                    await asyncio.sleep(0.01)
            assert "does not let us in: the broker refuses the login" in producer.trouble
            assert not waiting.done()
            for mechanism in BY_NAME.values():
                credential = credential_from_password(mechanism, PASSWORD)
                broker.scram_users.put(USER, mechanism, credential)
            async with asyncio.timeout(60):
                await waiting
            assert producer.trouble is None
            assert await taken.values(1) == [b"value"]
    assert PASSWORD not in caplog.text


async def test_a_broker_with_a_wrong_certificate_gets_nothing(
    start_secured: StartBroker, certificates: Certificates, tmp_path: Path
) -> None:
    broker = await start_secured(**BOTH)
    properties = over_tls(login("PLAIN"), Certificates(tmp_path / "stranger"))
    security = connection_security(client_properties(properties))
    async with producing(broker, security=security, delivery_timeout_ms=500) as producer:
        with pytest.raises(AppendError, match="timed out"):
            async with asyncio.timeout(60):
                await producer.append("four", b"value")
        async with asyncio.timeout(60):
            words = "not of an authority that this client trusts"
            while words not in (producer.trouble or ""):
                await asyncio.sleep(0.01)
    assert broker.login_failures.total == 0


async def test_properties_that_cannot_be_kept_are_refused_before_anything_is_sent(
    configured: Callable[..., None],
) -> None:
    configured(login("PLAIN") | {"sasl.mechanism": "GSSAPI"})
    loop = asyncio.get_running_loop()
    with pytest.raises(ConfigError, match=r"sasl\.mechanism=GSSAPI"):
        BatchProducer("127.0.0.1:1", "test", loop)
    with pytest.raises(ConfigError, match=r"sasl\.mechanism=GSSAPI"):
        BatchReader("127.0.0.1:1", "test", "four", loop, on_records=print)


async def test_sealed_values_go_the_same_way_over_tls_and_a_login(
    start_secured: StartBroker, certificates: Certificates, configured: Callable[..., None]
) -> None:
    broker = await start_secured(**BOTH)
    configured(over_tls(login("SCRAM-SHA-512"), certificates))
    loop = asyncio.get_running_loop()
    ring = await asyncio.to_thread(KeyRing, str(broker.endpoint), bytes(range(32)))
    other = await asyncio.to_thread(KeyRing, str(broker.endpoint), bytes(range(32)))
    try:
        async with producing(broker) as producer:
            log = SealedLog(producer, ring, loop)
            appended = [log.append("four", b"%d" % number, b"ada/phone") for number in range(500)]
            async with asyncio.timeout(60):
                await asyncio.gather(*appended)
        async with reading(broker) as taken:
            assert all(value and value.startswith(MAGIC) for value in await taken.values(500))
        async with reading(broker, opened=other.open_messages) as taken:
            assert await taken.values(500) == [b"%d" % number for number in range(500)]
    finally:
        for each in (ring, other):
            await asyncio.to_thread(each.close)


async def test_a_reader_whose_leader_is_away_does_not_say_that_no_broker_answers(
    start_secured: StartBroker,
) -> None:
    closed = f"127.0.0.1:{reserved_ports(1)[0]}"
    broker = await start_secured(
        listeners="PLAINTEXT://127.0.0.1:0", advertised_listeners=f"PLAINTEXT://{closed}"
    )
    loop = asyncio.get_running_loop()
    reader = BatchReader(str(broker.endpoint), "test", "four", loop, on_records=Taken().take)
    reader.start()
    try:
        async with asyncio.timeout(60):
            while reader.trouble is None:
                await asyncio.sleep(0.01)
        assert reader.trouble == (
            "four-0 (and 3 more partitions) has no leader that answers: broker 0 at "
            f"{closed}: connection refused"
        )
        # The reason stays the true one when the brokers have been asked for it.
        await asyncio.sleep(0.5)
        assert "no Kafka broker answers" not in (reader.trouble or "")
    finally:
        await reader.close()


async def test_a_reader_that_may_not_read_its_topic_names_the_right(
    start_secured: StartBroker,
) -> None:
    broker = await start_secured(
        **LOGIN, authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    )
    reader = BatchReader(
        *(str(broker.endpoint), "test", "four", asyncio.get_running_loop()),
        on_records=Taken().take,
        security=connection_security(client_properties(login("PLAIN"))),
    )
    reader.start()
    try:
        async with asyncio.timeout(60):
            while reader.trouble is None:
                await asyncio.sleep(0.01)
        assert reader.trouble.startswith("topic four is forbidden: ")
    finally:
        await reader.close()
