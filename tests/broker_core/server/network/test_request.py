"""What is done to a response before it is encoded."""

from __future__ import annotations

from typing import Any

from broker_core.protocol.definitions import LIST_GROUPS
from broker_core.protocol.definitions.messages import RequestHeader
from broker_core.protocol.primitives import decode
from broker_core.server.network.request import Request, ResponseSink
from broker_core.server.network.session import ClientSession


class Sink(ResponseSink):
    """A connection that keeps the last response."""

    peer_host = "127.0.0.1"
    sends_files = False
    session: ClientSession

    def answered(self, request: Request) -> None:
        assert request.parts is not None
        frame = b"".join(part for part in request.parts if isinstance(part, bytes))
        self.response, _ = decode(LIST_GROUPS.response_plan(2), memoryview(frame)[8:])


def test_amendments_are_made_one_after_the_other() -> None:
    sink = Sink()
    request = Request(sink, RequestHeader(LIST_GROUPS, 2, 1, "test"), {})

    def add(name: str) -> None:
        def amend(response: dict[str, Any]) -> None:
            response["groups"] = [*response["groups"], {"group_id": name, "protocol_type": ""}]

        request.amend_with(amend)

    add("first")
    add("second")
    request.amend_with(lambda response: response["groups"].pop(0))
    request.reply({"error_code": 0, "groups": [{"group_id": "own", "protocol_type": ""}]})
    assert [each["group_id"] for each in sink.response["groups"]] == ["first", "second"]
