"""The log on which the console tools are tried."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.apache_kafka import apache_kafka
from tests.contract.broker_process import BrokerProcess
from tests.waylog.console.terminal import Terminal


@pytest.fixture(
    scope="module", params=["waylog", pytest.param("apache-kafka", marks=pytest.mark.kafka)]
)
def terminal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Terminal]:
    """Give a terminal for our broker, and one for Apache Kafka (-m kafka)."""
    if request.param == "apache-kafka":
        with apache_kafka() as servers:
            yield Terminal(servers)
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    yield Terminal(broker.start())
    broker.stop()
