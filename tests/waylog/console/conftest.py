"""The log on which the console tools are tried."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.apache_kafka import apache_kafka
from tests.contract.broker_process import BrokerProcess
from tests.forked_commands import ForkedCommands, forked_commands
from tests.waylog.console.terminal import MODULES, Terminal


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedCommands]:
    """Run the console's commands; they are many, and short."""
    with forked_commands(tmp_path_factory.mktemp("commands"), *MODULES) as running:
        yield running


@pytest.fixture(
    scope="module", params=["waylog", pytest.param("apache-kafka", marks=pytest.mark.kafka)]
)
def terminal(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    commands: ForkedCommands,
) -> Iterator[Terminal]:
    """Give a terminal for our broker, and one for Apache Kafka (-m kafka)."""
    if request.param == "apache-kafka":
        with apache_kafka() as servers:
            yield Terminal(servers, commands)
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    yield Terminal(broker.start(), commands)
    broker.stop()
