"""Questions about what is retained: their order, their number, and what becomes of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.topics import Subscription
from gateway.mqtt.requests import AnswerLate, RelayUnavailable
from gateway.mqtt.rights.acl import AccessRules
from gateway.mqtt.sessions.push import may_be_derived
from gateway.mqtt.workers.relay import Relay
from gateway.mqtt.workers.relay_client import RelayClient
from gateway.mqtt.workers.retained_questions import (
    UNDER_WAY_EACH,
    UNDER_WAY_MAX,
    RetainedQuestions,
)
from gateway.mqtt.workers.worker_hub import WorkerHub
from tests.gateway.mqtt.in_memory import User, Wire, eventually, new_router

Answer = list[tuple[str, bytes, None]]


class Gateway:
    """The gateway with the views; the test decides when it answers."""

    def __init__(self) -> None:
        self.is_open = True
        self.asked: list[tuple[str, str]] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.late: list[Callable[[Any], object]] = []

    async def request(
        self, kind: str, *arguments: Any, user: str, late: Callable[[Any], object] | None = None
    ) -> Any:
        assert kind == "retained" and late is not None
        topic_filter, asker = arguments
        assert asker == user
        self.asked.append((user, topic_filter))
        self.late.append(late)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.futures.append(future)
        return await future

    def answer(self, number: int, error: Exception | None = None) -> None:
        future = self.futures[number]
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result([(self.asked[number][1], b"retained", None)])

    def answer_all(self) -> None:
        for number, future in enumerate(self.futures):
            if not future.done():
                self.answer(number)


class Bench:
    """Clients of one worker, whose questions go to a gateway."""

    def __init__(self, rules: AccessRules | None = None) -> None:
        self.gateway = Gateway()
        self.router = new_router(rules=rules)
        self.came: list[tuple[Subscription, list[Message]]] = []
        self.questions = RetainedQuestions(self.gateway, self._take)
        self.router.retained_delivery.questions = self.questions

    def _take(
        self, subscription: Subscription, topic_filter: str, messages: list[Message], stored: bool
    ) -> None:
        self.router.retained_delivery.came(
            subscription, topic_filter, messages, 0.0, with_stored=stored
        )
        if messages:
            self.came.append((subscription, messages))

    def client(self, user: str, name: str = "c", *, clean: bool = False) -> Wire:
        wire = Wire(self.router)
        wire.connect(name, User(user), clean=clean)
        return wire

    async def settled(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    def users(self) -> list[str]:
        return [user for user, _ in self.gateway.asked]


async def test_of_one_user_few_questions_are_under_way_and_another_is_asked_at_once() -> None:
    bench = Bench()
    eve = bench.client("eve")
    for number in range(100):
        eve.subscribe(f"devices/eve/d{number}/address")
    bob = bench.client("bob")
    bob.subscribe("devices/bob/phone/address")
    await bench.settled()
    assert bench.users() == ["eve"] * UNDER_WAY_EACH + ["bob"]
    assert bench.questions.waiting == 100 - UNDER_WAY_EACH
    bench.gateway.answer(UNDER_WAY_EACH)
    await bench.settled()
    assert [each.topic_filter for each, _ in bench.came] == ["devices/bob/phone/address"]
    while len(bench.came) < 101:
        bench.gateway.answer_all()
        await bench.settled()
    assert not len(bench.questions) and not bench.questions.waiting


async def test_where_all_places_are_taken_users_take_turns() -> None:
    bench = Bench()
    users = [f"u{number}" for number in range(UNDER_WAY_MAX // UNDER_WAY_EACH)]
    for user in users:
        client = bench.client(user)
        for number in range(50):
            client.subscribe(f"devices/{user}/d{number}/address")
    bench.client("bob").subscribe("devices/bob/phone/address")
    await bench.settled()
    assert len(bench.gateway.asked) == UNDER_WAY_MAX and "bob" not in bench.users()
    for number in range(len(users)):
        bench.gateway.answer(number)
    await bench.settled()
    assert "bob" in bench.users()


async def test_the_clients_of_a_user_take_turns() -> None:
    bench = Bench()
    first = bench.client("eve", "first")
    for number in range(100):
        first.subscribe(f"devices/eve/d{number}/address")
    bench.client("eve", "second").subscribe("devices/eve/phone/address")
    await bench.settled()
    bench.gateway.answer(0)
    bench.gateway.answer(1)
    await bench.settled()
    assert ("eve", "devices/eve/phone/address") in bench.gateway.asked


async def test_what_a_client_that_is_away_has_not_been_sent_is_asked_when_it_is_back() -> None:
    bench = Bench()
    eve = bench.client("eve")
    for number in range(20):
        eve.subscribe(f"devices/eve/d{number}/address")
    await bench.settled()
    eve.connection.lost(0.0)
    bench.gateway.answer_all()
    await bench.settled()
    assert len(bench.gateway.asked) == UNDER_WAY_EACH
    assert bench.questions.waiting == 20 - UNDER_WAY_EACH
    # Should she come back to another worker, that one has to ask.
    backlog = bench.router.sessions["eve", "c"].backlog
    assert backlog is not None and len(backlog) == 20
    assert all(subscription.awaits_retained for subscription, _ in backlog.values())
    bench.client("eve")
    while len(bench.came) < 20:
        bench.gateway.answer_all()
        await bench.settled()
    assert len({each.topic_filter for each, _ in bench.came}) == 20
    assert not bench.questions.waiting


async def test_for_who_is_away_nothing_is_asked_until_the_client_is_back() -> None:
    bench = Bench()
    eve = bench.client("eve")
    eve.subscribe("devices/eve/phone/note")
    subscription = bench.router.sessions["eve", "c"].subscriptions["devices/eve/phone/note"]
    subscription.granted_filters = ("devices/eve/phone/address",)
    eve.connection.lost(0.0)
    bench.questions.ask(subscription, subscription.granted_filters, with_stored=False)
    await bench.settled()
    assert not bench.gateway.asked and bench.questions.waiting == 1
    bench.client("eve")
    await bench.settled()
    assert bench.gateway.asked == [("eve", "devices/eve/phone/address")]
    bench.gateway.answer_all()
    await bench.settled()


async def test_what_friends_are_told_of_a_message_comes_with_its_answer() -> None:
    bench = Bench()
    bench.client("bob").subscribe("devices/bob/phone/address")
    await bench.settled()
    bench.gateway.futures[0].set_result([("devices/bob/phone/address", b"x", b"parts")])
    await bench.settled()
    assert [each.card_parts for _, messages in bench.came for each in messages] == [b"parts"]


async def test_of_subscriptions_that_have_ended_nothing_is_kept() -> None:
    bench = Bench()
    eve = bench.client("eve", clean=True)
    for _ in range(50):
        eve.subscribe("devices/eve/phone/address")
    assert bench.questions.waiting <= 1
    for number in range(50):
        eve.subscribe(f"devices/eve/d{number}/address")
    away = bench.client("eve", "away")
    for number in range(50):
        away.subscribe(f"devices/eve/d{number}/address")
    away.connection.lost(0.0)
    eve.connection.lost(0.0)
    bench.router.end(bench.router.sessions["eve", "away"])
    await bench.settled()
    assert not bench.questions.waiting
    bench.gateway.answer_all()
    await bench.settled()
    assert len(bench.gateway.asked) <= UNDER_WAY_EACH and not len(bench.questions)


async def test_an_answer_that_comes_late_is_sent() -> None:
    bench = Bench()
    bench.client("bob").subscribe("devices/bob/phone/address")
    await bench.settled()
    bench.gateway.answer(0, AnswerLate())
    await bench.settled()
    assert len(bench.questions) == 1
    found: Answer = [("devices/bob/phone/address", b"late", None)]
    bench.gateway.late[0](found)
    await bench.settled()
    assert [each.payload for _, messages in bench.came for each in messages] == [b"late"]


async def test_a_question_that_the_gateway_took_with_it_is_asked_again() -> None:
    bench = Bench()
    bob = bench.client("bob")
    bob.subscribe("devices/bob/phone/address")
    await bench.settled()
    bench.gateway.is_open = False
    bench.gateway.answer(0, RelayUnavailable())
    await bench.settled()
    assert len(bench.gateway.asked) == 1
    bench.gateway.is_open = True
    bench.questions.opened()
    await bench.settled()
    bench.gateway.answer(1)
    await bench.settled()
    assert len(bench.came) == 1


async def test_a_late_answer_that_the_gateway_took_with_it_is_asked_for_again() -> None:
    bench = Bench()
    bench.client("bob").subscribe("devices/bob/phone/address")
    await bench.settled()
    bench.gateway.answer(0, AnswerLate())
    await bench.settled()
    bench.gateway.is_open = False
    bench.gateway.late[0](None)
    await bench.settled()
    bench.gateway.is_open = True
    bench.questions.opened()
    await bench.settled()
    assert bench.gateway.asked == [("bob", "devices/bob/phone/address")] * 2
    bench.gateway.answer(1)
    await bench.settled()
    assert len(bench.came) == 1


async def test_nothing_is_asked_again_for_a_subscription_that_has_ended() -> None:
    bench = Bench()
    bench.client("bob").subscribe("devices/bob/phone/address")
    await bench.settled()
    session = bench.router.sessions["bob", "c"]
    bench.router.unsubscribe(session, "devices/bob/phone/address")
    bench.gateway.is_open = False
    bench.gateway.answer(0, RelayUnavailable())
    await bench.settled()
    assert not bench.questions.waiting


class Revocable(AccessRules):
    """Rules that no longer let a user read what another one sends."""

    is_revoked = False

    def granted_filters(self, identity: Any, topic_filter: str) -> tuple[str, ...]:
        return () if self.is_revoked else (topic_filter,)


async def test_nothing_is_asked_that_a_client_may_not_read_any_more() -> None:
    rules = Revocable()
    bench = Bench(rules)
    eve = bench.client("eve")
    for number in range(UNDER_WAY_EACH + 5):
        eve.subscribe(f"devices/ada/d{number}/address")
    await bench.settled()
    rules.is_revoked = True
    session = bench.router.sessions["eve", "c"]
    bench.router.right_changes.identify(session, User("eve", admin=True), 0.0)
    await bench.settled()
    bench.gateway.answer_all()
    await bench.settled()
    assert len(bench.gateway.asked) == UNDER_WAY_EACH
    assert not bench.questions.waiting and not len(bench.questions)


async def test_what_is_stored_here_still_waits_for_a_question_that_is_asked_once_more() -> None:
    bench = Bench()
    topic = "owntracks/bob/phone"
    bench.router.publish(Message(topic, b'{"_type":"lwt"}', 1, True), None, 0.0)
    bench.gateway.is_open = False
    bob = bench.client("bob")
    bob.subscribe(topic)
    subscription = bench.router.sessions["bob", "c"].subscriptions[topic]
    bench.questions.ask(subscription, (topic,), with_stored=False)
    bench.gateway.is_open = True
    bench.questions.opened()
    await bench.settled()
    assert b"lwt" not in bob.received()
    bench.gateway.futures[0].set_result([])
    await bench.settled()
    assert b"lwt" in bob.received()


async def test_many_subscribers_that_get_nothing_are_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    bench = Bench()
    eve = bench.client("eve")
    for number in range(30):
        eve.subscribe(f"devices/eve/d{number}/address")
    await bench.settled()
    while any(not each.done() for each in bench.gateway.futures):
        for number, future in enumerate(bench.gateway.futures):
            if not future.done():
                bench.gateway.answer(number, RelayUnavailable())
        await bench.settled()
    assert len(bench.gateway.asked) == 30
    assert caplog.text.count("gets only what is retained at this worker") == 1


@pytest.mark.parametrize(
    ("topic_filter", "may_be"),
    [
        ("#", True),
        ("+/+/+", True),
        ("devices/ada/phone/address", True),
        ("devices/ada/phone/address/#", True),
        ("devices/+/#", True),
        ("+/ada/phone/+", True),
        ("owntracks/ada/phone", True),
        ("owntracks/ada/+/info", True),
        ("devices/ada/phone", False),
        ("devices/ada/phone/note", False),
        ("devices/ada/+/info", False),
        ("owntracks/ada/+/7/+/#", False),
        ("owntracks/ada/phone/event", False),
        ("plant/#", False),
        ("owntracks/+", False),
    ],
)
def test_only_filters_that_may_match_what_the_views_make_are_asked_about(
    topic_filter: str, may_be: bool
) -> None:
    assert may_be_derived(topic_filter) is may_be


class LongSearches:
    """Views in which a search for Eve takes many steps; they count them."""

    steps = 0

    def newest_raw(self, device: str) -> bytes | None:
        return None

    def retained(self, topic_filter: str) -> Iterator[Message | None]:
        if topic_filter.startswith("devices/eve"):
            for _ in range(500):
                self.steps += 1
                yield None
        yield Message(topic_filter, b"retained", 1, True)


async def test_a_search_for_one_user_does_not_wait_for_those_of_another(tmp_path: Path) -> None:
    views = LongSearches()
    loop = asyncio.get_running_loop()
    relay = Relay(views, views, WorkerHub(loop.call_later, lambda *_: False))
    await relay.start(tmp_path / "relay")
    client = RelayClient(tmp_path / "relay", *[lambda *_: None] * 3)
    running = asyncio.create_task(client.run())
    await client.connected.wait()
    asked = [
        asyncio.create_task(client.request("retained", "devices/eve/#", "eve", user="eve"))
        for _ in range(200)
    ]
    await eventually(lambda: views.steps > 0)
    found = await client.request("retained", "devices/bob/#", "bob", user="bob")
    assert found == [["devices/bob/#", b"retained", None]]
    assert views.steps < 200 * 500 // 2
    for answer in asked:
        assert len(await answer) == 1
    running.cancel()
    await relay.close()
