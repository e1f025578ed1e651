"""Members of a group on a real broker: removed, alone with a silent broker, not wanted."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from consumers.connect.group.assignor import Assignor
from consumers.connect.group.member import Member
from consumers.connect.group.membership import GroupTiming, Membership, NotAMember
from consumers.connect.group.protocol import SESSIONED
from consumers.connect.group.work import Work
from consumers.connect.storage.states import TaskId
from tests.contract.broker_process import BrokerProcess
from waylog.kafka.connection.security import PLAINTEXT
from waylog.kafka.group_coordinator import GroupCoordinator

WAIT_S = 60.0
WORK = Work.of(("a",), (TaskId("a", 0), TaskId("a", 1)))
TIMING = GroupTiming(session_timeout_ms=30_000, heartbeat_interval_ms=100)
#: For a member that is to miss the group, a third of it before the group misses the member.
SHORT = GroupTiming(session_timeout_ms=15_000, heartbeat_interval_ms=100)


class World:
    """One member, what it is about, and what it has been told."""

    def __init__(self, servers: str, group: str, timing: GroupTiming = TIMING) -> None:
        self.offset = 5
        self.woken = asyncio.Event()
        self.cut_off: list[Work] = []
        self.group = group
        self.member = Member("http://w:1/", SESSIONED, Assignor(1_000))
        self.membership = Membership(
            GroupCoordinator(servers, "tests", group, PLAINTEXT),
            self.member,
            timing,
            self,
            wake=self.woken.set,
            cut_off=self.cut_off.append,
        )

    def configured(self) -> Work:
        return WORK

    async def refresh(self) -> bool:
        return True

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.01)


@pytest.fixture
def group() -> str:
    return f"members-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def world(servers: str, group: str) -> AsyncIterator[World]:
    world = World(servers, group)
    yield world
    await world.membership.close()


async def test_a_member_gets_work_and_keeps_it(world: World) -> None:
    assignment = await world.membership.join()
    assert assignment.work == world.member.work == WORK
    assert world.member.is_leader
    assert world.membership.is_held
    assert not world.membership.must_join


async def test_a_member_that_was_removed_joins_with_another_id_and_its_work(
    world: World, servers: str
) -> None:
    await world.membership.join()
    former = world.member.member_id
    world.woken.clear()
    other = GroupCoordinator(servers, "tests", world.group, PLAINTEXT)
    assert await other.leave(former, WAIT_S) == 0
    other.close()
    async with asyncio.timeout(WAIT_S):
        await world.woken.wait()
    assert world.membership.must_join
    assignment = await world.membership.join()
    assert world.member.member_id != former
    assert assignment.work == WORK
    assert assignment.revoked.is_empty
    assert world.cut_off == []


async def test_a_second_member_has_the_first_one_join_again(world: World, servers: str) -> None:
    await world.membership.join()
    world.woken.clear()
    second = World(servers, world.group)
    joining = asyncio.ensure_future(second.membership.join())
    async with asyncio.timeout(WAIT_S):
        await world.woken.wait()
    await asyncio.gather(world.membership.join(), joining)
    assert world.member.is_leader
    assert second.member.leader_url == "http://w:1/"
    assert second.member.work.plus(world.member.work).minus(WORK).is_empty
    await second.membership.leave()
    await second.membership.close()


async def test_a_member_without_answers_gives_its_work_up_in_time(
    tmp_path: Path, group: str
) -> None:
    broker = BrokerProcess(tmp_path)
    servers = broker.start()
    world = World(servers, group, SHORT)
    await world.membership.join()
    os.kill(broker.pid, signal.SIGSTOP)
    stopped_at = asyncio.get_running_loop().time()
    await world.until(lambda: world.cut_off)
    waited_s = asyncio.get_running_loop().time() - stopped_at
    assert world.cut_off == [WORK]
    assert waited_s < SHORT.session_timeout_ms / 1000
    assert world.member.work.is_empty
    assert not world.membership.is_held
    assert world.membership.must_join
    os.kill(broker.pid, signal.SIGCONT)
    assignment = await world.membership.join()
    assert assignment.work == WORK
    assert world.membership.is_held
    await world.membership.close()
    broker.stop()


async def test_a_member_with_a_wrong_setting_is_told(servers: str, group: str) -> None:
    world = World(servers, group, GroupTiming(session_timeout_ms=10_000_000))
    with pytest.raises(NotAMember, match="the group does not take this worker"):
        await world.membership.join()
    await world.membership.close()
