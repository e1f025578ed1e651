"""Hostile clients of a broker in its own process, whose CPU time and memory are measured.

Apache Kafka 4.3.1 on the same machine allocates 100 MB for a frame that is only announced, and
takes 0.3 to 1.3 s for requests with a hundred thousand to a million names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from broker_core.protocol.definitions import APIS
from broker_core.protocol.encoder import encode
from broker_core.protocol.plan import FieldPlan, Plan
from tests import hostile_peers
from tests.contract.broker_process import BrokerProcess
from tests.hostile_peers import Victim

_STRUCT, _STRING = 12, 9


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    process = BrokerProcess(tmp_path_factory.mktemp("victim"))
    admin = AdminClient({"bootstrap.servers": process.start()})
    topics = [NewTopic("plain", 1, 1), NewTopic("lz4", 1, 1, config={"compression.type": "lz4"})]
    for future in admin.create_topics(topics).values():
        future.result(10)
    yield Victim.at(process.bootstrap_servers)
    assert process.stop() == 0, "".join(process.output)


@pytest.mark.parametrize(
    "data", [pytest.param(data, id=name) for name, data in hostile_peers.requests().items()]
)
def test_what_cannot_be_is_refused_at_once_and_costs_nothing(victim: Victim, data: bytes) -> None:
    assert victim.serves()
    memory = victim.resident_mib()

    def tell() -> None:
        assert victim.tell(data) == b""

    assert victim.least_cpu_s(tell, 0.05) < 0.05
    assert victim.resident_mib() - memory < 8
    assert victim.serves()


def test_what_is_refused_again_and_again_takes_no_memory(victim: Victim) -> None:
    data = hostile_peers.requests()["a million tags"]
    for _ in range(3):
        assert victim.tell(data) == b""
    memory = victim.resident_mib()
    for _ in range(30):
        assert victim.tell(data) == b""
    assert victim.resident_mib() - memory < 8


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """A batch of 0.2 MB that expands to 200 MB."""
    return hostile_peers.gzip_bomb(200)


@pytest.mark.parametrize("topic", ["plain", "lz4"])
def test_a_gzip_bomb_is_not_opened_or_given_up_early(
    victim: Victim, bomb: bytes, topic: str
) -> None:
    """The first topic stores batches as they are, the second one compresses them again."""
    memory = victim.resident_mib()

    def tell() -> None:
        assert victim.tell(hostile_peers.produce(topic, bomb))

    assert victim.least_cpu_s(tell, 0.15) < 0.15
    assert victim.resident_mib() - memory < 16
    assert victim.serves()


def test_frames_that_are_only_announced_take_no_memory(victim: Victim) -> None:
    assert victim.serves()
    memory = victim.resident_mib()
    connections = [victim.connect() for _ in range(50)]
    for connection in connections:
        connection.sendall(hostile_peers.announced())
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
    """Return a request whose array `long` has `size` elements, all different."""
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
    """Send 10,000 elements: a quadratic search takes sixteen times as long as for 2,500."""
    api = APIS[key]
    version = api.versions[1]
    plan = api.request_plan(version)
    header = hostile_peers.header(key, version) + (b"\0" if api.is_flexible(version) else b"")

    def asking(size: int) -> Callable[[], None]:
        frame = hostile_peers.frame(header + encode(plan, _message(plan, field, size)))

        def ask() -> None:
            with victim.connect() as connection:
                connection.sendall(frame)
                # A second connection waits behind the request: the work ends with or without
                # answer.
                assert victim.serves()

        return ask

    # Four times the work costs a busy machine more than four times the processor time, as well.
    long_s = victim.least_cpu_s(asking(10_000), 0.6)
    assert long_s < 0.6 or long_s < 8 * victim.least_cpu_s(asking(2_500), 0)
