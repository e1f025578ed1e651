"""Offsets are committed after the results of their records, and only by a member of the group.

Results are held back on their way to the log; meanwhile the group puts their worker out, or the
worker stops. The log is our broker, or Apache Kafka (-m kafka).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from consumers.worker.assignment import Assignment, Assignments
from consumers.worker.erasure_filter import ErasureFilter
from consumers.worker.exactly_once import ExactlyOnceResults
from consumers.worker.membership import Membership, WorkerSettings
from consumers.worker.processing_guarantee import EXACTLY_ONCE
from consumers.worker.records import InputRecord, OutputRecord
from consumers.worker.results import SessionFailed, TransactionAborted
from consumers.worker.worker import Worker
from tests.consumers.running import await_condition
from tests.consumers.worker.counting import Counter, Counts, NoTelemetry
from tests.consumers.worker.held_log import KINDS, held_log, members_of, put_member_out
from tests.consumers.worker.holding_proxy import END_TXN, OFFSET_COMMIT, HoldingProxy
from waylog.kafka.clients import consumer_config, ensure_topics, producer_config
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import TOPICS, Topic

GROUP = "counters"
OURS = (Topic("in", 1), Topic("out", 1), Topic("states", 1, {"cleanup.policy": "compact"}))


class Log(NamedTuple):
    """A log that is reached directly, or by a proxy that can hold back what is appended."""

    servers: str
    held: str
    proxy: HoldingProxy

    def send(self) -> None:
        """Append a record, always with the same key."""
        producer = Producer(producer_config(self.servers, "test"))
        producer.produce("in", b"", b"key")
        assert producer.flush(60) == 0

    def results(self) -> list[bytes | None]:
        """Return the results that readers of committed records see."""
        return [each.value() for each in read_topic(self.servers, "out")]

    def stored(self) -> int:
        """Return the offset after the last result, whether it is committed or not."""
        config = consumer_config(self.servers, "test", "test", isolation_level="read_uncommitted")
        consumer = Consumer(config)
        try:
            return consumer.get_watermark_offsets(TopicPartition("out", 0), timeout=60)[1]
        finally:
            consumer.close()

    def committed(self) -> int:
        """Return the group's offset; negative if there is none."""
        consumer = Consumer(consumer_config(self.servers, "test", GROUP))
        try:
            [found] = consumer.committed([TopicPartition("in", 0)], timeout=60)
            return found.offset
        finally:
            consumer.close()

    def await_committed(self, offset: int) -> None:
        def is_committed() -> bool:
            try:
                return self.committed() == offset
            except KafkaException:
                # A group that is new has no coordinator yet.
                return False

        await_condition(is_committed, 60, f"offset {offset}")

    def members(self) -> list[str]:
        """Return the ids of the group's members."""
        return members_of(self.servers, GROUP)

    def put_out(self) -> None:
        """Put the only member out of the group, and wait until it is told."""
        before = self.proxy.refused_heartbeats
        put_member_out(self.servers, GROUP)
        await_condition(lambda: self.proxy.refused_heartbeats > before, 60, "a heartbeat")


@pytest.fixture(params=KINDS)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    with held_log(request.param, tmp_path) as (servers, held, proxy):
        ensure_topics(servers, (*TOPICS, *OURS))
        yield Log(servers, held, proxy)


@contextmanager
def running(
    servers: str, settings: WorkerSettings, counter: Counter | None = None
) -> Iterator[Callable[[], None]]:
    """Run a worker; give what stops it and waits for its end."""
    worker: Worker[Counts] = Worker(
        *(servers, GROUP, "in", counter or Counter()),
        client_id="counter",
        telemetry=NoTelemetry(),
        settings=settings,
    )
    thread = threading.Thread(target=worker.run)
    thread.start()

    def stop() -> None:
        worker.stop()
        thread.join(60)
        assert not thread.is_alive()

    try:
        yield stop
    finally:
        stop()


class FailsAmidABatch(Counter):
    """A batch ends with a result that cannot be written, as by a mistake in this program."""

    def process(
        self,
        batch: Mapping[int, Sequence[InputRecord]],
        states: Mapping[int, Counts],
        now_ms: int,
    ) -> list[OutputRecord]:
        wrong: Any = object()
        return [*super().process(batch, states, now_ms), OutputRecord("out", None, b"key", wrong)]


def test_a_session_that_fails_amid_the_results_of_a_batch_commits_none_of_it(log: Log) -> None:
    settings = WorkerSettings(processing_guarantee=EXACTLY_ONCE)
    log.send()
    worker: Worker[Counts] = Worker(
        *(log.servers, GROUP, "in", FailsAmidABatch(lambda *_: b"of a part")),
        client_id="counter",
        telemetry=NoTelemetry(),
        settings=settings,
    )
    with pytest.raises(TypeError):
        worker.run()
    with running(log.servers, settings):
        log.await_committed(1)
    assert log.results() == [b"1"]


