"""From a frame to a request, and from a response to what is written to the socket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from broker_core.protocol import primitives
from broker_core.protocol.definitions import APIS
from broker_core.protocol.primitives import RemoteProtocolError
from broker_core.protocol.schema import Api

_API_VERSIONS: Final = 18

Buffer = bytes | bytearray | memoryview


class Unread(Protocol):
    """A payload that is to be sent from where it is."""

    def __len__(self) -> int:
        """How many bytes it has."""

    def read(self, start: int = 0) -> bytes:
        """The bytes from `start` on; raises OSError."""

    def send(self, socket: int, start: int) -> int:
        """Send what the socket takes of the bytes from `start` on; raises OSError."""


Part = Buffer | Unread


class RequestHeader(NamedTuple):
    """The head of a request. `version` may be one that `api` does not serve (ApiVersions only)."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None


def decode_request(
    frame: memoryview, apis: Mapping[int, Api] = APIS
) -> tuple[RequestHeader, dict[str, Any] | None]:
    """Read one request frame; `records` fields are slices of it.

    An ApiVersions request of an unknown version has None as its body: it is answered all the same
    (KIP-511). Raises RemoteProtocolError; Kafka closes the connection on what raises here.
    """
    key, version, correlation_id, client_id, position = primitives.decode_request_header(frame)
    api = apis.get(key)
    if api is None:
        raise RemoteProtocolError(f"unknown API key {key}")
    header = RequestHeader(api, version, correlation_id, client_id)
    if not api.serves(version):
        if key == _API_VERSIONS and version > api.versions[1]:
            return header, None
        raise RemoteProtocolError(f"{api.name} version {version} is not served")
    if api.is_flexible(version):
        position = primitives.skip_tagged_fields(frame, position)
    body, _ = primitives.decode(api.request_plan(version), frame, position)
    return header, body


def encode_response(header: RequestHeader, body: dict[str, Any]) -> list[Part]:
    """Write one response frame, as parts to be sent in order."""
    api = header.api
    # Whoever negotiates does not know yet which versions we understand: version 0 always.
    version = header.version if api.serves(header.version) else 0
    flexible_header = api.key != _API_VERSIONS and api.is_flexible(version)
    return primitives.encode_response_frame(
        api.response_plan(version), header.correlation_id, flexible_header, body
    )
