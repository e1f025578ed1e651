"""Consumers: readers of whole partitions, and members of classic and KIP-848 groups."""

from __future__ import annotations

from typing import Any

from broker_core import errors
from broker_core.protocol.definitions import (
    CONSUMER_GROUP_HEARTBEAT,
    FETCH,
    HEARTBEAT,
    JOIN_GROUP,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from broker_core.protocol.record_reader import read_records
from broker_core.protocol.stored_batches import scan_batches
from tests.simulation.joined.checker import NO_VALUE
from tests.simulation.joined.client import AGAIN, Body, Client, Place

_TOPIC_VERSION = 12  # names, not ids
_RETRY_S = 0.08

_REJOIN = frozenset(
    each.code
    for each in (
        errors.UnknownMemberId,
        errors.IllegalGeneration,
        errors.RebalanceInProgress,
        errors.FencedMemberEpoch,
        errors.StaleMemberEpoch,
        errors.FencedInstanceId,
    )
)


class Reading(Client):
    """A client that fetches."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: The next offset of each partition.
        self.positions: dict[Place, int] = {}
        self._aborted: dict[Place, set[int]] = {}
        self.reads_committed = False

    async def fetch(self, place: Place, *, wait_ms: int = 50) -> bool:
        """Fetch the next records of a partition; return whether any came."""
        leader = await self.leader(place)
        if leader is None:
            self.forget(place)
            await self.pause(_RETRY_S)
            return False
        node_id, epoch = leader, self.leader_epochs[place]
        if self.world.random.random() < 0.1:
            # Followers serve too. The epoch is sent along: without it, a new leader could deliver
            # records that a former one, which does not know of it, does not have.
            node_id = self.any_broker()
        position = self.positions.setdefault(place, 0)
        answer = await self.ask(
            node_id,
            FETCH,
            _TOPIC_VERSION,
            {
                "max_wait_ms": wait_ms,
                "min_bytes": 1,
                "max_bytes": 100_000,
                "isolation_level": int(self.reads_committed),
                "session_id": 0,
                "session_epoch": -1,
                "topics": [
                    {
                        "topic": place[0],
                        "partitions": [
                            {
                                "partition": place[1],
                                "current_leader_epoch": epoch,
                                "fetch_offset": position,
                                "partition_max_bytes": self.world.random.choice((500, 50_000)),
                            }
                        ],
                    }
                ],
                "forgotten_topics_data": [],
                "rack_id": "",
            },
        )
        if answer is None or answer["error_code"] or not answer["responses"]:
            self.forget(place)
            await self.pause(_RETRY_S)
            return False
        each = answer["responses"][0]["partitions"][0]
        code = each["error_code"]
        if code in AGAIN or (code == errors.OffsetOutOfRange.code and node_id != leader):
            # A follower may not know yet how much its leader has committed.
            self.forget(place)
            await self.pause(_RETRY_S)
            return False
        if code != errors.NONE:
            raise self.violated(f"fetching {place} at {position} fails with {code}")
        if self.positions[place] != position:
            return False
        return self._take(place, each)

    def _take(self, place: Place, each: Body) -> bool:
        records = each["records"]
        headers, size, reason = scan_batches(records)
        if reason is not None and size == 0 and len(records) > 50_000:
            raise self.violated(f"{place}: {reason}")
        position = self.positions[place]
        aborted = self._aborted.setdefault(place, set())
        beginnings = sorted(
            (entry["first_offset"], entry["producer_id"])
            for entry in each["aborted_transactions"] or ()
        )
        limit = each["last_stable_offset"] if self.reads_committed else each["high_watermark"]
        for header in headers:
            if header.last_offset < position:
                continue
            if header.base_offset > position:
                raise self.violated(f"{place}: a hole from {position} to {header.base_offset}")
            if header.last_offset >= limit:
                raise self.violated(f"{place}: {header.last_offset} is shown, {limit} is the end")
            while beginnings and beginnings[0][0] <= header.last_offset:
                aborted.add(beginnings.pop(0)[1])
            if header.is_control:
                aborted.discard(header.producer_id)
                self.checker.read(place, header.base_offset, NO_VALUE)
            else:
                is_shown = not (header.is_transactional and header.producer_id in aborted)
                for offset, _, _, value, _ in read_records(records, header):
                    if offset < position:
                        continue
                    if self.reads_committed and is_shown:
                        self.checker.read_committed(place, offset, value or b"")
                    else:
                        self.checker.read(place, offset, value or b"")
            position = header.next_offset
        moved = position > self.positions[place]
        self.positions[place] = position
        return moved

    async def end_of(self, place: Place) -> int | None:
        """Return the end offset of a partition for consumers, None if it is not known."""
        leader = await self.leader(place)
        if leader is None:
            self.forget(place)
            return None
        answer = await self.ask(
            leader,
            LIST_OFFSETS,
            6,
            {
                "replica_id": -1,
                "isolation_level": int(self.reads_committed),
                "topics": [
                    {
                        "name": place[0],
                        "partitions": [
                            {
                                "partition_index": place[1],
                                "current_leader_epoch": -1,
                                "timestamp": -1,
                            }
                        ],
                    }
                ],
            },
        )
        result = None if answer is None else answer["topics"][0]["partitions"][0]
        if result is None or result["error_code"]:
            self.forget(place)
            return None
        return int(result["offset"])


class Reader(Reading):
    """Reads a whole topic from its beginning."""

    topic = "data"

    async def run(self) -> None:
        """See Client; runs until the simulation ends."""
        while True:
            if not self.partitions(self.topic) or self.world.random.random() < 0.02:
                await self.refresh(self.topic)
            for index in self.partitions(self.topic) or ():
                place = self.topic, index
                await self.fetch(place)
                if self.world.random.random() < 0.1:
                    position = self.positions[place]
                    end = await self.end_of(place)
                    if end is not None and end < position:
                        raise self.violated(f"{place} ends at {end}, {position} was read")
            await self.pause(0.25)


class Member(Reading):
    """A member of a group; there are two kinds."""

    topic = "data"
    group = "group"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.member_id = ""
        self.epoch = -1
        self.owned: list[Place] = []
        # The offset up to which each partition is committed.
        self._done: dict[Place, int] = {}

    async def consume(self) -> int:
        """Read some records of the owned partitions, and commit; return the error code."""
        for place in self.owned:
            if place not in self.positions:
                offset = await self.committed(place)
                if offset is None:
                    return errors.NONE
                self.positions[place] = self._done[place] = max(offset, 0)
            await self.fetch(place, wait_ms=30)
            if self.positions[place] > self._done[place]:
                position = self.positions[place]
                code = await self.commit(place, position)
                if code:
                    return code
                self._done[place] = position
        return errors.NONE

    async def committed(self, place: Place) -> int | None:
        """Return the group's committed offset, None if no coordinator answers."""
        promised = self.checker.promised(self.group, place)
        offset = await committed_offset(self, self.group, place)
        if offset is not None:
            self.checker.fetched(self.group, place, promised, offset)
            self.note(f"{place} goes on at {offset}")
        return offset

    async def commit(self, place: Place, offset: int) -> int:
        """Commit; return the error code, -1 without an answer."""
        epoch, member = self.epoch, self.member_id
        is_zombie = self.checker.commit_begins(self.group, place, epoch, member)
        answer = await self.ask_coordinator(
            self.group,
            0,
            OFFSET_COMMIT,
            9,
            {
                "group_id": self.group,
                "generation_id_or_member_epoch": epoch,
                "member_id": member,
                "group_instance_id": None,
                "topics": [
                    {
                        "name": place[0],
                        "partitions": [
                            {
                                "partition_index": place[1],
                                "committed_offset": offset,
                                "committed_leader_epoch": self.leader_epochs.get(place, -1),
                                "committed_metadata": "",
                            }
                        ],
                    }
                ],
            },
        )
        if answer is None:
            self.checker.commit_is_unknown(self.group, place, offset)
            return -1
        code = int(answer["topics"][0]["partitions"][0]["error_code"])
        if code == errors.NONE:
            self.checker.commit_ends(self.group, place, offset, epoch, member, is_zombie=is_zombie)
            self.note(f"{place} {offset} is committed in {epoch}")
        elif code in AGAIN:
            # The commit may have been written, and may take effect after all.
            self.checker.commit_is_unknown(self.group, place, offset)
            self.lost_coordinator(self.group, 0)
        elif code not in _REJOIN:
            raise self.violated(f"OffsetCommit is refused with {code}")
        return code

    def own(self, places: list[Place]) -> None:
        """Set the partitions that the member has to read from now on."""
        if places != self.owned:
            self.note(f"owns {places} in {self.epoch}")
        for place in list(self.positions):
            if place not in self.owned or place not in places:
                del self.positions[place]
                self._aborted.pop(place, None)
        self.owned = places


async def committed_offset(client: Client, group: str, place: Place) -> int | None:
    """Return a group's committed offset of a partition, None if no coordinator answers."""
    answer = await client.ask_coordinator(
        group,
        0,
        OFFSET_FETCH,
        8,
        {
            "groups": [
                {
                    "group_id": group,
                    "topics": [{"name": place[0], "partition_indexes": [place[1]]}],
                }
            ],
            "require_stable": True,
        },
    )
    if answer is None:
        return None
    result = answer["groups"][0]
    code = result["error_code"] or result["topics"][0]["partitions"][0]["error_code"]
    if code:
        if code in AGAIN:
            client.lost_coordinator(group, 0)
        return None
    committed = result["topics"][0]["partitions"][0]
    client.is_led_since(place, committed["committed_leader_epoch"])
    return int(committed["committed_offset"])


class ClassicMember(Member):
    """A member of a classic group: JoinGroup, SyncGroup, Heartbeat."""

    async def run(self) -> None:
        """See Client; members never stop, since the last records have to be read too."""
        while True:
            await self.refresh(self.topic)
            if not self.partitions(self.topic) or not await self._join():
                await self.pause(_RETRY_S)
                continue
            while await self._heartbeat():
                if await self.consume() in _REJOIN:
                    break
                await self.pause(0.25)

    async def _join(self) -> bool:
        self.own([])
        answer = await self.ask_coordinator(
            self.group,
            0,
            JOIN_GROUP,
            9,
            {
                "group_id": self.group,
                "session_timeout_ms": 1000,
                "rebalance_timeout_ms": 1000,
                "member_id": self.member_id,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
            },
            timeout_s=3.0,
        )
        if answer is None:
            return False
        if answer["error_code"]:
            if answer["error_code"] == errors.MemberIdRequired.code:
                self.member_id = answer["member_id"]
            elif answer["error_code"] == errors.UnknownMemberId.code:
                self.member_id = ""
            return False
        self.member_id, self.epoch = answer["member_id"], answer["generation_id"]
        assignments = []
        if answer["leader"] == self.member_id:
            members = sorted(each["member_id"] for each in answer["members"])
            for number, member in enumerate(members):
                indexes = self.partitions(self.topic)[number :: len(members)]
                assignments.append({"member_id": member, "assignment": bytes(indexes)})
        answer = await self.ask_coordinator(
            self.group,
            0,
            SYNC_GROUP,
            5,
            {
                "group_id": self.group,
                "generation_id": self.epoch,
                "member_id": self.member_id,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": assignments,
            },
            timeout_s=3.0,
        )
        if answer is None or answer["error_code"]:
            return False
        self.own([(self.topic, index) for index in answer["assignment"]])
        return True

    async def _heartbeat(self) -> bool:
        answer = await self.ask_coordinator(
            self.group,
            0,
            HEARTBEAT,
            4,
            {
                "group_id": self.group,
                "generation_id": self.epoch,
                "member_id": self.member_id,
            },
        )
        if answer is None or answer["error_code"] in AGAIN:
            await self.pause(_RETRY_S)
            return True
        if answer["error_code"] == errors.UnknownMemberId.code:
            self.member_id = ""
        return bool(answer["error_code"] == errors.NONE)


class ConsumerMember(Member):
    """A member of a group of the consumer protocol: ConsumerGroupHeartbeat (KIP-848)."""

    group = "new-group"
    _is_unsure = True

    async def run(self) -> None:
        """See Client."""
        self.member_id = f"{self.world.random.getrandbits(64):x}"
        self.epoch = 0
        while True:
            await self.refresh(self.topic)
            if await self._heartbeat() and await self.consume() in _REJOIN - {
                errors.StaleMemberEpoch.code
            }:
                self._join_again()
            await self.pause(0.25)

    def _join_again(self) -> None:
        self.epoch = 0
        self.own([])

    async def _heartbeat(self) -> bool:
        # The full request is repeated if the coordinator's last answer may be lost.
        is_full = self._is_unsure or self.epoch == 0
        self._is_unsure = True
        topic_id = self.topic_id(self.topic)
        answer = await self.ask_coordinator(
            self.group,
            0,
            CONSUMER_GROUP_HEARTBEAT,
            1,
            {
                "group_id": self.group,
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "rebalance_timeout_ms": 1000 if is_full else -1,
                "subscribed_topic_names": [self.topic] if is_full else None,
                "topic_partitions": [
                    {"topic_id": topic_id, "partitions": [index for _, index in self.owned]}
                ]
                if self.owned
                else [],
            },
        )
        if answer is None or answer["error_code"] in AGAIN:
            await self.pause(_RETRY_S)
            return False
        if answer["error_code"]:
            if answer["error_code"] not in _REJOIN:
                raise self.violated(f"a heartbeat is refused with {answer['error_code']}")
            self._join_again()
            return False
        self._is_unsure = False
        self.epoch = answer["member_epoch"]
        if answer["assignment"] is not None:
            self.own(
                sorted(
                    (self.topic, index)
                    for each in answer["assignment"]["topic_partitions"]
                    for index in each["partitions"]
                )
            )
        return True
