"""What is done to a response before it is encoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_core.protocol.decoder import decode
from broker_core.protocol.definitions import LIST_GROUPS
from broker_core.protocol.definitions.messages import RequestHeader
from broker_core.server.network.request import AnyRequest, Request, ResponseSink
from broker_core.server.network.session import ClientSession

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ListGroupsRequest,
        ListGroupsResponse,
    )


class Sink(ResponseSink):
    """A connection that keeps the last response."""

    peer_host = "127.0.0.1"
    sends_files = False
    session: ClientSession

    def abort(self) -> None:
        raise NotImplementedError

    def hold(self) -> None:
        raise NotImplementedError

    def release(self) -> None:
        raise NotImplementedError

    def close_when_answered(self) -> None:
        raise NotImplementedError

    def mute(self, milliseconds: int) -> None:
        raise NotImplementedError

    def when_lost(self, lost: Callable[[], None]) -> None:
        raise NotImplementedError

    def answered(self, request: AnyRequest) -> None:
        assert request.parts is not None
        frame = b"".join(part for part in request.parts if isinstance(part, bytes))
        self.response, _ = decode(LIST_GROUPS.response_plan(2), memoryview(frame)[8:])


def test_amendments_are_made_one_after_the_other() -> None:
    sink = Sink()
    request: Request[ListGroupsRequest, ListGroupsResponse] = Request(
        sink, RequestHeader(LIST_GROUPS, 2, 1, "test"), {"states_filter": [], "types_filter": []}
    )

    def add(name: str) -> None:
        def amend(response: ListGroupsResponse) -> None:
            response["groups"] = [*response["groups"], {"group_id": name, "protocol_type": ""}]

        request.amend_with(amend)

    add("first")
    add("second")

    def remove_first(response: ListGroupsResponse) -> None:
        response["groups"] = response["groups"][1:]

    request.amend_with(remove_first)
    request.reply({"error_code": 0, "groups": [{"group_id": "own", "protocol_type": ""}]})
    assert [each["group_id"] for each in sink.response["groups"]] == ["first", "second"]
