"""Reports about an address at which no Kafka cluster answers."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from waylog.kafka.clients import LogUnreachable
from waylog.kafka.reach import connect_admin, why_unreachable


@contextmanager
def serving(answer: Callable[[bytes], bytes | None]) -> Iterator[str]:
    """Run a server that sends `answer(received)`, and closes the connection for None."""
    listener = socket.create_server(("127.0.0.1", 0))

    def converse(connection: socket.socket) -> None:
        with connection:
            while received := connection.recv(65536):
                said = answer(received)
                if said is None:
                    return
                connection.sendall(said)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=converse, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.fixture
def closed() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def kafka_answer(received: bytes, body: bytes = b"\0" * 10) -> bytes:
    (correlation_id,) = struct.unpack_from(">i", received, 8)
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def api(received: bytes) -> int:
    return int(struct.unpack_from(">h", received, 4)[0])


def told(bootstrap_servers: str) -> str:
    why = why_unreachable(bootstrap_servers)
    assert why is not None
    return why


def test_what_is_there_is_told_apart(closed: str) -> None:
    assert "connection refused; is `waylog up`" in told(closed)
    with serving(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as web:
        assert "does not speak Kafka's protocol" in told(web)
    with serving(lambda _: None) as hanging_up:
        assert "hangs up without an answer" in told(hanging_up)
        assert "may this account connect" in told(hanging_up)
    offered = b"\x00\x21\x00\x00\x00\x01\x00\x05PLAIN"
    with serving(lambda each: kafka_answer(each, offered) if api(each) == 17 else None) as asking:
        assert "it wants clients to log in" in told(asking)
    with serving(lambda each: kafka_answer(each) if api(each) == 17 else b"") as busy:
        assert "is it overloaded?" in told(busy)
    with serving(lambda _: b"") as silent:
        assert "says nothing" in told(silent)
    with serving(lambda each: struct.pack(">ii", 10, 77)) as another:
        assert "does not speak Kafka's protocol" in told(another)
    with serving(lambda each: kafka_answer(each, b"\0" * 100_000)) as good:
        assert why_unreachable(good) is None


def test_of_several_addresses_that_is_told_which_does_something(closed: str) -> None:
    with serving(lambda _: b"SSH-2.0-OpenSSH_9.2\r\n") as shell:
        assert "does not speak Kafka's protocol" in told(f"{closed},PLAINTEXT://{shell}")


def test_one_address_that_answers_is_enough(closed: str) -> None:
    with serving(lambda each: kafka_answer(each, b"\0" * 100_000)) as good:
        assert why_unreachable(f"{closed},{good}") is None


def test_one_name_that_is_known_is_enough(closed: str) -> None:
    with pytest.raises(LogUnreachable) as raised:
        connect_admin(f"no.invalid:1,{closed}")
    assert "is --bootstrap-servers right?" not in str(raised.value)
    with pytest.raises(LogUnreachable, match=r"the name no\.invalid cannot be resolved"):
        connect_admin("no.invalid:1")
