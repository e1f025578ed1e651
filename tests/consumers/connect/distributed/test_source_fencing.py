"""Which task of an exactly-once source may begin (KIP-618), with configurations in a real topic."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.distributed.distributed_settings import distributed_settings
from consumers.connect.distributed.leader_client import LeaderClient
from consumers.connect.distributed.shared_log import shared_log
from consumers.connect.distributed.source_fencing import SourceFencing
from consumers.connect.group.assignor import Assignor
from consumers.connect.group.member import Member
from consumers.connect.group.work import Work
from consumers.connect.storage.configurations import Properties, PutConnector, PutFencing, PutTasks
from consumers.connect.storage.states import TaskId
from consumers.connect.tasks.client_properties import ClientProperties
from consumers.connect.topics.config_store import ConfigStore
from consumers.connect.topics.internal_topics import ensure_internal_topics
from consumers.connect.topics.offset_store import OffsetTopicStore
from consumers.connect.topics.status_store import StatusTopicStore
from consumers.connect.worker.worker_settings import make_variables
from tests.consumers.connect.connect_process import group_properties

TASK, PROPERTIES = TaskId("in", 0), {"file": "a.txt"}


class World(NamedTuple):
    """A worker that is alone in its group."""

    config: ConfigStore
    member: Member
    sources: SourceFencing
    held: set[str]  # empty: the group has missed the worker

    async def may_begin(self, properties: Properties = PROPERTIES) -> bool:
        """Ask as a task does, in a thread of its own."""
        assert self.sources.exactly_once is not None
        try:
            await asyncio.to_thread(self.sources.exactly_once.verify, TASK, properties)
        except ConnectException:
            return False
        return True

    def assign(self, work: Work) -> None:
        """Have the worker lead a new generation, in which all that is configured is `work`."""
        member, generation = self.member, self.member.generation + 1
        joined = {"me": dict(member.offered(0))[member.protocol]}
        member.joined("me", generation, member.protocol)
        member.synced(member.lead(joined, work, 0, generation)["me"])


@pytest.fixture
async def world(servers: str) -> AsyncIterator[World]:
    properties = {
        "bootstrap.servers": servers,
        "key.converter": "StringConverter",
        "value.converter": "StringConverter",
        "exactly.once.source.support": "enabled",
        **group_properties(f"fencing-{uuid.uuid4().hex[:8]}"),
    }
    variables = make_variables(properties, lambda _: "", {})
    settings = distributed_settings(properties, variables)
    ensure_internal_topics(ClientProperties(servers, {}, {}).admin("tests"), settings.topics)
    loop, held = asyncio.get_running_loop(), {"held"}
    config = ConfigStore(settings.config_topic.name, loop, lambda _: None)
    log = shared_log(
        settings,
        config,
        StatusTopicStore(settings.status_topic.name, loop, lambda _: None),
        OffsetTopicStore(settings.offset_topic.name, 5.0, lambda: True),
    )
    member = Member("http://me:1/", settings.protocol, Assignor(0))
    leader = LeaderClient(settings.signature_algorithm)
    sources = SourceFencing(settings, member, config, leader, lambda: bool(held))
    await asyncio.to_thread(log.start)
    world = World(config, member, sources, held)
    world.assign(Work.of(("in",), (TASK,)))
    await config.write(PutConnector("in", {"name": "in"}))
    yield world
    await leader.close()
    await asyncio.to_thread(log.close)


async def test_a_task_begins_once_former_ones_are_fenced(world: World) -> None:
    await world.config.write(PutTasks("in", [PROPERTIES]))
    assert not await world.may_begin()
    await world.config.write(PutFencing("in", 1))
    assert await world.may_begin()
    # The same tasks again: those that run may still write.
    await world.config.write(PutTasks("in", [PROPERTIES]))
    assert not await world.may_begin()


async def test_a_task_with_other_properties_does_not_begin(world: World) -> None:
    await world.config.write(PutTasks("in", [PROPERTIES]))
    await world.config.write(PutFencing("in", 1))
    assert not await world.may_begin({"file": "b.txt"})


async def test_a_task_begins_only_where_it_is_assigned(world: World) -> None:
    await world.config.write(PutTasks("in", [PROPERTIES]))
    await world.config.write(PutFencing("in", 1))
    world.assign(Work.of(("in",)))
    assert not await world.may_begin()
    world.assign(Work.of(("in",), (TASK,)))
    assert await world.may_begin()
    world.held.clear()
    assert not await world.may_begin()
