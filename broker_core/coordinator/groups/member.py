"""One member of a classic consumer group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from broker_core.coordinator.effects import Token

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        JoinGroupResponse,
        SyncGroupResponse,
    )


#: Bytes of a member id at most, before the part that makes it unique: records hold 32,767.
_PREFIX_MAX: Final = 32_000


def new_member_id(prefix: str, unique: str) -> str:
    """Return the id of a new member, which begins with its client id or instance id."""
    if len(prefix) > _PREFIX_MAX // 4:
        prefix = prefix.encode()[:_PREFIX_MAX].decode(errors="ignore")
    return f"{prefix}-{unique}"


@dataclass(slots=True)
class Member:
    """The coordinator's data about a member. Metadata and assignment are opaque bytes."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    #: Name and metadata of each assignment protocol, in the member's order of preference.
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""
    #: Monotonic ms; counts only while no request of the member waits for a response.
    session_deadline: int = 0
    #: The JoinGroup request that waits for the rebalance.
    join_token: Token | None = None
    #: The SyncGroup request that waits for the leader's assignment.
    sync_token: Token | None = None
    #: Monotonic ms after which a member that joined without an id is removed even while its request
    #: waits: the client may have retried, got another id, and would never use this one.
    new_member_deadline: int | None = None

    @property
    def waiting(self) -> bool:
        """Tell whether a request of the member waits for a response."""
        return self.join_token is not None or self.sync_token is not None

    @property
    def deadline(self) -> int | None:
        """Monotonic ms when the member times out.

        While a request of the member waits this is None, or the deadline of a new member.
        """
        if self.waiting:
            return self.new_member_deadline if self.join_token is not None else None
        return self.session_deadline

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for one assignment protocol, empty if it has none."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """Return the protocol that the member prefers among those that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)

    def heard(self, now_ms: int) -> None:
        """Restart the session timeout: the member has sent a request."""
        self.session_deadline = now_ms + self.session_timeout_ms


@dataclass(slots=True)
class JoinRequest:
    """A JoinGroup request of any version."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: list[tuple[str, bytes]] = field(default_factory=list)
    #: From version 4 on a new member is first told its id (KIP-394).
    require_known_member_id: bool = False
    #: From version 9 on a static leader that returns is told to skip the assignment (KIP-814).
    supports_skipping_assignment: bool = False


def join_error(code: int, member_id: str = "") -> JoinGroupResponse:
    """Return a JoinGroup response with an error."""
    return {
        "error_code": code,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": "",
        "leader": "",
        "member_id": member_id,
        "members": [],
    }


def sync_error(code: int) -> SyncGroupResponse:
    """Return a SyncGroup response with an error."""
    return {
        "error_code": code,
        "protocol_type": None,
        "protocol_name": None,
        "assignment": b"",
    }
