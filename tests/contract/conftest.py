"""The Kafka under test: our broker, Apache Kafka (-m kafka), or the one that
WAYLOG_TEST_BOOTSTRAP_SERVERS names.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.apache_kafka import apache_kafka
from tests.contract.broker_process import BrokerProcess
from waylog.kafka.group_membership import leave_group

_GIVEN = os.environ.get("WAYLOG_TEST_BOOTSTRAP_SERVERS")
_BROKERS = (
    ["given"] if _GIVEN else ["waylog", pytest.param("apache-kafka", marks=pytest.mark.kafka)]
)
#: librdkafka's messages about connections go to the test's log, not to the terminal.
_LOGGER = logging.getLogger("librdkafka")


@pytest.fixture(scope="session", params=_BROKERS)
def bootstrap_servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Give the bootstrap servers of the broker under test."""
    if request.param == "given":
        assert _GIVEN is not None
        yield _GIVEN
    elif request.param == "apache-kafka":
        with apache_kafka() as servers:
            yield servers
    else:
        broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
        broker.start()
        yield broker.bootstrap_servers
        assert broker.stop() == 0, "".join(broker.output)


@pytest.fixture
def admin(bootstrap_servers: str) -> AdminClient:
    """Give confluent-kafka's admin client."""
    return AdminClient({"bootstrap.servers": bootstrap_servers}, logger=_LOGGER)


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """Create a new topic of three partitions; give its name."""
    return make_topic()


@pytest.fixture
def make_topic(admin: AdminClient) -> Callable[..., str]:
    """Give a function that creates topics under unused names."""

    def make(partitions: int = 3, **config: str) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, partitions, 1, config=settings)
        admin.create_topics([new])[name].result(60)
        # The controller knows the topic now; a broker learns of it a moment later.
        deadline = time.monotonic() + 60
        while not _is_led(admin, name):
            assert time.monotonic() < deadline, f"{name} has no leaders"
            time.sleep(0.02)
        return name

    return make


def _is_led(admin: AdminClient, name: str) -> bool:
    topic = admin.list_topics(name, timeout=60).topics[name]
    return topic.error is None and all(each.leader >= 0 for each in topic.partitions.values())


@pytest.fixture
def producer(bootstrap_servers: str) -> Callable[..., Producer]:
    """Give a function that creates confluent-kafka producers; options have `_` for a dot."""

    def make(**options: Any) -> Producer:
        settings = {key.replace("_", "."): value for key, value in options.items()}
        return Producer(
            {"bootstrap.servers": bootstrap_servers, "linger.ms": 2} | settings, logger=_LOGGER
        )

    return make


class _Subscriber(Consumer):
    """A consumer that remembers whether it has subscribed."""

    has_subscribed = False

    def subscribe(self, *arguments: Any, **options: Any) -> None:
        self.has_subscribed = True
        super().subscribe(*arguments, **options)


@pytest.fixture
def consumer(bootstrap_servers: str) -> Iterator[Callable[..., Consumer]]:
    """Give a function that creates consumers, and close them; None leaves a setting out."""
    made: list[_Subscriber] = []

    def make(**options: Any) -> Consumer:
        settings = {key.replace("_", "."): value for key, value in options.items()}
        given = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"group-{uuid.uuid4().hex[:12]}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # Longer than a process may stand still: a member that is thrown out reads again.
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 500,
        } | settings
        each = _Subscriber(
            {name: value for name, value in given.items() if value is not None}, logger=_LOGGER
        )
        made.append(each)
        return each

    yield make
    for each in made:
        with suppress(RuntimeError):  # the test has closed it
            leave_group(each) if each.has_subscribed else each.close()


@pytest.fixture
def group_id() -> str:
    """Give a group id that was not used before."""
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def member(consumer: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function that creates consumers of the new protocol (it has no client timeouts)."""

    def make(**options: Any) -> Any:
        return consumer(
            group_protocol="consumer",
            session_timeout_ms=None,
            heartbeat_interval_ms=None,
            **options,
        )

    return make
