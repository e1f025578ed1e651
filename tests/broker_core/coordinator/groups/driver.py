"""Drives a GroupCoordinator without sockets, files or clocks."""

from __future__ import annotations

import itertools
from typing import Any

from broker_core.coordinator.effects import Append, Moment, Respond
from broker_core.coordinator.groups.group import Group
from broker_core.coordinator.groups.group_coordinator import GroupCoordinator
from broker_core.coordinator.groups.member import JoinRequest
from broker_core.coordinator.groups.offset_coordinator import GroupSettings
from broker_core.coordinator.offsets import OffsetToCommit


class Topics:
    """A TopicView whose topics a test creates and deletes."""

    def __init__(self) -> None:
        self.version = 0
        self._partitions: dict[str, int] = {}
        #: How often a topic was looked up.
        self.found = 0

    def create(self, name: str, partitions: int) -> None:
        """Create a topic or change its number of partitions."""
        self._partitions[name] = partitions
        self.version += 1

    def delete(self, name: str) -> None:
        """Delete a topic."""
        del self._partitions[name]
        self.version += 1

    def names(self) -> list[str]:
        """See TopicView."""
        return list(self._partitions)

    def find(self, name: str) -> tuple[bytes, int] | None:
        """See TopicView."""
        self.found += 1
        count = self._partitions.get(name)
        return None if count is None else (self.id_of(name), count)

    def id_of(self, name: str) -> bytes:
        """Return a topic's id."""
        return name.encode().ljust(16, b"-")

    def name_of(self, topic_id: bytes) -> str | None:
        """See TopicView."""
        name = topic_id.rstrip(b"-").decode()
        return name if name in self._partitions else None


class Driver:
    """A coordinator with a list as its log and a clock that the test moves."""

    def __init__(self, **settings: Any) -> None:
        self.settings = GroupSettings(**({"initial_rebalance_delay_ms": 0} | settings))
        self.log: list[tuple[bytes, bytes | None]] = []
        self.answers: dict[str, dict[str, Any]] = {}
        self.disk_works = True
        self.topics = Topics()
        self._ids = itertools.count(1)
        self._monotonic_ms = 1_000
        self._wall_ms = 1_700_000_000_000
        self.coordinator = self._new()

    def _new(self) -> GroupCoordinator:
        return GroupCoordinator(
            self.settings, topics=self.topics, new_id=lambda: str(next(self._ids))
        )

    @property
    def now(self) -> Moment:
        """The time of the next step."""
        return Moment(self._monotonic_ms, self._wall_ms)

    @property
    def group(self) -> Group:
        """The classic group "g"."""
        group = self.coordinator.groups["g"]
        assert isinstance(group, Group)
        return group

    def restart(self) -> None:
        """Replace the coordinator by one that reads the log; what was not stored is lost."""
        self.coordinator = self._new()
        self.load()
        self.answers.clear()

    def load(self) -> None:
        """Load the log into the coordinator."""
        loader = self.coordinator.begin_loading()
        for key, value in self.log:
            loader.load(key, value, self.now, None)
        self.coordinator.adopt(loader, self.now)

    def perform(self) -> None:
        """Perform the coordinator's effects."""
        while effects := self.coordinator.take_effects():
            for effect in effects:
                if isinstance(effect, Respond):
                    token = effect.token
                    assert isinstance(token, str)
                    assert token not in self.answers, f"{token} is answered twice"
                    self.answers[token] = dict(effect.response)
                else:
                    self._append(effect)

    def _append(self, effect: Append) -> None:
        if self.disk_works:
            self.log += effect.records
            self.coordinator.appended(effect, self.now)
        else:
            self.coordinator.append_failed(effect, self.now)

    def advance(self, ms: int) -> None:
        """Let time pass; every deadline is met to the millisecond."""
        end = self._monotonic_ms + ms
        while True:
            due = self.coordinator.next_deadline()
            if due is None or due > end:
                break
            step = max(due - self._monotonic_ms, 0)
            self._monotonic_ms += step
            self._wall_ms += step
            self.coordinator.tick(self.now)
            self.perform()
        self._wall_ms += end - self._monotonic_ms
        self._monotonic_ms = end

    def wait_without_heartbeats(self, ms: int) -> None:
        """Move only the wall clock, which does not measure sessions."""
        self._wall_ms += ms

    # ------------------------------------------------------------------------------------ requests

    def join(
        self,
        token: str,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: tuple[str, ...] = ("range",),
        **more: Any,
    ) -> dict[str, Any] | None:
        """Send JoinGroup; return the response if it is there already."""
        request = JoinRequest(
            group_id="g",
            member_id=member_id,
            instance_id=instance_id,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=more.pop("session_timeout_ms", 10_000),
            rebalance_timeout_ms=more.pop("rebalance_timeout_ms", 60_000),
            protocol_type=more.pop("protocol_type", "consumer"),
            protocols=[(name, f"{token} on {name}".encode()) for name in protocols],
            **more,
        )
        self.coordinator.join_group(request, token, self.now)
        self.perform()
        return self.answers.get(token)

    def sync(
        self, token: str, member_id: str, generation: int, **assignments: str
    ) -> dict[str, Any] | None:
        """Send SyncGroup; a leader gives assignments by member id (`_` for a dash)."""
        self.coordinator.sync_group(
            {
                "group_id": "g",
                "member_id": member_id,
                "group_instance_id": None,
                "generation_id": generation,
                "protocol_type": None,
                "protocol_name": None,
                "assignments": [
                    {"member_id": name.replace("_", "-"), "assignment": value.encode()}
                    for name, value in assignments.items()
                ],
            },
            token,
            self.now,
        )
        self.perform()
        return self.answers.get(token)

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> int:
        """Send Heartbeat; return its error code."""
        code = self.coordinator.heartbeat("g", member_id, instance_id, generation, self.now)
        self.perform()
        return code

    def leave(self, member_id: str, instance_id: str | None = None) -> int:
        """Send LeaveGroup; return its error code."""
        (code,) = self.coordinator.leave_group("g", [(member_id, instance_id)], self.now)
        self.perform()
        return code

    def commit(self, token: str, member_id: str, generation: int, offset: int, **more: Any) -> int:
        """Send OffsetCommit for topic t, partition 0; return its error code."""
        offsets = [OffsetToCommit("t", 0, offset, -1, more.pop("metadata", ""))]
        member = (member_id, more.pop("instance_id", None), generation)
        group_id = more.pop("group_id", "g")
        self.coordinator.commit_offsets(group_id, member, offsets, token, self.now)
        self.perform()
        code: int = self.answers[token]["codes"][("t", 0)]
        return code

    def committed(self, group_id: str = "g") -> int | None:
        """Return the committed offset of topic t, partition 0."""
        group = self.coordinator.groups.get(group_id)
        found = group.offsets.get(("t", 0)) if group else None
        return found.offset if found else None
