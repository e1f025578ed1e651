"""What a worker knows of its group: its work, who leads, and who runs what (KIP-415).

It knows no sockets and no clock. Whoever leads divides the work with its own assignor.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Final

from consumers.connect.group.assignor import Assignor
from consumers.connect.group.protocol import (
    CONFIG_MISMATCH,
    EAGER,
    NO_ERROR,
    VERSIONS,
    Assignment,
    MalformedBytes,
    Metadata,
    decode_assignment,
    decode_metadata,
    encode_assignment,
    protocols,
)
from consumers.connect.group.work import Work

logger = logging.getLogger(__name__)


class Member:
    """One worker's part in the group."""

    def __init__(self, url: str, best_protocol: str, assignor: Assignor) -> None:
        """`url` is that of the worker's REST interface, `best_protocol` the group's name of
        its `connect.protocol`.
        """
        self.url: Final = url
        self._best_protocol: Final = best_protocol
        self._assignor: Final = assignor
        self.member_id = ""
        self.generation = -1
        self.protocol = best_protocol
        #: The last one, with all work that this worker has; None: it has to join first.
        self.assignment: Assignment | None = None
        self._completed_generation = -1
        #: Of the generation that this worker leads: who has read more configurations than it has.
        self.ahead: Metadata | None = None
        #: Of the generation that this worker leads: the work of each URL.
        self._owners: dict[str, Work] = {}

    @property
    def work(self) -> Work:
        """What this worker is to run."""
        return self.assignment.work if self.assignment is not None else Work()

    @property
    def is_leader(self) -> bool:
        """Tell whether this worker leads the group."""
        return self.assignment is not None and self.assignment.leader == self.member_id != ""

    @property
    def leader_url(self) -> str | None:
        """The URL of the leader, None if it is not known."""
        return self.assignment.leader_url or None if self.assignment is not None else None

    @property
    def is_eager(self) -> bool:
        """Tell whether all workers stop their work before they join."""
        return self.protocol == EAGER

    def owner_of(self, work: Work) -> str | None:
        """Return the URL of the worker that has a connector or a task; known by the leader."""
        for url, owned in self._owners.items():
            if not owned.both(work).is_empty:
                return url
        return None

    # ---- joining ----

    def offered(self, offset: int) -> Sequence[tuple[str, bytes]]:
        """Return what the worker joins with, having read configurations up to an offset."""
        return protocols(Metadata(self.url, offset, self.assignment), self._best_protocol)

    def joined(self, member_id: str, generation: int, protocol: str) -> None:
        """Take note of a new generation."""
        self.member_id = member_id
        self.generation = generation
        self.protocol = protocol

    def forget_generation(self, *, and_id: bool) -> None:
        """The coordinator does not know the generation any more, or this member neither."""
        self.generation = -1
        if and_id:
            self.member_id = ""

    def cut_off(self) -> Work:
        """Give up all work, which others may get; return it."""
        work, self.assignment = self.work, None
        self._owners = {}
        return work

    # ---- leading ----

    def lead(
        self, members: Mapping[str, bytes], configured: Work, offset: int, now_ms: int
    ) -> dict[str, bytes]:
        """Return each member's assignment, given what is configured up to an offset.

        If some member has read further, all are told to join again.
        """
        version = VERSIONS[self.protocol]
        known = _decoded(members)
        ahead = self.ahead = self.furthest(members, offset)
        blank = Assignment(
            NO_ERROR if ahead is None else CONFIG_MISMATCH,
            self.member_id,
            self.url,
            offset if ahead is None else ahead.offset,
        )
        if ahead is not None:
            return {member: encode_assignment(blank, version) for member in members}
        if self.is_eager:
            return self._lead_eagerly(known, members, configured, blank)
        plan = self._assignor.assign(
            configured,
            {member: each.work for member, each in known.items()},
            generation=self.generation,
            completed_generation=self._completed_generation,
            now_ms=now_ms,
        )
        owners: dict[str, Work] = {}
        assigned: dict[str, bytes] = {}
        for member in members:
            each = plan.members.get(member)
            if each is None:
                assigned[member] = encode_assignment(blank, version)
                continue
            url = known[member].url
            owners[url] = owners.get(url, Work()).plus(each.kept)
            full = blank._replace(work=each.started, revoked=each.revoked, delay_ms=plan.delay_ms)
            assigned[member] = encode_assignment(full, version)
        self._owners = owners
        return assigned

    def _lead_eagerly(
        self,
        known: Mapping[str, Metadata],
        members: Mapping[str, bytes],
        configured: Work,
        blank: Assignment,
    ) -> dict[str, bytes]:
        """Assign all work anew, in turn: first connectors, then tasks."""
        shares: dict[str, list[Work]] = {member: [] for member in sorted(known)}
        parts = [Work.of((each,)) for each in sorted(configured.connectors)]
        parts += [Work.of((), (each,)) for each in sorted(configured.tasks)]
        for member, part in zip(cycle(shares), parts, strict=False):
            shares[member].append(part)
        works = {member: Work.union(share) for member, share in shares.items()}
        self._owners = {known[member].url: work for member, work in works.items()}
        return {
            member: encode_assignment(
                blank._replace(work=works.get(member, Work())), VERSIONS[self.protocol]
            )
            for member in members
        }

    @staticmethod
    def furthest(members: Mapping[str, bytes], offset: int) -> Metadata | None:
        """Return what the member says that has read furthest, if that is beyond `offset`."""
        ahead = [each for each in _decoded(members).values() if each.offset > offset]
        return max(ahead, key=lambda each: each.offset, default=None)

    # ---- what was assigned ----

    def synced(self, data: bytes) -> Assignment:
        """Take an assignment; return it with what the worker has afterwards as its work.

        Raises MalformedBytes.
        """
        new = decode_assignment(data)
        if self.is_eager:
            # It is all of the work, and what goes on from a former protocol ends.
            new = new._replace(revoked=self.work.minus(new.work), delay_ms=0)
        kept = self.work.minus(new.revoked)
        self.assignment = new._replace(work=kept.plus(new.work), revoked=Work(), delay_ms=0)
        self._completed_generation = self.generation
        if not self.is_leader:
            self._owners, self.ahead = {}, None
        return new._replace(work=self.work)


def _decoded(members: Mapping[str, bytes]) -> dict[str, Metadata]:
    decoded: dict[str, Metadata] = {}
    for member, data in members.items():
        try:
            decoded[member] = decode_metadata(data)
        except MalformedBytes as error:
            logger.error("member %s gets no work: %s", member, error)
    return decoded
