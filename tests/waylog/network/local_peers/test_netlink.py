"""Netlink questions about sockets and addresses, and malformed answers."""

from __future__ import annotations

import errno
import os
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import closing

import pytest

from waylog.network.local_peers.connection_ends import (
    ESTABLISHED,
    ConnectionEnds,
    is_loopback,
    packed,
)
from waylog.network.local_peers.netlink import (
    MalformedAnswerError,
    Routes,
    SocketDiagnosis,
    decode_is_own,
    decode_owner,
    encode_owner_question,
)

Pair = tuple[socket.socket, socket.socket]

IPV4 = ConnectionEnds.of_names(("127.0.0.1", 40000), ("127.0.0.1", 9092))
IPV6 = ConnectionEnds.of_names(("::1", 40000, 0, 0), ("::1", 9092, 0, 0))


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Connect a client to a server; give both ends of the connection."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        server = socket.create_server((request.param, 0), family=family)
    except OSError:
        pytest.skip(f"there is no {request.param} here")
    with closing(server):
        client = socket.create_connection(server.getsockname()[:2])
        accepted, _ = server.accept()
        yield client, accepted
        client.close()
        accepted.close()


@pytest.fixture
def diagnosis() -> Iterator[SocketDiagnosis]:
    try:
        opened = SocketDiagnosis()
    except OSError as error:
        pytest.skip(f"there is no sock_diag here: {error}")
    yield opened
    opened.close()


@pytest.fixture
def routes() -> Iterator[Routes]:
    opened = Routes()
    yield opened
    opened.close()


def ends_of(accepted: socket.socket) -> ConnectionEnds:
    return ConnectionEnds.of_names(accepted.getpeername(), accepted.getsockname())


def test_the_kernel_names_the_account_of_the_other_end(
    pair: Pair, diagnosis: SocketDiagnosis
) -> None:
    client, accepted = pair
    owner = diagnosis.peer_of(ends_of(accepted))
    assert owner is not None
    assert (owner.state, owner.uid) == (ESTABLISHED, os.geteuid())
    assert owner.inode == os.fstat(client.fileno()).st_ino


def test_a_socket_that_has_gone_is_none_or_is_not_established(
    pair: Pair, diagnosis: SocketDiagnosis
) -> None:
    client, accepted = pair
    ends = ends_of(accepted)
    client.close()
    closing_owner = diagnosis.peer_of(ends)
    assert closing_owner is not None
    assert closing_owner.state != ESTABLISHED
    assert closing_owner.inode == 0
    accepted.close()
    waiting = diagnosis.peer_of(ends)
    assert waiting is not None
    assert (waiting.state, waiting.inode) == (6, 0), "TIME_WAIT"


def test_who_listens_at_the_peers_port_is_not_the_peer(diagnosis: SocketDiagnosis) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ends = ConnectionEnds.of_names(listener.getsockname(), ("127.0.0.1", 9))
        assert diagnosis.peer_of(ends) is None


def test_a_socket_of_ipv6_that_speaks_ipv4_is_found(diagnosis: SocketDiagnosis) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET6) as client,
    ):
        client.connect((f"::ffff:{server.getsockname()[0]}", server.getsockname()[1]))
        accepted, _ = server.accept()
        with accepted:
            owner = diagnosis.peer_of(ends_of(accepted))
    assert owner is not None
    assert owner.uid == os.geteuid()


@pytest.mark.parametrize(
    ("host", "is_own"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("192.0.2.1", False),
     ("2001:db8::1", False), ("::ffff:127.0.0.1", True)],
)  # fmt: skip
def test_the_kernel_tells_its_own_addresses(host: str, is_own: bool, routes: Routes) -> None:
    assert routes.is_own(packed(host)) is is_own


def test_addresses_that_are_mapped_are_those_of_ipv4() -> None:
    mapped = ConnectionEnds.of_names(("::ffff:10.0.0.1", 1, 0, 0), ("::ffff:10.0.0.2", 2, 0, 0))
    assert mapped == ConnectionEnds.of_names(("10.0.0.1", 1), ("10.0.0.2", 2))
    assert not mapped.is_of_this_machine
    assert is_loopback(packed("::ffff:127.1.2.3"))
    assert IPV6.is_of_this_machine
    assert ConnectionEnds.of_names(("10.0.0.1", 1), ("10.0.0.1", 2)).is_of_this_machine
    # Other machines may send to 127.0.0.1 if net.ipv4.conf.*.route_localnet is set.
    assert ConnectionEnds.of_names(("10.0.0.1", 1), ("127.0.0.1", 2)).is_of_this_machine


