"""Members of a share group (KIP-932), which get records under a lock and acknowledge each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from broker_core import errors
from broker_core.coordinator.sharing.share_partition import AcknowledgeType
from broker_core.protocol.definitions import (
    INCREMENTAL_ALTER_CONFIGS,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_HEARTBEAT,
)
from broker_core.protocol.record_reader import iterate_records
from tests.simulation.joined.client import Body, Client, Place

_GROUP_RESOURCE: Final = 32
_RETRY_S: Final = 0.08
_SETTINGS: Final = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": "1000",
    "share.delivery.count.limit": "10",
}


class _Session:
    """A share session with one broker."""

    def __init__(self) -> None:
        self.epoch = 0

    def next(self) -> int:
        epoch, self.epoch = self.epoch, self.epoch + 1
        return epoch


class ShareMember(Client):
    """Reads what it is assigned, accepts most records, releases some."""

    topic = "data"
    group = "workers"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._epoch = 0
        self._assigned: list[Place] = []
        self._sessions: dict[int, _Session] = {}

    async def run(self) -> None:
        """See Client; members never stop, since the last records have to be read too."""
        while not await self._configure():
            await self.pause(_RETRY_S)
        while True:
            await self.refresh(self.topic)
            await self._heartbeat()
            for _ in range(5):
                for leader, places in (await self._by_leader()).items():
                    await self._read(leader, places)
                await self.pause(0.05)

    async def _configure(self) -> bool:
        resource = {
            "resource_type": _GROUP_RESOURCE,
            "resource_name": self.group,
            "configs": [
                {"name": name, "config_operation": 0, "value": value}
                for name, value in _SETTINGS.items()
            ],
        }
        answer = await self.ask(
            self.any_broker(),
            INCREMENTAL_ALTER_CONFIGS,
            1,
            {"resources": [resource], "validate_only": False},
        )
        return answer is not None and not answer["responses"][0]["error_code"]

    async def _heartbeat(self) -> None:
        is_joining = self._epoch == 0
        answer = await self.ask_coordinator(
            self.group,
            0,
            SHARE_GROUP_HEARTBEAT,
            1,
            {
                "group_id": self.group,
                "member_id": self.name,
                "member_epoch": self._epoch,
                "rack_id": None,
                "subscribed_topic_names": [self.topic] if is_joining else None,
            },
        )
        if answer is None:
            return
        if answer["error_code"]:
            if answer["error_code"] in {
                errors.UnknownMemberId.code,
                errors.FencedMemberEpoch.code,
                errors.GroupIdNotFound.code,
            }:
                self._epoch = 0
            return
        self._epoch = answer["member_epoch"]
        if answer["assignment"] is not None:
            self._assigned = [
                (self.topic, partition)
                for each in answer["assignment"]["topic_partitions"]
                for partition in each["partitions"]
            ]
            self.note(f"shares {self._assigned} in {self._epoch}")

    async def _by_leader(self) -> dict[int, list[Place]]:
        found: dict[int, list[Place]] = {}
        for place in self._assigned:
            leader = await self.leader(place)
            if leader is None:
                self.forget(place)
            else:
                found.setdefault(leader, []).append(place)
        return found

    def _body(self, session: _Session, places: list[Place], answers: dict[int, list[Body]]) -> Body:
        partitions = [
            {
                "partition_index": place[1],
                "acknowledgement_batches": answers.get(place[1], []),
            }
            for place in places
        ]
        return {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": session.next(),
            "max_wait_ms": 50,
            "min_bytes": 1,
            "max_bytes": 100_000,
            "max_records": self.world.random.choice((1, 20)),
            "batch_size": 20,
            "topics": [{"topic_id": self.topic_id(self.topic), "partitions": partitions}],
            "forgotten_topics_data": [],
        }

    async def _read(self, leader: int, places: list[Place]) -> None:
        session = self._sessions.setdefault(leader, _Session())
        began = self.world.now
        answer = await self.ask(leader, SHARE_FETCH, 2, self._body(session, places, {}))
        if answer is None or answer["error_code"]:
            # Without an answer the connection is closed, and the session ends with it.
            self._sessions.pop(leader, None)
            await self.pause(_RETRY_S)
            return
        answers: dict[int, list[Body]] = {}
        given: dict[Place, tuple[int, list[int]]] = {}
        for place, each in self._served(answer):
            offsets = [
                offset
                for run in each["acquired_records"]
                for offset in range(run["first_offset"], run["last_offset"] + 1)
            ]
            values = {record[0]: record[3] for record in iterate_records(bytes(each["records"]))}
            epoch = each["current_leader"]["leader_epoch"]
            for offset in offsets:
                if offset in values:
                    self.checker.read(place, offset, values[offset] or b"")
                self.checker.shared(self.group, place, offset, epoch, began)
            given[place] = epoch, offsets
            answers[place[1]] = [self._answer(offset) for offset in offsets]
        if given:
            await self._acknowledge(leader, session, given, answers)

    def _served(self, answer: Body) -> Iterator[tuple[Place, Body]]:
        """Yield the partitions of an answer; forget the leaders of those with an error."""
        for topic in answer["responses"]:
            for each in topic["partitions"]:
                place = self.topic, each["partition_index"]
                if each["error_code"]:
                    self.forget(place)
                else:
                    yield place, each

    def _answer(self, offset: int) -> Body:
        kind = (
            AcknowledgeType.RELEASE if self.world.random.random() < 0.1 else AcknowledgeType.ACCEPT
        )
        return {"first_offset": offset, "last_offset": offset, "acknowledge_types": [int(kind)]}

    async def _acknowledge(
        self,
        leader: int,
        session: _Session,
        given: dict[Place, tuple[int, list[int]]],
        answers: dict[int, list[Body]],
    ) -> None:
        answer = await self.ask(
            leader, SHARE_ACKNOWLEDGE, 2, self._body(session, list(given), answers)
        )
        if answer is None or answer["error_code"]:
            self._sessions.pop(leader, None)
            return
        for place, _ in self._served(answer):
            epoch, _ = given[place]
            accepted = [
                one["first_offset"]
                for one in answers[place[1]]
                if one["acknowledge_types"] == [AcknowledgeType.ACCEPT]
            ]
            self.checker.accepted(self.group, place, accepted, epoch, self.world.now)
