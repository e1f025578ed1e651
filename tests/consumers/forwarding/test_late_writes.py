"""What a worker has on its way to the log counts only while it has its partitions.

Its requests are held back while it is frozen for longer than its session; meanwhile another worker
takes its partitions over. The log is our broker, or Apache Kafka (-m kafka).
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from consumers.forwarding.progress_log import read_progress
from consumers.forwarding.progress_writer import NotWritten, ProgressWriter
from tests.consumers.connect.http.http_server import Answer, HttpServer, Seen
from tests.consumers.forwarding.running import LOOPBACK, Platform
from tests.consumers.running import Process, await_condition
from tests.consumers.worker.held_log import KINDS, held_log, put_member_out
from tests.consumers.worker.holding_proxy import (
    END_TXN,
    HEARTBEAT,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    HoldingProxy,
)
from waylog.forwarding.definition import GROUP, Progress, encode, record_key
from waylog.kafka.clients import client_config, consumer_config, producer_config
from waylog.kafka.ranges.log_ranges import LogRanges
from waylog.kafka.topics import FORWARDING_PROGRESS, LOCATION

pytestmark = pytest.mark.early

OPTIONS = (*LOOPBACK, "--session-timeout", "2", "--retry-backoff-max", "1")
#: More than may wait of a forwarding in a worker.
MANY = 600


class HeldPlatform(Platform):
    """Its workers may be those whose requests can be held back."""

    def __init__(self, servers: str, held: str, proxy: HoldingProxy, folder: Path) -> None:
        super().__init__(servers, folder)
        self.proxy = proxy
        self.held_servers = held
        self._admin = AdminClient(client_config(servers, "test"))

    def start_held(self, *more: str) -> Process:
        return self.start(*OPTIONS, *more, "--bootstrap-servers", self.held_servers)

    def await_owner(self, worker: Process) -> None:
        """Wait until a worker has all partitions."""

        def is_owner() -> bool:
            found = self._admin.describe_consumer_groups([GROUP])[GROUP].result()
            [*shares] = [(each.client_id, each.assignment) for each in found.members]
            return len(shares) == 1 and (
                shares[0][0] == f"forwarding-{worker.pid}"
                and bool(shares[0][1])
                and len(shares[0][1].topic_partitions) > 0
            )

        await_condition(is_owner, 60, "it has all partitions")

    def await_committed(self) -> None:
        """Wait until the group has gone on to the end of the log."""
        log = LogRanges(self.servers, "test")

        def is_committed() -> bool:
            asked = [ConsumerGroupTopicPartitions(GROUP)]
            [found] = self._admin.list_consumer_group_offsets(asked).values()
            offsets = {each.partition: each.offset for each in found.result().topic_partitions}
            ends = {each: marks.high for each, marks in log.watermarks(LOCATION, 60).items()}
            return offsets == ends

        await_condition(is_committed, 60, "the group is at the end")
        log.close()


class Server(HttpServer):
    """Takes what comes, or says that it is not there."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = threading.Event()
        self.taken: set[str] = set()
        self.answer = self._answer

    def _answer(self, seen: Seen) -> Answer | None:
        if self.is_away.is_set():
            return 503, "away"
        self.taken.add(parse_qs(urlsplit(seen.path).query)["lat"][0])
        return None


@pytest.fixture(params=KINDS, scope="module")
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeldPlatform]:
    folder = tmp_path_factory.mktemp("held")
    with held_log(request.param, folder, group_min_session_timeout_ms="1000") as log:
        platform = HeldPlatform(*log, folder)
        try:
            yield platform
        finally:
            platform.close()


@pytest.fixture
def held(shared: HeldPlatform) -> Iterator[HeldPlatform]:
    yield shared
    shared.proxy.release()
    shared.stop_workers()
    shared.forget()


@pytest.mark.parametrize(
    ("request_held", "wakes"),
    [
        (PRODUCE, False),
        pytest.param(PRODUCE, True, marks=pytest.mark.long),
        pytest.param(TXN_OFFSET_COMMIT, True, marks=pytest.mark.long),
        (END_TXN, True),
    ],
)
def test_what_a_former_owner_has_on_its_way_loses_nothing(
    held: HeldPlatform, request_held: int, wakes: bool
) -> None:
    server = Server()
    with server.running():
        held.put("anna", 1, f"{server.url}/")
        frozen = held.start_held()
        await_condition(lambda: held.shown("anna", 1)["state"] == "live", 60, "live")
        topic = FORWARDING_PROGRESS.encode() if request_held == PRODUCE else b""
        held.proxy.hold(request_held, topic)
        # It tells the log that it is live, and has forwarded something.
        sent = held.fixes("anna/phone", 1)
        await_condition(lambda: set(sent) <= server.taken, 60, "the first one")
        assert held.proxy.is_held.wait(60)
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            owner = held.start(*OPTIONS)
            held.await_owner(owner)
            server.is_away.set()
            sent += held.fixes("anna/phone", MANY)
            await_condition(lambda: held.shown("anna", 1)["error"], 60, "it is told")
            held.await_committed()
            assert held.shown("anna", 1)["state"] == "failing"
            held.proxy.release()
            assert held.proxy.is_answered.wait(60)
        finally:
            os.kill(frozen.pid, signal.SIGCONT if wakes else signal.SIGKILL)
        owner.stop(signal.SIGKILL)
        server.is_away.clear()
        if not wakes:
            frozen.wait()
            held.start(*OPTIONS)
        await_condition(lambda: set(sent) <= server.taken, 60, "all have come")
        await_condition(lambda: held.shown("anna", 1)["state"] == "live", 60, "live again")
        assert not wakes or frozen.is_running


