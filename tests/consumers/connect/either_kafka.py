"""Our broker or Apache Kafka, for tests that pass on both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.apache_kafka import apache_kafka
from tests.contract.broker_process import BrokerProcess

WAYLOG: Final = "waylog"
APACHE_KAFKA: Final = "apache-kafka"
#: For the parameters of a fixture.
BOTH: Final = [WAYLOG, pytest.param(APACHE_KAFKA, marks=pytest.mark.kafka)]


@contextmanager
def running_log(name: str, folder: Path) -> Iterator[str]:
    """Run one of both, which creates topics; give its bootstrap servers."""
    if name == APACHE_KAFKA:
        with apache_kafka(more={"auto_create_topics_enable": "true"}) as address:
            yield address
        return
    broker = BrokerProcess(folder, auto_create_topics_enable="true")
    yield broker.start()
    broker.stop()
