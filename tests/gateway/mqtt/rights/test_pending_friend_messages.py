"""Friends' messages held until homes are known: each user's share, and the bound for all."""

from __future__ import annotations

import pytest

from gateway.mqtt.packets.message import Message
from gateway.mqtt.rights.pending_friend_messages import (
    BYTES_MAX,
    USER_BYTES_MAX,
    USER_MESSAGES_MAX,
    PendingFriendMessages,
)
from gateway.mqtt.sessions.session import Session
from gateway.mqtt.settings import Settings
from tests.gateway.mqtt.in_memory import User


def message(user: str = "ada", device: str = "phone", size: int = 10) -> Message:
    return Message(f"owntracks/{user}/{device}/event", b"x" * size)


@pytest.fixture
def bob() -> Session:
    return Session("c", User("bob"), Settings())


def held(messages: PendingFriendMessages) -> list[Message]:
    """Take all messages, the oldest first."""
    return [message for message, _ in messages.take()]


def test_what_is_not_given_yet_is_held_and_may_go(bob: Session) -> None:
    messages, first, second = PendingFriendMessages(), message(), message("eve")
    other = Session("d", User("bob"), Settings())
    for each in (first, second):
        messages.hold(each, bob)
        messages.hold(each, other)
    given = messages.take()
    assert next(given) == (first, bob)
    assert messages.of(bob) == [second]
    assert messages.of(other) == [first, second]
    messages.forget_device("eve/phone")
    assert list(given) == [(first, other)]
    assert messages.of(bob) == messages.of(other) == []


def test_each_session_of_a_message_gets_it_once_and_in_order(bob: Session) -> None:
    messages, first, second = PendingFriendMessages(), message(), message("eve")
    other = Session("d", User("bob"), Settings())
    for session in (bob, other, bob):
        messages.hold(first, session)
    messages.hold(second, other)
    assert len(messages) == 2
    assert messages.of(other) == [first, second]
    assert list(messages.take()) == [(first, bob), (first, other), (second, other)]
    assert len(messages) == 0
    assert list(messages.take()) == []


def test_a_users_large_messages_have_a_share_of_bytes_and_drive_out_nobody_elses(
    bob: Session,
) -> None:
    messages, own = PendingFriendMessages(), message()
    messages.hold(own, bob)
    large = [message("eve", size=USER_BYTES_MAX // 4) for _ in range(10)]
    for each in large:
        messages.hold(each, bob)
    assert held(messages) == [own, *large[-3:]]
    # A message that is larger than a share is not held.
    messages.hold(message("eve", size=USER_BYTES_MAX), bob)
    assert held(messages) == []


def test_long_topics_count_too(bob: Session) -> None:
    messages = PendingFriendMessages()
    for _ in range(10):
        messages.hold(message(device="d" * (USER_BYTES_MAX // 4)), bob)
    assert len(messages) == 3


def test_all_together_have_a_bound_beyond_which_the_oldest_go(bob: Session) -> None:
    messages = PendingFriendMessages()
    sent = [message(f"u{number}", size=USER_BYTES_MAX // 2) for number in range(700)]
    for each in sent:
        messages.hold(each, bob)
    kept = held(messages)
    assert kept == sent[-len(kept) :]
    assert 0.9 * BYTES_MAX < len(kept) * USER_BYTES_MAX // 2 <= BYTES_MAX


@pytest.mark.parametrize("size", [10, USER_BYTES_MAX // 2])
def test_the_room_of_what_has_gone_is_free_again(bob: Session, size: int) -> None:
    messages = PendingFriendMessages()
    for number in range(1_000):
        user = f"u{number % 100}"
        messages.hold(message(user, size=size), bob)
        if number % 3 == 0:
            messages.forget_device(f"{user}/phone")
        elif number % 7 == 0:
            held(messages)
    held(messages)
    users = BYTES_MAX // USER_BYTES_MAX - 1
    sent = [message(f"u{number}", size=USER_BYTES_MAX - 600) for number in range(users)]
    for each in sent:
        messages.hold(each, bob)
    assert held(messages) == sent
    sent = [message() for _ in range(USER_MESSAGES_MAX)]
    for each in sent:
        messages.hold(each, bob)
    assert held(messages) == sent


def test_of_an_erased_device_nothing_is_held_and_of_others_all(bob: Session) -> None:
    messages = PendingFriendMessages()
    erased, kept, others = message(), message(device="bike"), message("eve")
    for each in (erased, kept, others):
        messages.hold(each, bob)
    messages.forget_device("ada/phone")
    messages.forget_device("joe/phone")
    assert held(messages) == [kept, others]
