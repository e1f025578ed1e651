"""`verify` with a real broker, for a correct log and for every kind of error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from load_tests.account import Account, PhoneAccount, fix_id
from load_tests.verify import Log, Offsets, Verdict, verify
from tests.contract.broker_process import BrokerProcess
from waylog.kafka.clients import LogUnreachable, ensure_topics, producer_config
from waylog.messages import Address, Fix, encode

RUN = "verify01"


@pytest.fixture(scope="module")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    servers = broker.start()
    ensure_topics(servers)
    yield servers
    broker.stop()


class Scene:
    """Records in the log, and an account to be compared with them."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.log = Log(bootstrap_servers)
        self.starts: Offsets = self.log.ends()
        self._producer = Producer(producer_config(bootstrap_servers, "test", linger_ms=0))

    def fix(self, device: int, sequence: int, run: str = RUN) -> None:
        name = f"load/d{device:08d}"
        fix = Fix(
            id=fix_id(run, device, sequence),
            device=name,
            user="load",
            lat=47.0,
            lon=9.0,
            time=1000 + sequence,
            received=5000,
        )
        self._producer.produce("location", encode(fix), name.encode())

    def address(self, device: int, sequence: int) -> None:
        name = f"load/d{device:08d}"
        address = Address(
            device=name,
            fix_id=fix_id(RUN, device, sequence),
            time=1000 + sequence,
            lat=47.0,
            lon=9.0,
            display_name="somewhere",
            address={},
        )
        self._producer.produce("address", encode(address), name.encode())

    def raw(self, value: bytes) -> None:
        self._producer.produce("location", value)

    def verdict(self, **sent_and_acknowledged: tuple[int, set[int]]) -> Verdict:
        """Compare; the arguments are, by device, the number sent and the acknowledged fixes."""
        assert self._producer.flush(60) == 0
        devices = []
        for name, (sent, acknowledged) in sent_and_acknowledged.items():
            phone = PhoneAccount(int(name.removeprefix("d")))
            for _ in range(sent):
                phone.send()
            for sequence in acknowledged:
                phone.acknowledge(sequence)
            devices.append(phone.close())
        account = Account(RUN, "load", devices)
        return verify(self.log, account, self.starts, addresses_within_s=0.2)


@pytest.fixture
def scene(bootstrap_servers: str) -> Iterator[Scene]:
    scene = Scene(bootstrap_servers)
    yield scene
    scene.log.close()


def test_a_complete_log_passes_whatever_else_is_in_it(scene: Scene) -> None:
    for device in (1, 2):
        for sequence in range(3):
            scene.fix(device, sequence)
        scene.address(device, 2)
    scene.fix(1, 0, run="another1")
    scene.raw(b"not JSON")
    verdict = scene.verdict(d1=(3, {0, 1, 2}), d2=(3, {0, 1, 2}), d3=(0, set()))
    assert verdict.passed
    assert (verdict.stored, verdict.foreign, verdict.devices, verdict.addresses) == (6, 2, 2, 2)


def test_an_acknowledged_fix_that_is_not_in_the_log_is_lost(scene: Scene) -> None:
    scene.fix(1, 0)
    scene.address(1, 0)
    verdict = scene.verdict(d1=(3, {0, 2}))
    assert (verdict.lost, verdict.examples) == (1, [fix_id(RUN, 1, 2)])
    assert not verdict.passed


def test_a_fix_that_is_stored_twice_is_doubled(scene: Scene) -> None:
    for _ in range(3):
        scene.fix(1, 0)
    scene.address(1, 0)
    verdict = scene.verdict(d1=(1, {0}))
    assert (verdict.doubled, verdict.stored, verdict.passed) == (1, 1, False)


def test_a_stored_fix_that_was_not_acknowledged_is_no_loss(scene: Scene) -> None:
    scene.fix(1, 0)
    scene.fix(1, 1)
    scene.address(1, 1)
    verdict = scene.verdict(d1=(2, {0}))
    assert (verdict.unacknowledged, verdict.passed) == (1, True)


def test_a_fix_that_was_never_sent_is_unknown(scene: Scene) -> None:
    scene.fix(1, 0)
    scene.fix(1, 5)
    scene.fix(9, 0)
    scene.address(1, 0)
    verdict = scene.verdict(d1=(1, {0}))
    assert (verdict.unknown, verdict.passed) == (2, False)


def test_an_old_or_a_missing_address_does_not_pass(scene: Scene) -> None:
    for device in (1, 2, 3):
        scene.fix(device, 0)
        scene.fix(device, 1)
    scene.address(1, 0)
    scene.address(2, 1)
    verdict = scene.verdict(d1=(2, {0, 1}), d2=(2, {0, 1}), d3=(2, {0, 1}))
    assert (verdict.addresses, verdict.stale, verdict.unresolved) == (1, 1, 1)
    assert not verdict.passed
    assert verdict.waited_s >= 0.2


def test_a_log_that_is_away_is_said_so() -> None:
    log = Log("127.0.0.1:1", timeout_s=0.3)
    with pytest.raises(LogUnreachable):
        log.ends()
    log.close()
