"""What a service says that waits for its brokers."""

from __future__ import annotations

import logging
import socket
import threading

import pytest

from waylog.free_ports import free_ports
from waylog.kafka_reach import say_when_nobody_answers


def said(bootstrap_servers: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level(logging.WARNING, "waylog.kafka_reach"):
        say_when_nobody_answers(bootstrap_servers)
        for thread in threading.enumerate():
            if thread.name == "reach":
                thread.join(30)
    return caplog.messages


def test_a_service_says_soon_that_it_waits_for_a_broker(caplog: pytest.LogCaptureFixture) -> None:
    address = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
    assert said(address, caplog) == [
        f"no Kafka broker answers at {address} (connection refused); waiting for one"
    ]


def test_one_broker_of_several_is_enough(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:
        there = f"127.0.0.1:{broker.getsockname()[1]}"
        assert said(f"127.0.0.1:{free_ports(1)[0]},{there}", caplog) == []
