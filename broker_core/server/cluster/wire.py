"""Encodes and decodes the messages of the metadata quorum."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from broker_core.protocol.definitions import (
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    FETCH_METADATA,
    FETCH_METADATA_SNAPSHOT,
    VOTE,
)
from broker_core.protocol.schema import AnyApi
from broker_core.quorum.entries import Entry, EntryKind, EpochEnd, ReplicaKey
from broker_core.quorum.messages import (
    Answer,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchAnswer,
    FetchRequest,
    FetchSnapshotAnswer,
    FetchSnapshotRequest,
    Request,
    VoteAnswer,
    VoteRequest,
)

if TYPE_CHECKING:
    from broker_core.protocol.definitions import bodies

METADATA_TOPIC: Final = "__cluster_metadata"
_NOBODY: Final = -1


def directory_bytes(directory_id: str) -> bytes:
    """Encode a directory id; a voter without one has zeroes."""
    return uuid.UUID(directory_id).bytes if directory_id else bytes(16)


def _key(node_id: int, directory_id: bytes) -> ReplicaKey:
    return ReplicaKey(node_id, str(uuid.UUID(bytes=directory_id)) if any(directory_id) else "")


def _node(node_id: int) -> int | None:
    return None if node_id == _NOBODY else node_id


def _epoch_end(epoch: int, end_offset: int) -> EpochEnd | None:
    return None if end_offset < 0 else EpochEnd(epoch, end_offset)


# ----------------------------------------------------------------------------------------- requests


def encode_request(
    request: Request, cluster_id: str | None, max_wait_ms: int
) -> tuple[AnyApi, Mapping[str, object]]:
    """Return the API, and the body in its newest version."""
    match request:
        case VoteRequest():
            return VOTE, _vote(request, cluster_id)
        case BeginQuorumEpochRequest():
            return BEGIN_QUORUM_EPOCH, _begin_epoch(request, cluster_id)
        case EndQuorumEpochRequest():
            return END_QUORUM_EPOCH, _end_epoch(request, cluster_id)
        case FetchRequest():
            return FETCH_METADATA, _fetch(request, cluster_id, max_wait_ms)
        case FetchSnapshotRequest():
            return FETCH_METADATA_SNAPSHOT, _fetch_snapshot(request, cluster_id)


def _vote(request: VoteRequest, cluster_id: str | None) -> bodies.VoteRequest:
    partition: bodies.VoteRequestPartition = {
        "partition_index": 0,
        "replica_epoch": request.epoch,
        "replica_id": request.candidate.node_id,
        "replica_directory_id": directory_bytes(request.candidate.directory_id),
        "voter_directory_id": directory_bytes(request.voter.directory_id),
        "last_offset_epoch": request.last_epoch,
        "last_offset": request.end_offset,
        "pre_vote": request.pre_vote,
    }
    return {
        "cluster_id": cluster_id,
        "voter_id": request.voter.node_id,
        "topics": [{"topic_name": METADATA_TOPIC, "partitions": [partition]}],
    }


def _begin_epoch(
    request: BeginQuorumEpochRequest, cluster_id: str | None
) -> bodies.BeginQuorumEpochRequest:
    partition: bodies.BeginQuorumEpochRequestPartition = {
        "partition_index": 0,
        "leader_id": request.leader_id,
        "leader_epoch": request.epoch,
        "voter_directory_id": bytes(16),
    }
    return {
        "cluster_id": cluster_id,
        "topics": [{"topic_name": METADATA_TOPIC, "partitions": [partition]}],
        "leader_endpoints": [],
    }


def _end_epoch(
    request: EndQuorumEpochRequest, cluster_id: str | None
) -> bodies.EndQuorumEpochRequest:
    partition: bodies.EndQuorumEpochRequestPartition = {
        "partition_index": 0,
        "leader_id": request.leader_id,
        "leader_epoch": request.epoch,
        "preferred_candidates": [
            {
                "candidate_id": each.node_id,
                "candidate_directory_id": directory_bytes(each.directory_id),
            }
            for each in request.successors
        ],
    }
    return {
        "cluster_id": cluster_id,
        "topics": [{"topic_name": METADATA_TOPIC, "partitions": [partition]}],
        "leader_endpoints": [],
    }


def _fetch(
    request: FetchRequest, cluster_id: str | None, max_wait_ms: int
) -> bodies.FetchMetadataRequest:
    return {
        "cluster_id": cluster_id,
        "epoch": request.epoch,
        "replica_id": request.replica.node_id,
        "replica_directory_id": directory_bytes(request.replica.directory_id),
        "fetch_offset": request.fetch_offset,
        "last_fetched_epoch": request.last_epoch,
        "high_watermark": request.high_watermark,
        "max_wait_ms": max_wait_ms,
    }


def _fetch_snapshot(
    request: FetchSnapshotRequest, cluster_id: str | None
) -> bodies.FetchMetadataSnapshotRequest:
    return {
        "cluster_id": cluster_id,
        "epoch": request.epoch,
        "replica_id": request.replica.node_id,
        "replica_directory_id": directory_bytes(request.replica.directory_id),
        "snapshot_epoch": request.snapshot.epoch,
        "snapshot_end_offset": request.snapshot.end_offset,
        "position": request.position,
    }


def decode_request(api: AnyApi, body: Any) -> Request:
    """Reverse `encode_request`. Raises IndexError for a body that names no partition."""
    return _REQUESTS[api.key](body)


def _decode_vote(body: bodies.VoteRequest) -> VoteRequest:
    partition = body["topics"][0]["partitions"][0]
    return VoteRequest(
        partition["replica_epoch"],
        _key(partition["replica_id"], partition["replica_directory_id"]),
        _key(body["voter_id"], partition["voter_directory_id"]),
        partition["last_offset_epoch"],
        partition["last_offset"],
        partition["pre_vote"],
    )


def _decode_begin_epoch(body: bodies.BeginQuorumEpochRequest) -> BeginQuorumEpochRequest:
    partition = body["topics"][0]["partitions"][0]
    return BeginQuorumEpochRequest(partition["leader_epoch"], partition["leader_id"])


def _decode_end_epoch(body: bodies.EndQuorumEpochRequest) -> EndQuorumEpochRequest:
    partition = body["topics"][0]["partitions"][0]
    return EndQuorumEpochRequest(
        partition["leader_epoch"],
        partition["leader_id"],
        tuple(
            _key(each["candidate_id"], each["candidate_directory_id"])
            for each in partition["preferred_candidates"]
        ),
    )


def _decode_fetch(body: bodies.FetchMetadataRequest) -> FetchRequest:
    return FetchRequest(
        body["epoch"],
        _key(body["replica_id"], body["replica_directory_id"]),
        body["fetch_offset"],
        body["last_fetched_epoch"],
        body["high_watermark"],
    )


def _decode_fetch_snapshot(body: bodies.FetchMetadataSnapshotRequest) -> FetchSnapshotRequest:
    return FetchSnapshotRequest(
        body["epoch"],
        _key(body["replica_id"], body["replica_directory_id"]),
        EpochEnd(body["snapshot_epoch"], body["snapshot_end_offset"]),
        body["position"],
    )


_REQUESTS: Final[dict[int, Callable[[Any], Request]]] = {
    VOTE.key: _decode_vote,
    BEGIN_QUORUM_EPOCH.key: _decode_begin_epoch,
    END_QUORUM_EPOCH.key: _decode_end_epoch,
    FETCH_METADATA.key: _decode_fetch,
    FETCH_METADATA_SNAPSHOT.key: _decode_fetch_snapshot,
}


# ------------------------------------------------------------------------------------------ answers


def encode_answer(answer: Answer) -> Mapping[str, object]:
    """Return the body of the response."""
    leader_id = _NOBODY if answer.leader_id is None else answer.leader_id
    match answer:
        case FetchAnswer():
            return _fetched(answer, leader_id)
        case FetchSnapshotAnswer():
            return _fetched_snapshot(answer, leader_id)
        case VoteAnswer():
            return _voted(answer, leader_id)
    return _noted(answer, leader_id)


def _fetched(answer: FetchAnswer, leader_id: int) -> bodies.FetchMetadataResponse:
    body: bodies.FetchMetadataResponse = {
        "epoch": answer.epoch,
        "leader_id": leader_id,
        "high_watermark": _NOBODY if answer.high_watermark is None else answer.high_watermark,
        "entries": [
            {"epoch": each.epoch, "kind": each.kind, "value": each.value} for each in answer.entries
        ],
    }
    if answer.diverging is not None:
        body["diverging_epoch"], body["diverging_end_offset"] = answer.diverging
    if answer.snapshot is not None:
        body["snapshot_epoch"], body["snapshot_end_offset"] = answer.snapshot
    return body


def _fetched_snapshot(
    answer: FetchSnapshotAnswer, leader_id: int
) -> bodies.FetchMetadataSnapshotResponse:
    return {
        "epoch": answer.epoch,
        "leader_id": leader_id,
        "size": answer.size,
        "chunk": answer.chunk,
        "voters": [
            {"voter_id": each.node_id, "voter_directory_id": directory_bytes(each.directory_id)}
            for each in sorted(answer.voters)
        ],
    }


def _voted(answer: VoteAnswer, leader_id: int) -> bodies.VoteResponse:
    partition: bodies.VoteResponsePartition = {
        "partition_index": 0,
        "leader_id": leader_id,
        "leader_epoch": answer.epoch,
        "vote_granted": answer.granted,
    }
    return {"topics": [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]}


def _noted(answer: Answer, leader_id: int) -> bodies.BeginQuorumEpochResponse:
    """Return the response to a new leader; that to one which resigns has the same fields."""
    partition: bodies.BeginQuorumEpochResponsePartition = {
        "partition_index": 0,
        "leader_id": leader_id,
        "leader_epoch": answer.epoch,
    }
    return {"topics": [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]}


def decode_answer(api: AnyApi, body: Any) -> Answer:
    """Reverse `encode_answer`. Raises IndexError, ValueError for an invalid body."""
    return _ANSWERS[api.key](body)


def _decode_fetched(body: bodies.FetchMetadataResponse) -> FetchAnswer:
    return FetchAnswer(
        epoch=body["epoch"],
        leader_id=_node(body["leader_id"]),
        high_watermark=None if body["high_watermark"] < 0 else body["high_watermark"],
        entries=tuple(
            Entry(each["epoch"], EntryKind(each["kind"]), bytes(each["value"]))
            for each in body["entries"]
        ),
        diverging=_epoch_end(body["diverging_epoch"], body["diverging_end_offset"]),
        snapshot=_epoch_end(body["snapshot_epoch"], body["snapshot_end_offset"]),
    )


def _decode_fetched_snapshot(body: bodies.FetchMetadataSnapshotResponse) -> FetchSnapshotAnswer:
    return FetchSnapshotAnswer(
        epoch=body["epoch"],
        leader_id=_node(body["leader_id"]),
        size=body["size"],
        chunk=None if body["chunk"] is None else bytes(body["chunk"]),
        voters=frozenset(
            _key(each["voter_id"], each["voter_directory_id"]) for each in body["voters"]
        ),
    )


def _decode_voted(body: bodies.VoteResponse) -> VoteAnswer:
    partition = body["topics"][0]["partitions"][0]
    return VoteAnswer(
        epoch=partition["leader_epoch"],
        leader_id=_node(partition["leader_id"]),
        granted=partition["vote_granted"],
    )


def _decode_noted(
    body: bodies.BeginQuorumEpochResponse | bodies.EndQuorumEpochResponse,
) -> Answer:
    partition = body["topics"][0]["partitions"][0]
    return Answer(epoch=partition["leader_epoch"], leader_id=_node(partition["leader_id"]))


_ANSWERS: Final[dict[int, Callable[[Any], Answer]]] = {
    VOTE.key: _decode_voted,
    BEGIN_QUORUM_EPOCH.key: _decode_noted,
    END_QUORUM_EPOCH.key: _decode_noted,
    FETCH_METADATA.key: _decode_fetched,
    FETCH_METADATA_SNAPSHOT.key: _decode_fetched_snapshot,
}
