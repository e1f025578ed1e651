"""What others have written is shown on a terminal so that it cannot move its cursor."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import uuid

import pytest
from confluent_kafka import Consumer, Producer

from tests.consumers.running import WAYLOG
from tests.waylog.console.terminal import Terminal
from waylog.kafka.clients import consumer_config, producer_config

ODD = "a\u202eb\u200bc\x1b[2J\x85"
SHOWN = r"a\u202eb\u200bc\x1b[2J\x85"


def on_terminal(*words: str) -> str:
    """Return what a command writes to a terminal."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen([*WAYLOG, *words], stdout=theirs, stdin=subprocess.DEVNULL)
        os.close(theirs)
        written = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # nobody has it open any more
                break
            if not part:
                break
            written += part
        assert process.wait(60) == 0
    finally:
        os.close(ours)
    return written.decode().replace("\r\n", "\n")


@pytest.fixture
def topic(terminal: Terminal) -> str:
    """Give a topic with a record of odd characters, which is also the name of a group."""
    name = f"odd-{uuid.uuid4().hex[:8]}"
    terminal.run("topics", "create", name)
    producer = Producer(producer_config(terminal.bootstrap_servers, "tests"))
    producer.produce(name, f"{ODD}\n\tend".encode() + b"\xff", ODD.encode())
    assert producer.flush(60) == 0
    return name


def test_records_on_a_terminal(terminal: Terminal, topic: str) -> None:
    words = ("consume", topic, "--from", "beginning", "--exit", "--key", "--bootstrap-servers")
    text = on_terminal(*words, terminal.bootstrap_servers)
    assert text == f"{SHOWN}\t{SHOWN}\n\tend\\xff\n"
    line = on_terminal(*words, terminal.bootstrap_servers, "--json")
    assert line.rstrip("\n").isprintable()
    assert json.loads(line)["key"] == ODD
    # A program gets what was written.
    read = subprocess.run(
        [*WAYLOG, *words, terminal.bootstrap_servers], capture_output=True, check=True
    )
    assert read.stdout == f"{ODD}\t{ODD}\n\tend".encode() + b"\xff\n"


def test_names_in_tables(terminal: Terminal, topic: str) -> None:
    group = f"{topic}{ODD}"
    consumer = Consumer(consumer_config(terminal.bootstrap_servers, "tests", group))
    consumer.subscribe([topic])
    while (record := consumer.poll(1.0)) is None:
        pass
    consumer.commit(message=record, asynchronous=False)
    consumer.close()
    text = terminal.run("groups", "list")
    assert f"{topic}{SHOWN}" in text
    assert all(each.isprintable() or each == "\n" for each in text)
