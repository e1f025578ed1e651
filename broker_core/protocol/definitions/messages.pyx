"""Decoding of frames to requests, and encoding of responses to parts for the socket."""

from broker_core.protocol.plan cimport Plan

from broker_core.protocol.decoder import (
    STRING_MAX,
    decode,
    decode_request_header,
    skip_tagged_fields,
)
from broker_core.protocol.definitions import APIS
from broker_core.protocol.encoder import encode_response_frame
from broker_core.protocol.errors import RemoteProtocolError

cdef enum:
    API_VERSIONS = 18


cdef class RequestHeader:
    """The header of a request. `version` may be unsupported by `api`, in ApiVersions only."""

    cdef readonly object api
    cdef readonly int version
    cdef readonly int correlation_id
    cdef readonly object client_id

    def __init__(self, api not None, int version, int correlation_id, str client_id):
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id

    def __repr__(self):
        return (
            f"RequestHeader({self.api.name} version {self.version}, {self.correlation_id}, "
            f"{self.client_id!r})"
        )


def decode_request(frame, apis=APIS):
    """Decode one request frame; `records` fields are slices of it.

    For an ApiVersions request of an unknown version the body is None: such a request is answered
    too (KIP-511). Raises RemoteProtocolError, after which Kafka closes the connection.
    """
    cdef Plan plan
    key, version, correlation_id, client_id, position = decode_request_header(frame)
    api = apis.get(key)
    if api is None:
        raise RemoteProtocolError(f"unknown API key {key}")
    header = RequestHeader(api, version, correlation_id, client_id)
    plans = api.served_plans(version)
    if plans is None:
        if key == API_VERSIONS and version > api.versions[1]:
            return header, None
        raise RemoteProtocolError(f"{api.name} version {version} is not served")
    plan = plans[0]
    if plan.flexible:
        position = skip_tagged_fields(frame, position)
    body, _ = decode(plan, frame, position, STRING_MAX)
    return header, body


def encode_response(RequestHeader header not None, dict body not None):
    """Encode one response frame as parts to be sent in order."""
    cdef Plan plan
    api = header.api
    plans = api.served_plans(header.version)
    # A client that negotiates does not know the supported versions yet: it gets version 0.
    plan = api.response_plan(0) if plans is None else plans[1]
    flexible_header = plan.flexible and api.key != API_VERSIONS
    return encode_response_frame(plan, header.correlation_id, flexible_header, body)