# ------------------------------------------------------------------------------ hostile answers


def answer(
    ends: ConnectionEnds, *, kind: int = 20, sequence: int = 7, state: int = 1, uid: int = 1000,
    inode: int = 99, family: int | None = None, peer_port: int | None = None, length: int = 0,
) -> bytes:  # fmt: skip
    port = ends.peer_port if peer_port is None else peer_port
    body = struct.pack("=BBBB", ends.family if family is None else family, state, 0, 0)
    body += struct.pack(">HH16s16s", port, ends.own_port, ends.peer, ends.own)
    body += struct.pack("=III", 0, 1, 2) + struct.pack("=IIIII", 0, 0, 0, uid, inode)
    return struct.pack("=IHHII", length or 16 + len(body), kind, 0, sequence, 1) + body


@pytest.mark.parametrize("ends", [IPV4, IPV6], ids=["IPv4", "IPv6"])
def test_an_answer_to_the_question_is_read(ends: ConnectionEnds) -> None:
    owner = decode_owner(answer(ends), ends, 7)
    assert owner is not None
    assert (owner.state, owner.uid, owner.inode) == (1, 1000, 99)
    assert decode_owner(answer(ends, peer_port=40001), ends, 7) is None
    assert len(encode_owner_question(ends, 7)) == 72


@pytest.mark.parametrize(
    "hostile",
    [
        b"",
        b"\0" * 15,
        answer(IPV4, sequence=8),
        answer(IPV4, kind=2)[:16],
        answer(IPV4, kind=3),
        answer(IPV4, length=15),
        answer(IPV4, length=2**32 - 1),
        answer(IPV4, length=87),
        answer(IPV4, family=1),
        answer(IPV4)[:-1],
    ],
)
def test_what_is_no_answer_names_nobody(hostile: bytes) -> None:
    with pytest.raises(MalformedAnswerError):
        decode_owner(hostile, IPV4, 7)
    with pytest.raises(MalformedAnswerError):
        decode_is_own(hostile, 7)


def test_an_error_is_raised_with_its_number() -> None:
    message = struct.pack("=IHHIIi", 20, 2, 0, 7, 1, -errno.EPERM)
    with pytest.raises(PermissionError):
        decode_owner(message, IPV4, 7)
    with pytest.raises(PermissionError):
        decode_is_own(message, 7)


def test_damaged_answers_are_refused_or_are_of_this_connection() -> None:
    numbers = random.Random(1)
    good = answer(IPV4)
    for _ in range(5000):
        damaged = bytearray(good)
        for _ in range(numbers.randint(1, 6)):
            damaged[numbers.randrange(len(damaged))] = numbers.randrange(256)
        cut = bytes(damaged[: numbers.randint(0, len(damaged))])
        try:
            owner = decode_owner(cut, IPV4, 7)
        except (MalformedAnswerError, OSError):
            continue
        # The ends begin at byte 20; only the padding of an address may differ.
        assert owner is None or cut[20:28] == good[20:28]


def test_a_message_of_another_process_is_not_taken_for_the_kernels(
    pair: Pair, diagnosis: SocketDiagnosis
) -> None:
    ends = ends_of(pair[1])
    conversation = diagnosis._conversation._socket
    port, _ = conversation.getsockname()
    if not port:
        assert diagnosis.peer_of(ends) is not None
        port, _ = conversation.getsockname()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as other:
        # It has the sequence number of the next question.
        forged = answer(ends, sequence=diagnosis._conversation.sequence + 1, uid=0)
        try:
            other.sendto(forged, (port, 0))
        except (PermissionError, ConnectionRefusedError):
            pytest.skip("the kernel takes no such message")
        owner = diagnosis.peer_of(ends)
    assert owner is not None
    assert owner.inode == os.fstat(pair[0].fileno()).st_ino
