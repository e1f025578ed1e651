"""Whatever members of one classic group send, and in whatever order, the coordinator goes on."""

from __future__ import annotations

import random

import pytest

from broker_core.coordinator.groups.group import Group
from tests.broker_core.coordinator.groups.driver import Driver

INSTANCES = (None, None, "i1", "i2")
UNKNOWN = "somebody"


def check(group: Group) -> None:
    """Check what of a group's roster must fit together."""
    roster = group.roster
    instances = {
        each.instance_id: each.member_id
        for each in group.members.values()
        if each.instance_id is not None
    }
    assert roster.static_members == instances
    assert (roster.leader in group.members) == bool(group.members)
    assert not roster.pending.keys() & group.members.keys()


@pytest.mark.parametrize("seed", range(200))
def test_no_order_of_requests_breaks_a_group(seed: int) -> None:
    dice = random.Random(seed)
    driver = Driver(session_timeout_min_ms=1)
    ids = [UNKNOWN]

    def member_id() -> str:
        return dice.choice(["", *ids[-6:]])

    for number in range(120):
        token = str(number)
        what = dice.random()
        if what < 0.45:
            driver.join(
                token,
                member_id(),
                instance_id=dice.choice(INSTANCES),
                protocols=dice.choice((("range",), ("range", "other"), ("other",))),
                session_timeout_ms=dice.choice((100, 1_000)),
                rebalance_timeout_ms=dice.choice((-1, 0, 100, 1_000)),
                require_known_member_id=dice.random() < 0.5,
            )
        elif what < 0.6:
            known = driver.coordinator.groups.get("g")
            generation = known.generation if isinstance(known, Group) else 0
            driver.sync(token, member_id(), generation + dice.choice((0, 0, 0, 1)))
        elif what < 0.7:
            driver.heartbeat(member_id(), dice.randrange(4), dice.choice(INSTANCES))
        elif what < 0.8:
            driver.leave(member_id(), dice.choice(INSTANCES))
        elif what < 0.85:
            driver.disk_works = not driver.disk_works
        elif what < 0.88:
            driver.restart()
        else:
            driver.advance(dice.choice((10, 100, 1_000, 5_000)))
        ids += [
            answer["member_id"] for answer in driver.answers.values() if answer.get("member_id")
        ]
        group = driver.coordinator.groups.get("g")
        if isinstance(group, Group):
            check(group)
    driver.disk_works = True
    driver.advance(100_000)
