"""ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from broker_core import errors
from broker_core.coordinator.effects import Codes
from broker_core.coordinator.groups.consumer_group import ConsumerGroup
from broker_core.coordinator.groups.group import Group
from broker_core.coordinator.groups.states import GroupState
from broker_core.coordinator.sharing.share_group import ShareGroup
from broker_core.server.coordination.groups import Groups
from broker_core.server.handlers.metadata import GROUP_OPERATIONS
from broker_core.server.network.request import Request
from broker_core.server.sharing.share_groups import ShareGroups

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DeleteGroupsRequest,
        DeleteGroupsResponse,
        DescribeGroupsRequest,
        DescribeGroupsResponse,
        DescribeGroupsResponseGroup,
        ListGroupsRequest,
        ListGroupsResponse,
    )

_CLASSIC, _CONSUMER, _SHARE = "classic", "consumer", "share"
_NOT_FOUND_IS_AN_ERROR_FROM: Final = 6
_NOT_ASKED: Final = -(2**31)


class AllGroups(Protocol):
    """The groups of all three kinds: of both protocols for consumers, and share groups."""

    groups: Groups
    share_groups: ShareGroups


def handle_list(broker: AllGroups, request: Request[ListGroupsRequest, ListGroupsResponse]) -> None:
    """Answer a ListGroups request."""
    broker.groups.catch_up()
    states = {state.lower() for state in request.body["states_filter"]}
    types = {kind.lower() for kind in request.body["types_filter"]}
    request.reply(
        {
            "groups": [
                {
                    "group_id": group.group_id,
                    "protocol_type": group.protocol_type or "",
                    "group_state": group.state.value,
                    "group_type": _type(group),
                }
                for group in (
                    *broker.groups.coordinator.groups.values(),
                    *broker.share_groups.groups.values(),
                )
                if (not states or group.state.value.lower() in states)
                and (not types or _type(group) in types)
            ]
        }
    )


def _type(group: Group | ConsumerGroup | ShareGroup) -> str:
    if isinstance(group, ShareGroup):
        return _SHARE
    return _CONSUMER if isinstance(group, ConsumerGroup) else _CLASSIC


def handle_describe(
    groups: Groups, request: Request[DescribeGroupsRequest, DescribeGroupsResponse]
) -> None:
    """Answer a DescribeGroups request."""
    groups.catch_up()
    operations = GROUP_OPERATIONS if request.body["include_authorized_operations"] else _NOT_ASKED
    described: list[DescribeGroupsResponseGroup] = []
    for group_id in request.body["groups"]:
        group = groups.coordinator.groups.get(group_id)
        answer = _describe(group) if isinstance(group, Group) else _dead(group_id, request.version)
        described.append(answer | {"authorized_operations": operations})
    request.reply({"groups": described})


def _dead(group_id: str, version: int) -> DescribeGroupsResponseGroup:
    answer: DescribeGroupsResponseGroup = {
        "group_id": group_id,
        "group_state": GroupState.DEAD.value,
    }
    if version >= _NOT_FOUND_IS_AN_ERROR_FROM:
        answer["error_code"] = errors.GroupIdNotFound.code
        answer["error_message"] = f"Group {group_id} not found."
    return answer


def _describe(group: Group) -> DescribeGroupsResponseGroup:
    settled = group.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}
    protocol = group.protocol or ""
    return {
        "group_id": group.group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": protocol if group.state is GroupState.STABLE else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(protocol) if settled else b"",
                "member_assignment": member.assignment if settled else b"",
            }
            for member in group.members.values()
        ],
    }


def handle_delete(
    broker: AllGroups, request: Request[DeleteGroupsRequest, DeleteGroupsResponse]
) -> None:
    """Answer a DeleteGroups request."""
    names = list(dict.fromkeys(request.body["groups_names"]))
    results: dict[str, int] = {}
    if not names:
        request.reply({"results": []})
        return

    def answer_for(group_id: str) -> Callable[[int], None]:
        def answer(code: int) -> None:
            results[group_id] = code
            if len(results) == len(names):
                request.reply(
                    {
                        "results": [
                            {"group_id": name, "error_code": code} for name, code in results.items()
                        ]
                    }
                )

        return answer

    broker.groups.catch_up()
    for group_id in names:
        if group_id in broker.share_groups.groups:
            _delete_share_group(broker.share_groups, group_id, answer_for(group_id))
            continue
        done = answer_for(group_id)
        broker.groups.coordinator.delete_group(group_id, partial(_pass_code, done))
    broker.groups.perform()


def _pass_code(done: Callable[[int], None], result: Codes) -> None:
    done(result["error_code"])


def _delete_share_group(groups: ShareGroups, group_id: str, answer: Callable[[int], None]) -> None:
    try:
        groups.delete_group(group_id, answer)
    except errors.BrokerError as error:
        answer(error.code)
