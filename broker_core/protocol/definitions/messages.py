"""Decoding of frames to requests, and encoding of responses to parts for the socket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker_core.protocol.decoder import (
    STRING_MAX,
    decode,
    decode_request_header,
    skip_tagged_fields,
)
from broker_core.protocol.definitions import APIS
from broker_core.protocol.encoder import encode_response_frame
from broker_core.protocol.errors import RemoteProtocolError
from broker_core.protocol.parts import Part
from broker_core.protocol.schema import AnyApi

_API_VERSIONS: Final = 18


class RequestHeader(NamedTuple):
    """The header of a request. `version` may be unsupported by `api`, in ApiVersions only."""

    api: AnyApi
    version: int
    correlation_id: int
    client_id: str | None


def decode_request(
    frame: memoryview, apis: Mapping[int, AnyApi] = APIS
) -> tuple[RequestHeader, Any]:
    """Decode one request frame; `records` fields are slices of it.

    For an ApiVersions request of an unknown version the body is None: such a request is answered
    too (KIP-511). Raises RemoteProtocolError, after which Kafka closes the connection.
    """
    key, version, correlation_id, client_id, position = decode_request_header(frame)
    api = apis.get(key)
    if api is None:
        raise RemoteProtocolError(f"unknown API key {key}")
    header = RequestHeader(api, version, correlation_id, client_id)
    plans = api.served_plans(version)
    if plans is None:
        if key == _API_VERSIONS and version > api.versions[1]:
            return header, None
        raise RemoteProtocolError(f"{api.name} version {version} is not served")
    plan, _ = plans
    if plan.flexible:
        position = skip_tagged_fields(frame, position)
    body, _ = decode(plan, frame, position, STRING_MAX)
    return header, body


def encode_response(header: RequestHeader, body: Mapping[str, object]) -> list[Part]:
    """Encode one response frame as parts to be sent in order."""
    api = header.api
    plans = api.served_plans(header.version)
    # A client that negotiates does not know the supported versions yet: it gets version 0.
    plan = api.response_plan(0) if plans is None else plans[1]
    flexible_header = plan.flexible and api.key != _API_VERSIONS
    return encode_response_frame(plan, header.correlation_id, flexible_header, body)
