from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt.packets.topics import matches
from gateway.mqtt.rights.acl import AccessRules, intersect, narrow
from gateway.users import auth
from gateway.users.rights import Rights
from tests.gateway.mqtt.in_memory import User

RULES = AccessRules()
ALICE = User("alice")
PHONE = User("alice", "phone")
ADMIN = User("root", admin=True)


@pytest.mark.parametrize(
    ("identity", "topic", "allowed"),
    [
        (ALICE, "owntracks/alice/phone", True),
        (ALICE, "owntracks/alice/phone/event", True),
        (ALICE, "devices/alice/phone/position", True),
        (ALICE, "owntracks/bob/phone", False),
        (ALICE, "owntracks/alice", True),
        (ALICE, "owntracks", False),
        (ALICE, "other/alice/phone", False),
        (ALICE, "devices/alice/phone/address", False),
        (PHONE, "owntracks/alice/phone", True),
        (PHONE, "devices/alice/phone/position", True),
        (PHONE, "owntracks/alice/tablet", False),
        (PHONE, "owntracks/alice", False),
        (User("alice", "alice/phone"), "owntracks/alice/phone", True),
        (ADMIN, "owntracks/bob/phone", True),
        (ADMIN, "anything", True),
        (ADMIN, "$SYS/x", False),
        (ADMIN, "devices/bob/phone/address", False),
        (ALICE, "devices/alice/phone/notice", False),
        (PHONE, "devices/alice/phone/notice", False),
        (ADMIN, "devices/bob/phone/notice", False),
        (User("+"), "owntracks/+/phone", False),
        (User(""), "owntracks//phone", False),
    ],
)
def test_a_user_publishes_to_his_own_topics(identity: User, topic: str, allowed: bool) -> None:
    assert RULES.may_publish(identity, topic) is allowed


@pytest.mark.parametrize(
    ("identity", "topic_filter", "granted"),
    [
        (ALICE, "owntracks/+/+", ("owntracks/alice/+",)),
        (ALICE, "owntracks/+/+/info", ("owntracks/alice/+/info",)),
        (ALICE, "owntracks/alice/#", ("owntracks/alice/#",)),
        (ALICE, "owntracks/#", ("owntracks/alice/#",)),
        (ALICE, "#", ("owntracks/alice/#", "devices/alice/#")),
        (ALICE, "+/+/phone/#", ("owntracks/alice/phone/#", "devices/alice/phone/#")),
        (ALICE, "devices/alice/phone/address", ("devices/alice/phone/address",)),
        (ALICE, "devices/bob/phone/address", ()),
        (ALICE, "owntracks/bob/#", ()),
        (ALICE, "owntracks", ()),
        (ALICE, "$SYS/#", ()),
        (PHONE, "owntracks/+/+", ("owntracks/alice/phone",)),
        (PHONE, "devices/alice/tablet/address", ()),
        (PHONE, "owntracks/alice/#", ("owntracks/alice/phone/#",)),
        (ADMIN, "#", ("#",)),
        (User("+"), "#", ()),
        (User("a/b"), "#", ()),
        (User("#"), "owntracks/#", ()),
    ],
)
def test_a_filter_is_narrowed_to_what_its_owner_may_read(
    identity: User, topic_filter: str, granted: tuple[str, ...]
) -> None:
    assert RULES.granted_filters(identity, topic_filter) == granted


LEVEL = st.sampled_from(["owntracks", "alice", "phone", "x", ""])
TOPIC = st.lists(LEVEL, min_size=1, max_size=5).map("/".join).filter(bool)
FILTER = (
    st.lists(st.one_of(LEVEL, st.just("+")), min_size=1, max_size=5)
    .flatmap(lambda levels: st.sampled_from([levels, [*levels, "#"], ["#"]]))
    .map("/".join)
    .filter(bool)
)


@given(FILTER, TOPIC)
def test_a_narrowed_filter_matches_exactly_what_both_match(topic_filter: str, topic: str) -> None:
    narrowed = narrow(topic_filter, ("owntracks", "alice"))
    # Only below the owner's own levels: "owntracks/alice" itself may be included or not.
    if len(topic.split("/")) <= 2:
        return
    both = matches(topic_filter, topic) and matches("owntracks/alice/#", topic)
    assert (narrowed is not None and matches(narrowed, topic)) is both


@given(FILTER, FILTER, TOPIC)
def test_an_intersection_matches_exactly_what_both_match(one: str, other: str, topic: str) -> None:
    common = intersect(one, other)
    both = matches(one, topic) and matches(other, topic)
    assert (common is not None and matches(common, topic)) is both


TOPICS_AND_SIGHTS = {
    "owntracks/alice/phone": "everything",
    "owntracks/alice/phone/cmd": "everything",
    "owntracks/alice/tablet": "nothing",
    "owntracks/bob/phone": "told",
    "owntracks/bob/phone/event": "told",
    "owntracks/bob/phone/cmd": "nothing",
    "owntracks/bob/phone/waypoints": "nothing",
    "devices/bob/phone/address": "told",
    "devices/bob/phone/note": "nothing",
    "plant/a/b": "everything",
    "owntracks/eve/phone": "nothing",
    "plain": "nothing",
}


def test_friends_and_grants_widen_what_somebody_may_do() -> None:
    rights = Rights(friends={"bob": 0}, publish=("plant/+/state",), subscribe=("plant/#", "shop/+"))
    alice = auth.Identity("alice", rights=rights)
    assert RULES.granted_filters(alice, "owntracks/+/+") == ("owntracks/alice/+", "owntracks/bob/+")
    assert RULES.granted_filters(alice, "owntracks/bob/phone/cmd") == ()
    assert RULES.granted_filters(alice, "owntracks/bob/phone/info") == ("owntracks/bob/phone/info",)
    assert RULES.granted_filters(alice, "plant/a/b") == ("plant/a/b",)
    assert RULES.granted_filters(alice, "shop/a/b") == ()
    assert RULES.may_publish(alice, "plant/a/state")
    assert not RULES.may_publish(alice, "plant/a/b")
    assert not RULES.may_publish(alice, "owntracks/bob/phone")
    phone = auth.Identity("alice", "phone", rights=rights)
    # OwnTracks shows friends on a phone, but not the owner's other devices.
    assert RULES.granted_filters(phone, "owntracks/+/+") == (
        "owntracks/alice/phone",
        "owntracks/bob/+",
    )
    sights = {topic: RULES.visibility_of(phone, topic).value for topic in TOPICS_AND_SIGHTS}
    assert sights == TOPICS_AND_SIGHTS
    assert RULES.reaches_friends(phone, ("owntracks/alice/phone", "owntracks/bob/+"))
    assert not RULES.reaches_friends(phone, ("owntracks/alice/phone", "plant/#"))


def test_who_may_only_look_publishes_nothing() -> None:
    viewer = auth.Identity("alice", rights=Rights(may_send=False))
    assert not RULES.may_publish(viewer, "owntracks/alice/phone")
    assert RULES.granted_filters(viewer, "owntracks/+/+") == ("owntracks/alice/+",)
