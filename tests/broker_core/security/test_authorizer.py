"""Decisions of the authorizer by its ACLs."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import InvalidRequest
from broker_core.security.acl import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from broker_core.security.authorizer import Authorizer
from broker_core.security.principal import Principal

ANNA, BERT, ROOT = (Principal("User", name) for name in ("anna", "bert", "root"))
HOST = "10.0.0.1"


def rule(
    name: str,
    operation: Operation = Operation.READ,
    *,
    who: str = "User:anna",
    host: str = "*",
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
    kind: ResourceType = ResourceType.TOPIC,
) -> Acl:
    return Acl(kind, name, pattern, who, host, operation, permission)


def authorizer(*rules: Acl, allow_if_no_acl: bool = False) -> Authorizer:
    made = Authorizer(super_users=[ROOT], allow_if_no_acl=allow_if_no_acl)
    made.add(rules)
    return made


def may(
    made: Authorizer,
    who: Principal = ANNA,
    operation: Operation = Operation.READ,
    topic: str = "trips",
    host: str = HOST,
) -> bool:
    return made.allows(who, host, operation, ResourceType.TOPIC, topic)


def test_without_a_rule_nobody_may_but_a_super_user() -> None:
    assert not may(authorizer())
    assert may(authorizer(), ROOT)
    assert may(authorizer(rule("*", Operation.ALL, who="User:*", permission=Permission.DENY)), ROOT)


def test_without_a_rule_everybody_may_where_that_is_set() -> None:
    assert may(authorizer(allow_if_no_acl=True))
    # An ACL for another principal is also an ACL of the resource.
    other = rule("trips", who="User:bert")
    assert not may(authorizer(other, allow_if_no_acl=True))
    assert may(authorizer(other, allow_if_no_acl=True), topic="other")


@pytest.mark.parametrize(
    ("acl", "topics"),
    [
        (rule("trips"), {"trips"}),
        (rule("*"), {"trips", "trips-2", "other"}),
        (rule("trip", pattern=PatternType.PREFIXED), {"trips", "trips-2"}),
        (rule("trips", who="User:*"), {"trips"}),
        (rule("trips", host=HOST), {"trips"}),
        (rule("trips", host="10.0.0.2"), set()),
        (rule("trips", who="User:bert"), set()),
        (rule("trips", Operation.WRITE), set()),
        (rule("trips", Operation.ALL), {"trips"}),
        (rule("trips", kind=ResourceType.GROUP), set()),
        # In a prefixed ACL the asterisk is an ordinary character.
        (rule("*", pattern=PatternType.PREFIXED), set()),
    ],
)
def test_a_rule_lets_through_what_it_names(acl: Acl, topics: set[str]) -> None:
    made = authorizer(acl)
    assert {name for name in ("trips", "trips-2", "other") if may(made, topic=name)} == topics


def test_a_rule_that_denies_wins() -> None:
    made = authorizer(
        rule("*"), rule("trip", pattern=PatternType.PREFIXED, permission=Permission.DENY)
    )
    assert not may(made)
    assert may(made, topic="other")


def test_who_may_write_may_describe_but_who_must_not_write_may_still_describe() -> None:
    made = authorizer(
        rule("trips", Operation.WRITE),
        rule("trips", Operation.READ, permission=Permission.DENY),
        rule("trips", Operation.ALTER_CONFIGS),
    )
    assert may(made, operation=Operation.DESCRIBE)
    assert may(made, operation=Operation.DESCRIBE_CONFIGS)
    assert not may(made, operation=Operation.READ)


def test_a_change_holds_at_once() -> None:
    made = authorizer()
    assert not may(made)
    made.add([rule("trips")])
    assert may(made)
    made.remove([rule("trips")])
    assert not may(made)
    assert len(made) == 0


def test_any_resource_of_a_type() -> None:
    def any_topic(*rules: Acl, allow_if_no_acl: bool = False) -> bool:
        made = authorizer(*rules, allow_if_no_acl=allow_if_no_acl)
        return made.allows_any(ANNA, HOST, Operation.WRITE, ResourceType.TOPIC)

    write = rule("trips", Operation.WRITE)
    assert not any_topic()
    assert any_topic(allow_if_no_acl=True)
    assert any_topic(write)
    deny = Permission.DENY
    assert not any_topic(write, rule("*", Operation.WRITE, permission=deny))
    assert not any_topic(write, rule("trips", Operation.ALL, permission=deny))
    prefix = rule("tr", Operation.WRITE, permission=deny, pattern=PatternType.PREFIXED)
    assert not any_topic(write, prefix)
    assert any_topic(write, rule("other", Operation.WRITE), prefix)
    # What is allowed to others, elsewhere, or of another type does not count.
    for acl in (
        rule("trips", Operation.WRITE, who="User:bert"),
        rule("trips", Operation.WRITE, host="10.0.0.2"),
        rule("trips", Operation.WRITE, kind=ResourceType.GROUP),
    ):
        assert not any_topic(acl)
    # A denial for all topics holds where what has no rule is open to everybody.
    no_topic = rule("*", Operation.WRITE, permission=deny)
    assert not any_topic(no_topic, allow_if_no_acl=True)
    # A denial leaves the topics that it does not name: of the prefix there are others.
    assert any_topic(write, no_topic._replace(pattern_type=PatternType.PREFIXED))
    tr = rule("tr", Operation.WRITE, pattern=PatternType.PREFIXED)
    assert any_topic(tr, rule("tr", Operation.WRITE, permission=deny))


def test_the_bits_of_what_somebody_may_do() -> None:
    made = authorizer(rule("trips"))
    bits = made.authorized_operations(ANNA, HOST, ResourceType.TOPIC, "trips")
    assert bits == (1 << Operation.READ) | (1 << Operation.DESCRIBE)


def test_rules_survive_being_stored() -> None:
    rules = [rule("a"), rule("b", Operation.ALL, permission=Permission.DENY)]
    made = authorizer(*rules)
    again = Authorizer()
    again.load(made.to_stored())
    assert again.to_stored() == made.to_stored()
    assert not again.allows(ANNA, HOST, Operation.READ, ResourceType.TOPIC, "b")


def test_rules_that_are_loaded_replace_those_before() -> None:
    gone = rule("trips"), rule("oth", pattern=PatternType.PREFIXED)
    made = authorizer(*gone)
    assert may(made)
    assert may(made, topic="other")
    made.load(authorizer(rule("new")).to_stored())
    assert may(made, topic="new")
    assert not may(made)
    assert not may(made, topic="other")
    assert made.find(wanted()) == [rule("new")]


def wanted(**more: Any) -> AclFilter:
    asked: Any = {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    return AclFilter.parse(asked | more)


def test_a_filter_finds_by_pattern() -> None:
    literal, everything = rule("trips"), rule("*", who="User:bert")
    prefix = rule("tr", pattern=PatternType.PREFIXED)
    made = authorizer(literal, everything, prefix)
    assert set(made.find(wanted())) == {literal, everything, prefix}
    match = wanted(resource_name_filter="trips", pattern_type_filter=2)
    assert set(made.find(match)) == {literal, everything, prefix}
    exact = wanted(resource_name_filter="trips", pattern_type_filter=3)
    assert made.find(exact) == [literal]
    assert made.find(wanted(pattern_type_filter=4)) == [prefix]
    assert made.find(wanted(principal_filter="User:bert")) == [everything]
    assert made.find(wanted(resource_type_filter=3)) == []
    assert made.find(wanted(resource_name_filter="tr")) == [prefix]


CREATION: Any = {
    "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3,
    "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3,
}  # fmt: skip


@pytest.mark.parametrize(
    "more",
    [
        {"resource_type": 1}, {"resource_type": 99}, {"resource_name": ""},
        {"resource_pattern_type": 2}, {"principal": "anna"}, {"host": ""}, {"operation": 1},
        {"operation": 9}, {"permission_type": 1}, {"resource_type": 4},
    ],
    ids=str,
)  # fmt: skip
def test_a_rule_that_makes_no_sense_is_refused(more: dict[str, Any]) -> None:
    Acl.parse(CREATION)
    with pytest.raises(InvalidRequest):
        Acl.parse(CREATION | more)


def test_a_name_may_be_of_any_length_and_is_not_kept() -> None:
    made = authorizer(rule("mega", pattern=PatternType.PREFIXED), rule("m" * 300, who="User:bert"))
    tracemalloc.start()
    try:
        for number in range(20):
            assert may(made, topic=f"mega{number}" + "x" * 1_000_000)
            assert not may(made, topic=f"kilo{number}" + "x" * 1_000_000)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000


def test_not_all_names_that_a_client_has_asked_about_are_kept() -> None:
    made = authorizer()
    tracemalloc.start()
    try:
        for number in range(40_000):
            may(made, topic=f"{number:0400}")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 15_000_000


def test_a_prefix_that_is_gone_counts_no_more() -> None:
    short, long = (rule(each, pattern=PatternType.PREFIXED) for each in ("tr", "trip"))
    made = authorizer(short, long)
    assert may(made)
    assert may(made, topic="tr")
    made.remove([short])
    assert may(made)
    assert not may(made, topic="tr")
    made.add([short])
    made.remove([long])
    assert may(made)


_NAMES = st.sampled_from(["a", "ab", "abc", "b", "*"])
_RULES = st.builds(
    Acl,
    st.just(ResourceType.TOPIC),
    _NAMES,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["User:anna", "User:bert", "User:*"]),
    st.sampled_from(["*", HOST, "1.1.1.1"]),
    st.sampled_from([Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


@given(st.lists(_RULES, max_size=6), st.sampled_from(["a", "ab", "abc", "b"]), st.booleans())
def test_the_index_decides_as_reading_all_rules_would(
    rules: list[Acl], topic: str, allow_if_no_acl: bool
) -> None:
    made = authorizer(*rules, allow_if_no_acl=allow_if_no_acl)
    operation = Operation.DESCRIBE
    matching = [
        acl
        for acl in set(rules)
        if (
            topic.startswith(acl.resource_name)
            if acl.pattern_type is PatternType.PREFIXED
            else acl.resource_name in {topic, "*"}
        )
    ]
    mine = [
        acl
        for acl in matching
        if acl.principal in {"User:anna", "User:*"} and acl.host in {"*", HOST}
    ]
    denied = any(
        acl.permission is Permission.DENY and acl.operation in {Operation.ALL, operation}
        for acl in mine
    )
    allowed = any(acl.permission is Permission.ALLOW for acl in mine)  # each includes DESCRIBE
    expected = not denied and (allowed or (not matching and allow_if_no_acl))
    assert may(made, operation=operation, topic=topic) is expected
    assert may(made, operation=operation, topic=topic) is expected
