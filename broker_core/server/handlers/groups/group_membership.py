"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: membership in classic groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker_core import errors
from broker_core.coordinator.groups.member import JoinRequest
from broker_core.server.coordination.groups import Groups
from broker_core.server.network.request import Request

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        HeartbeatRequest,
        HeartbeatResponse,
        JoinGroupRequest,
        JoinGroupResponse,
        LeaveGroupRequest,
        LeaveGroupResponse,
        SyncGroupRequest,
        SyncGroupResponse,
    )

_KNOWN_MEMBER_ID_FROM: Final = 4
_SKIP_ASSIGNMENT_FROM: Final = 9
_LEAVE_IN_BATCHES_FROM: Final = 3


def handle_join(groups: Groups, request: Request[JoinGroupRequest, JoinGroupResponse]) -> None:
    """Answer a JoinGroup request."""
    body = request.body
    session_timeout_ms = body["session_timeout_ms"]
    rebalance_timeout_ms = body["rebalance_timeout_ms"]
    groups.coordinator.join_group(
        JoinRequest(
            body["group_id"],
            body["member_id"],
            body["group_instance_id"],
            request.client_id,
            request.client_host,
            session_timeout_ms,
            # Version 0 has a single timeout for both.
            rebalance_timeout_ms if rebalance_timeout_ms >= 0 else session_timeout_ms,
            body["protocol_type"],
            [(each["name"], each["metadata"]) for each in body["protocols"]],
            require_known_member_id=request.version >= _KNOWN_MEMBER_ID_FROM,
            supports_skipping_assignment=request.version >= _SKIP_ASSIGNMENT_FROM,
        ),
        request.reply,
        groups.moment(),
    )
    groups.perform()


def handle_sync(groups: Groups, request: Request[SyncGroupRequest, SyncGroupResponse]) -> None:
    """Answer a SyncGroup request."""
    groups.coordinator.sync_group(request.body, request.reply, groups.moment())
    groups.perform()


def handle_heartbeat(groups: Groups, request: Request[HeartbeatRequest, HeartbeatResponse]) -> None:
    """Answer a Heartbeat request."""
    body = request.body
    code = groups.coordinator.heartbeat(
        body["group_id"],
        body["member_id"],
        body["group_instance_id"],
        body["generation_id"],
        groups.moment(),
    )
    request.reply({"error_code": code})


def handle_leave(groups: Groups, request: Request[LeaveGroupRequest, LeaveGroupResponse]) -> None:
    """Answer a LeaveGroup request."""
    body = request.body
    if request.version < _LEAVE_IN_BATCHES_FROM:
        members: list[tuple[str, str | None]] = [(body["member_id"], None)]
    else:
        members = [(each["member_id"], each["group_instance_id"]) for each in body["members"]]
    codes = groups.coordinator.leave_group(body["group_id"], members, groups.moment())
    if request.version < _LEAVE_IN_BATCHES_FROM:
        request.reply({"error_code": codes[0]})
    else:
        request.reply(
            {
                "error_code": errors.NONE,
                "members": [
                    {"member_id": member_id, "group_instance_id": instance_id, "error_code": code}
                    for (member_id, instance_id), code in zip(members, codes, strict=True)
                ],
            }
        )
    groups.perform()