def test_a_log_that_does_not_answer_in_time_is_told_later(held: HeldPlatform) -> None:
    server = Server()
    with server.running():
        held.put("anna", 1, f"{server.url}/")
        worker = held.start_held()
        await_condition(lambda: held.shown("anna", 1)["state"] == "live", 60, "live")
        held.proxy.hold(TXN_OFFSET_COMMIT)
        sent = held.fixes("anna/phone", 1)
        worker.wait_for("how far forwardings are is not stored")
        assert held.shown("anna", 1)["forwarded"] is None
        # Forwarding goes on meanwhile.
        sent += held.fixes("anna/phone", 1)
        await_condition(lambda: set(sent) <= server.taken, 60, "all have come")
        held.proxy.release()
        await_condition(lambda: held.shown("anna", 1)["forwarded"], 60, "it is told")
        held.await_committed()


def test_nothing_is_written_while_nothing_changes(held: HeldPlatform) -> None:
    server = Server()
    with server.running():
        held.put("anna", 1, f"{server.url}/")
        # A member that has missed a heartbeat joins again, and what changes then is written.
        held.start_held("--session-timeout", "12")
        sent = held.fixes("anna/phone", 1)
        await_condition(lambda: held.shown("anna", 1)["forwarded"], 60, "it is told")
        assert server.taken == set(sent)
        held.await_committed()
        requests = held.proxy.requests
        written, heartbeats = requests[END_TXN], requests[HEARTBEAT]
        await_condition(lambda: requests[HEARTBEAT] > heartbeats + 1, 60, "seconds")
        assert requests[END_TXN] == written > 0
        await_condition(lambda: held.shown("anna", 1)["state"] == "live", 60, "live")


async def test_progress_is_read_when_all_open_transactions_are_decided(held: HeldPlatform) -> None:
    # The former owner may have committed what the topic does not know yet.
    writer = Producer(producer_config(held.servers, "test", transactional_id="test"))
    writer.init_transactions(60)
    writer.begin_transaction()
    key = record_key("anna", held.id_of(1), 0)
    progress = Progress(offset=7)
    sealed = held.keys.seal_value(FORWARDING_PROGRESS, encode(progress), key)
    writer.produce(FORWARDING_PROGRESS, sealed, key)
    assert writer.flush(60) == 0
    reading = asyncio.create_task(read_progress(held.servers, "test", held.keys.open_messages))
    done, _ = await asyncio.wait((reading,), timeout=1.0)
    assert not done
    await asyncio.to_thread(writer.commit_transaction, 60)
    found = await reading
    assert found[0]["anna", held.id_of(1)] == progress


def test_a_write_is_refused_that_comes_behind_that_of_the_next_owner(held: HeldPlatform) -> None:
    old, new = member(held.held_servers), member(held.servers)
    key = record_key("anna", held.id_of(1), 0)
    progress = Progress(offset=5)
    late, true = (
        held.keys.seal_value(FORWARDING_PROGRESS, encode(each), key)
        for each in (Progress(offset=7, live=True), progress)
    )
    try:
        await_all_partitions(old[0])
        held.proxy.hold(PRODUCE, FORWARDING_PROGRESS.encode())
        with ThreadPoolExecutor(1) as thread:
            writing = thread.submit(old[1].write, {0: 7}, [(key, late)], 60.0)
            assert held.proxy.is_held.wait(60)
            put_member_out(held.servers, GROUP)
            await_all_partitions(new[0])
            new[1].write({0: 9}, [(key, true)], 60.0)
            held.proxy.release()
            with pytest.raises(NotWritten):
                writing.result(60)
        [committed] = new[0].committed([TopicPartition(LOCATION, 0)], timeout=60)
        assert committed.offset == 9
        found = asyncio.run(read_progress(held.servers, "test", held.keys.open_messages))
        assert found[0]["anna", held.id_of(1)] == progress
    finally:
        for consumer, writer in (old, new):
            writer.close()
            consumer.close()


def member(servers: str) -> tuple[Consumer, ProgressWriter]:
    """Return one that has not joined the group yet, and what writes for it."""
    consumer = Consumer(consumer_config(servers, "test", GROUP))
    return consumer, ProgressWriter(servers, "test", GROUP, consumer)


def await_all_partitions(consumer: Consumer) -> None:
    consumer.subscribe([LOCATION])
    await_condition(lambda: consumer.poll(0.1) is None and consumer.assignment(), 60, "assigned")


def test_without_a_generation_nothing_is_written(held: HeldPlatform) -> None:
    # The log would take it: without a generation there is nothing to compare.
    log = LogRanges(held.servers, "test", isolation_level="read_uncommitted")
    consumer = Consumer(consumer_config(held.servers, "test", GROUP))
    writer = ProgressWriter(held.servers, "test", GROUP, consumer)
    before = log.watermarks(FORWARDING_PROGRESS, 60)
    try:
        with pytest.raises(NotWritten, match="the group has put this process out"):
            writer.write({0: 0}, [(b"key", b"value")], 10.0)
        assert log.watermarks(FORWARDING_PROGRESS, 60) == before
    finally:
        for each in (writer, consumer, log):
            each.close()
