"""Peers that want to harm: a broker in a process of its own, its CPU and memory watched.

Apache Kafka 4.3.1 on the same machine allocates 100 MB for a frame that is only announced, and
takes 0.3 to 1.3 s for requests with a hundred thousand to a million names.
"""

from __future__ import annotations

import re
import socket
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from broker_core.protocol.definitions import APIS
from broker_core.protocol.primitives import FieldPlan, Plan, encode
from broker_core.protocol.records import build_batch
from tests.contract.broker_process import BrokerProcess

_TICK_S = 0.01
_STRUCT, _STRING = 12, 9


class Victim:
    """A broker and what it costs to annoy it."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        host, _, port = process.bootstrap_servers.rpartition(":")
        self.address = (host, int(port))

    def cpu_s(self) -> float:
        """CPU seconds so far."""
        words = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) * _TICK_S

    def resident_mib(self) -> float:
        """Resident memory."""
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+)", text)
        assert match is not None
        return int(match[1]) / 1024

    def connect(self) -> socket.socket:
        """A connection."""
        return socket.create_connection(self.address, timeout=20)

    def tell(self, data: bytes) -> bytes:
        """Send, and get the answer's frame, or nothing when the connection ends."""
        with self.connect() as connection:
            try:
                connection.sendall(data)
                head = _receive(connection, 4)
                return _receive(connection, int.from_bytes(head, "big")) if head else b""
            except ConnectionError:
                return b""

    def serves(self) -> bool:
        """Whether somebody who speaks properly gets an answer."""
        return len(self.tell(_frame(_header(18, 0)))) > 100


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        data = connection.recv(min(size - len(parts), 1 << 20))
        if not data:
            break
        parts += data
    return bytes(parts)


def _header(key: int, version: int) -> bytes:
    return struct.pack(">hhih", key, version, 7, 4) + b"test"


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    process = BrokerProcess(tmp_path_factory.mktemp("victim"))
    admin = AdminClient({"bootstrap.servers": process.start()})
    topics = [NewTopic("plain", 1, 1), NewTopic("lz4", 1, 1, config={"compression.type": "lz4"})]
    for future in admin.create_topics(topics).values():
        future.result(10)
    yield Victim(process)
    assert process.stop() == 0, "".join(process.output)


def _names(count: int) -> bytes:
    return b"".join(b"\0\x0a" + b"name-%05d" % number for number in range(count))


_MILLION = b"\xc0\x84\x3d"  # as a varint
_METADATA = _header(3, 1)
_FLEXIBLE_METADATA = _header(3, 9) + b"\0"


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -1),
        struct.pack(">i", 100 * 1024 * 1024 + 1),
        _frame(_METADATA + struct.pack(">i", 2**31 - 1)),
        _frame(_METADATA + struct.pack(">i", -5)),
        _frame(_METADATA + struct.pack(">i", 10**6) + b"\0\0" * 10**6),
        _frame(_header(3, 9) + _MILLION + b"\x05\0" * 10**6),
        _frame(_FLEXIBLE_METADATA + b"\1\0\0\0" + _MILLION + b"\x05\0" * 10**6),
        _frame(_header(3, 9) + b"\xff" * 100),
        _frame(_METADATA + struct.pack(">i", 99_999) + _names(99_999)),
        _frame(_METADATA + struct.pack(">i", 49_999) + _names(49_999)),
    ],
    ids=[
        "longest length", "negative length", "over the limit", "array of 2^31-1", "array of -5",
        "a million empty names", "a million tags in the header", "a million tags",
        "endless varint", "99,999 names", "49,999 names",
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_at_once_and_costs_nothing(victim: Victim, data: bytes) -> None:
    assert victim.serves()
    cpu_s, memory = victim.cpu_s(), victim.resident_mib()
    assert victim.tell(data) == b""
    assert victim.cpu_s() - cpu_s < 0.05
    assert victim.resident_mib() - memory < 8
    assert victim.serves()


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """A batch of 0.2 MB that expands to 200 MB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeroes = bytes(1 << 20)
    packed = b"".join(packer.compress(zeroes) for _ in range(200)) + packer.flush()
    batch = bytearray(build_batch([(1, None, b"x", ())])[:61]) + packed
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, 1)
    struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[21:])))
    return bytes(batch)


@pytest.mark.parametrize("topic", ["plain", "lz4"])
def test_a_gzip_bomb_is_not_opened_or_given_up_early(
    victim: Victim, bomb: bytes, topic: str
) -> None:
    """In the first topic batches stay as they are, in the second they are packed anew."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = _header(0, 8) + struct.pack(">hhii", -1, -1, 5000, 1) + name
    body += struct.pack(">iii", 1, 0, len(bomb)) + bomb
    cpu_s, memory = victim.cpu_s(), victim.resident_mib()
    assert victim.tell(_frame(body))
    assert victim.cpu_s() - cpu_s < 0.15
    assert victim.resident_mib() - memory < 16
    assert victim.serves()


def test_frames_that_are_only_announced_take_no_memory(victim: Victim) -> None:
    assert victim.serves()
    memory = victim.resident_mib()
    connections = [victim.connect() for _ in range(50)]
    for connection in connections:
        connection.sendall(struct.pack(">ihh", 100 * 1024 * 1024, 0, 8))
    assert victim.serves()
    assert victim.resident_mib() - memory < 8
    for connection in connections:
        connection.close()


def test_3000_idle_connections_cost_little_and_keep_nobody_out(victim: Victim) -> None:
    assert victim.serves()
    cpu_s, memory = victim.cpu_s(), victim.resident_mib()
    connections = [victim.connect() for _ in range(3000)]
    assert victim.serves()
    assert victim.cpu_s() - cpu_s < 2
    assert victim.resident_mib() - memory < 32
    for connection in connections:
        connection.close()


# -------------------------------------------------------------------- requests with long arrays


def _value(field: FieldPlan, number: int) -> object:
    if field.kind == _STRUCT:
        assert field.struct is not None
        return _message(field.struct, None, 0, number)
    if field.kind == _STRING:
        return f"t{number}"
    zero: object = {0: False, 7: 1.0, 8: number.to_bytes(16, "big"), 10: b"", 11: b""}.get(
        field.kind, number % 100
    )
    return zero


def _message(plan: Plan, long: str | None, size: int, number: int = 0) -> dict[str, object]:
    """A request whose array `long` has so many elements, all of them different."""
    message: dict[str, object] = {}
    for field in plan.fields:
        if field.name == long:
            message[field.name] = [_value(field, each) for each in range(size)]
        elif field.array:
            message[field.name] = []
        else:
            message[field.name] = None if field.nullable else _value(field, number)
    return message


_ARRAYS = [
    pytest.param(api.key, field.name, id=f"{api.name}-{field.name}")
    for _, api in sorted(APIS.items())
    for field in api.request_plan(api.versions[1]).fields
    if field.array
]


@pytest.mark.parametrize(("key", "field"), _ARRAYS)
def test_the_cost_of_a_request_grows_with_its_length_and_not_faster(
    victim: Victim, key: int, field: str
) -> None:
    """10,000 elements in a time that a quadratic search among them would not keep."""
    api = APIS[key]
    version = api.versions[1]
    body = encode(api.request_plan(version), _message(api.request_plan(version), field, 10_000))
    header = _header(key, version) + (b"\0" if api.is_flexible(version) else b"")
    cpu_s = victim.cpu_s()
    with victim.connect() as connection:
        connection.sendall(_frame(header + body))
        # Behind it, so that the end of the work is seen whether or not there is an answer.
        assert victim.serves()
        assert victim.cpu_s() - cpu_s < 0.6
