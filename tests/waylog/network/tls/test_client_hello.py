"""A ClientHello is recognised as complete in any pieces, and its size is bounded."""

from __future__ import annotations

import contextlib
import ssl

import pytest

from waylog.network.tls.client_hello import ClientHello, ClientHelloTooLong


def client_hello() -> bytes:
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(coming, going, server_hostname="localhost").do_handshake()
    return going.read()


def in_records(hello: bytes, size: int) -> bytes:
    message = hello[5:]
    parts = [message[start : start + size] for start in range(0, len(message), size)]
    return b"".join(hello[:3] + len(part).to_bytes(2, "big") + part for part in parts)


@pytest.mark.parametrize("record_bytes", [None, 1, 3, 100])
@pytest.mark.parametrize("piece_bytes", [1, 7, 10_000])
def test_it_is_whole_with_its_last_byte(record_bytes: int | None, piece_bytes: int) -> None:
    said = client_hello() if record_bytes is None else in_records(client_hello(), record_bytes)
    hello = ClientHello()
    pieces = [said[start : start + piece_bytes] for start in range(0, len(said), piece_bytes)]
    whole = [hello.add(piece) for piece in pieces]
    assert whole == [False] * (len(pieces) - 1) + [True]
    assert hello.data == said


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0",
        b"\x15\x03\x01\0\x02\x02\x46",
        b"\x16\x03\x01\0\0",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\0\x01\x02",
        b"\x16\x03\x01\0\x01\x01\x17",
    ],
)
def test_what_is_none_is_left_to_tls_to_refuse(said: bytes) -> None:
    assert ClientHello().add(said)


@pytest.mark.parametrize("record", [1, 16_000])
def test_one_that_does_not_end_is_given_up(record: int) -> None:
    message = b"\x01\x01\0\0".ljust(65_536, b"\0")
    said = in_records(b"\x16\x03\x01\0\0" + message, record)
    hello = ClientHello()
    with pytest.raises(ClientHelloTooLong):
        for start in range(0, len(said), 1000):
            assert not hello.add(said[start : start + 1000])
    assert len(hello.data) <= ClientHello.BYTES_MAX + 1000
