"""Sessions and retained messages that outlive a gateway process, without a log and sockets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.mqtt.in_memory import User, Wire
from tests.gateway.mqtt.journal_worker import (
    KEY,
    TOPIC,
    Log,
    Record,
    Worker,
    payloads,
    publish,
)


def test_a_session_and_its_subscriptions_survive_a_crash() -> None:
    log = Log()
    first = Worker(log, "a")
    wire, present = first.client()
    assert not present
    wire.subscribe("devices/alice/+/note")
    first.turn()
    first.crash()
    second = Worker(log, "b")
    publish(second.router, b"while away")
    wire, present = second.client()
    assert present
    assert payloads(wire.first) == [b"while away"]  # type: ignore[attr-defined]
    publish(second.router, b"now")
    assert payloads(wire.received()) == [b"now"]


def test_a_clean_start_ends_what_was_kept() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client()[0].subscribe(TOPIC)
    first.turn()
    first.crash()
    second = Worker(log, "b")
    assert not second.client(clean=True)[1]
    second.turn()
    assert not [record for record in log.compacted() if record.value() is not None]
    second.crash()
    assert not Worker(log, "c").client()[1]


def test_a_session_that_has_expired_meanwhile_is_not_resumed() -> None:
    log = Log()
    first = Worker(log, "a")
    wire, _ = first.client()
    wire.lose()
    first.turn()
    first.crash()
    log.wall_ms += 8 * 24 * 3600 * 1000
    assert not Worker(log, "b").client()[1]


def test_a_session_expires_while_no_worker_runs_though_its_client_was_there_at_the_stop() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client()[0].subscribe(TOPIC)
    first.stop()
    log.wall_ms += 8 * 24 * 3600 * 1000
    assert not Worker(log, "b").client()[1]


def test_a_session_lasts_no_longer_for_a_stop_in_between() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client()[0].lose()
    first.turn()
    first.stop()
    log.wall_ms += 6 * 24 * 3600 * 1000
    second = Worker(log, "b")
    assert second.router.sessions[KEY].deadline == 24 * 3600


def test_a_session_lasts_no_longer_for_a_clock_that_was_set_back() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client()[0].lose()
    first.turn()
    first.stop()
    log.wall_ms -= 24 * 3600 * 1000
    assert Worker(log, "b").router.sessions[KEY].deadline == 7 * 24 * 3600


def test_another_user_does_not_get_a_session_by_its_name() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client()[0].subscribe(TOPIC)
    first.turn()
    first.crash()
    wire = Wire(Worker(log, "b").router)
    assert wire.connect("phone", User("bob"), clean=False)[2] == 0


def test_a_token_of_one_device_does_not_get_the_session_of_the_whole_user() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client()[0].subscribe(TOPIC)
    first.turn()
    first.crash()
    wire = Wire(Worker(log, "b").router)
    assert wire.connect("phone", User("alice", "tablet"), clean=False)[2] == 0


def test_a_session_that_is_kept_no_longer_is_written_once_more() -> None:
    worker = Worker(Log(), "a")
    worker.client()[0].subscribe(TOPIC)
    worker.turn()
    session = worker.router.sessions[KEY]
    session.expiry_interval_s = 0
    assert worker.journal.changed(session)
    worker.turn()
    worker.crash()
    assert not Worker(worker.log, "b").client()[1]
    other = Worker(Log(), "c")
    other.client(clean=True)
    assert not other.journal.changed(other.router.sessions[KEY])


def test_all_sessions_are_written_of_however_many_that_change_at_once() -> None:
    log = Log()
    worker = Worker(log, "a")
    names = [f"client{number}" for number in range(450)]
    for name in names:
        worker.client(name=name)[0].subscribe(TOPIC)
    for _ in range(10):
        worker.turn()
    worker.crash()
    second = Worker(log, "b")
    assert all(second.client(name=name)[1] for name in names)


def test_a_session_that_has_ended_before_it_was_written_is_not_written() -> None:
    log = Log()
    worker = Worker(log, "a", shared=True)
    worker.client(clean=True)[0].lose()
    worker.turn()
    assert not any(record.value() for record in log.compacted())


def test_a_client_that_was_connected_for_longer_than_its_session_lasts_still_has_it() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client()[0].subscribe(TOPIC)
    first.turn()
    log.wall_ms += 30 * 24 * 3600 * 1000
    first.crash()
    assert Worker(log, "b").client()[1]


def test_options_of_a_subscription_survive() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client()[0].subscribe(TOPIC)
    (subscription,) = first.router.sessions[KEY].subscriptions.values()
    subscription.no_local = subscription.retain_as_published = True
    subscription.identifier = 7
    first.turn()
    first.crash()
    second = Worker(log, "b")
    second.client()
    (again,) = second.router.sessions[KEY].subscriptions.values()
    assert (again.no_local, again.retain_as_published, again.identifier) == (True, True, 7)


def test_rubbish_in_the_topic_is_counted_and_left_out() -> None:
    log = Log()
    log.records += [
        Record(b"session\0alice\0phone", b"{", 0),
        Record(b"retained\0x", b"\xff", 0),
        Record(b"unknown", b"1", 0),
        Record(b"session", None, 0),
    ]
    worker = Worker(log, "a")
    assert not worker.client()[1]
    assert worker.journal.unreadable == 2


FILTERS = ["devices/alice/+/note", "devices/alice/phone/#", "owntracks/alice/+", "$share/g/x"]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["subscribe", "unsubscribe"]), st.sampled_from(FILTERS[:3])),
            st.tuples(st.sampled_from(["lose", "crash", "stop", "clean"]), st.none()),
        ),
        max_size=25,
    )
)
def test_subscriptions_are_those_of_a_server_that_never_stops(
    steps: list[tuple[str, str | None]],
) -> None:
    log = Log()
    worker = Worker(log, "0")
    expected: set[str] = set()
    wire, _ = worker.client(clean=True)
    wire.lose()
    wire, present = worker.client()
    alive = False
    for number, (step, topic_filter) in enumerate(steps):
        if step == "subscribe":
            assert topic_filter is not None
            wire.subscribe(topic_filter)
            expected.add(topic_filter)
        elif step == "unsubscribe":
            assert topic_filter is not None
            name = topic_filter.encode()
            body = b"\0\1" + len(name).to_bytes(2, "big") + name
            wire.send(b"\xa2" + bytes([len(body)]) + body)
            wire.received()
            expected.discard(topic_filter)
        elif step == "clean":
            wire, present = worker.client(clean=True)
            assert not present
            expected = set()
            wire.lose()
            wire, present = worker.client()
            assert not present
        else:
            worker.turn()
            if step != "lose":
                getattr(worker, step)()
                worker = Worker(log, str(number + 1))
            else:
                wire.lose()
            wire, alive = worker.client()
            assert alive
        session = worker.router.sessions[("alice", "phone")]
        assert set(session.subscriptions) == expected
        assert len(worker.router.subscriptions) == len(expected) or expected