@pytest.mark.parametrize("keeps_state", [True, False])
def test_a_worker_that_stops_before_its_results_are_stored_commits_no_offset(
    log: Log, keeps_state: bool
) -> None:
    settings = WorkerSettings(commit_interval_s=0.0, drain_s=0.5)
    with running(log.held, settings, Counter(keeps_state=keeps_state)) as stop:
        log.send()
        log.await_committed(1)
        log.proxy.hold()
        log.send()
        assert log.proxy.is_held.wait(60)
        stop()
    assert log.committed() == 1
    assert log.stored() == 1
    log.proxy.release()
    with running(log.held, settings, Counter(keeps_state=keeps_state)):
        log.await_committed(2)
    # What was held may be stored, too: at least once.
    assert len(log.results()) in (2, 3)


def test_offsets_are_committed_again_after_a_commit_that_was_refused(log: Log) -> None:
    with running(log.held, WorkerSettings(commit_interval_s=0.0)):
        log.send()
        log.await_committed(1)
        log.proxy.hold(OFFSET_COMMIT)
        log.send()
        assert log.proxy.is_held.wait(60)
        put_member_out(log.servers, GROUP)
        log.proxy.release()
        log.await_committed(2)


def test_a_worker_that_is_put_out_while_its_results_are_on_the_way_commits_nothing(
    log: Log,
) -> None:
    settings = WorkerSettings(processing_guarantee=EXACTLY_ONCE)
    with running(log.held, settings) as stop:
        log.send()
        log.await_committed(1)
        log.proxy.hold()
        log.send()
        assert log.proxy.is_held.wait(60)
        log.put_out()
        # Another one takes the partition over. It sees nothing of the results that are held.
        counter = Counter()
        with running(log.servers, settings, counter):
            assert counter.is_restored.wait(60)
            log.proxy.release()
            await_condition(lambda: len(log.members()) == 2, 60, "both members")
            log.send()
            log.await_committed(3)
            stop()
    assert log.results() == [b"1", b"2", b"3"]


def test_results_of_a_partition_that_was_lost_are_not_committed_later(log: Log) -> None:
    settings = WorkerSettings(
        processing_guarantee=EXACTLY_ONCE, transaction_interval_s=5.0, transaction_timeout_s=60.0
    )
    with running(log.held, settings):
        log.send()
        log.await_committed(1)
        stored = log.stored()
        log.send()
        await_condition(lambda: log.stored() > stored, 60, "a result in an open transaction")
        log.put_out()
        log.await_committed(2)
        log.send()
        log.await_committed(3)
    assert log.results() == [b"1", b"2", b"3"]


@contextmanager
def results_of(
    servers: str, stopping: threading.Event | None = None
) -> Iterator[tuple[ExactlyOnceResults[Counts], Consumer, Assignment[Counts]]]:
    """Give results of a session without a worker, its consumer, and the partition that it has."""
    membership: Membership[Counts] = Membership(
        *(servers, GROUP, "in", Counter(), "counter", NoTelemetry()),
        *(WorkerSettings(processing_guarantee=EXACTLY_ONCE, drain_s=0.5), lambda: None),
        stopping=stopping or threading.Event(),
    )
    consumer = Consumer(consumer_config(servers, "counter", GROUP))
    erased = ErasureFilter(servers, Counter.state_topic)
    assignments: Assignments[Counts] = Assignments()
    assignment = Assignment("in", 0, Counts())
    assignments.add(assignment, ())
    results = ExactlyOnceResults(membership, consumer, assignments, erased)
    try:
        assert results.start()
        yield results, consumer, assignment
    finally:
        results.close()
        erased.close()
        consumer.close()


def test_offsets_of_a_consumer_that_is_in_no_generation_are_not_committed(log: Log) -> None:
    # The log takes them: without a generation there is nothing to compare.
    log.send()
    with results_of(log.servers) as (results, _, assignment):
        results.write([OutputRecord("out", None, b"key", b"1")], {}, [(assignment, 1)])
        with pytest.raises(SessionFailed, match="the group has put this member out"):
            results.settle()
    assert log.committed() < 0
    assert log.results() == []


def test_transactions_that_are_aborted_now_and_then_do_not_end_a_session(log: Log) -> None:
    times = 6
    with results_of(log.servers) as (results, consumer, assignment):
        consumer.subscribe(["in"])
        await_condition(
            lambda: consumer.poll(0.05) is None and consumer.assignment(), 60, "a partition"
        )
        for end in range(1, times + 1):
            output = OutputRecord("out", None, b"key", b"%d" % end)
            results.write([output], {}, [(assignment, end)])
            with pytest.raises(TransactionAborted):
                results.abandon()
            results.write([output], {}, [(assignment, end)])
            results.hand_over([assignment])
    assert log.results() == [b"%d" % end for end in range(1, times + 1)]


def test_a_worker_that_stops_does_not_wait_for_ever_to_abort(log: Log) -> None:
    stopping = threading.Event()
    with results_of(log.held, stopping) as (results, _, assignment):
        results.write([OutputRecord("out", None, b"key", b"1")], {}, [(assignment, 1)])
        await_condition(lambda: log.stored() == 1, 60, "a result in an open transaction")
        log.proxy.hold(END_TXN)
        stopping.set()
        # Otherwise the abort would be answered in the end.
        answering = threading.Timer(20, log.proxy.release)
        answering.start()
        try:
            with pytest.raises(SessionFailed, match="partitions were lost"):
                results.abandon()
        finally:
            answering.cancel()
            log.proxy.release()
