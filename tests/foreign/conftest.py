"""One broker for all foreign clients."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.contract.broker_process import BrokerProcess


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give our broker's address, or that in WAYLOG_TEST_BOOTSTRAP_SERVERS."""
    given = os.environ.get("WAYLOG_TEST_BOOTSTRAP_SERVERS")
    if given:
        yield given
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), auto_create_topics_enable="true")
    yield broker.start()
    broker.stop()
