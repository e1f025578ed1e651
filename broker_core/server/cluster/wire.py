"""Encodes and decodes the messages of the metadata quorum."""

from __future__ import annotations

import uuid
from typing import Any, Final

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

Body = dict[str, Any]

METADATA_TOPIC: Final = "__cluster_metadata"
_NOBODY: Final = -1


def directory_bytes(directory_id: str) -> bytes:
    """Encode a directory id; a voter without one has zeroes."""
    return uuid.UUID(directory_id).bytes if directory_id else bytes(16)


def _key(node_id: int, directory_id: bytes) -> ReplicaKey:
    return ReplicaKey(node_id, str(uuid.UUID(bytes=directory_id)) if any(directory_id) else "")


def _topic(partition: Body) -> list[Body]:
    return [
        {"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0} | partition]},
    ]


def _partition(body: Body) -> Body:
    partition: Body = body["topics"][0]["partitions"][0]
    return partition


def encode_request(
    request: Request, cluster_id: str | None, max_wait_ms: int
) -> tuple[AnyApi, Body]:
    """Return the API, and the body in its newest version."""
    body: Body = {"cluster_id": cluster_id}
    match request:
        case VoteRequest():
            body["voter_id"] = request.voter.node_id
            body["topics"] = _topic(
                {
                    "replica_epoch": request.epoch,
                    "replica_id": request.candidate.node_id,
                    "replica_directory_id": directory_bytes(request.candidate.directory_id),
                    "voter_directory_id": directory_bytes(request.voter.directory_id),
                    "last_offset_epoch": request.last_epoch,
                    "last_offset": request.end_offset,
                    "pre_vote": request.pre_vote,
                }
            )
            return VOTE, body
        case BeginQuorumEpochRequest():
            body["topics"] = _topic(
                {
                    "leader_id": request.leader_id,
                    "leader_epoch": request.epoch,
                    "voter_directory_id": bytes(16),
                }
            )
            return BEGIN_QUORUM_EPOCH, body | {"leader_endpoints": []}
        case EndQuorumEpochRequest():
            body["topics"] = _topic(
                {
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
            )
            return END_QUORUM_EPOCH, body | {"leader_endpoints": []}
        case FetchRequest():
            return FETCH_METADATA, body | {
                "epoch": request.epoch,
                "replica_id": request.replica.node_id,
                "replica_directory_id": directory_bytes(request.replica.directory_id),
                "fetch_offset": request.fetch_offset,
                "last_fetched_epoch": request.last_epoch,
                "high_watermark": request.high_watermark,
                "max_wait_ms": max_wait_ms,
            }
        case FetchSnapshotRequest():
            return FETCH_METADATA_SNAPSHOT, body | {
                "epoch": request.epoch,
                "replica_id": request.replica.node_id,
                "replica_directory_id": directory_bytes(request.replica.directory_id),
                "snapshot_epoch": request.snapshot.epoch,
                "snapshot_end_offset": request.snapshot.end_offset,
                "position": request.position,
            }


def decode_request(api: AnyApi, body: Body) -> Request:
    """Reverse `encode_request`. Raises IndexError for a body that names no partition."""
    if api is FETCH_METADATA:
        return FetchRequest(
            body["epoch"],
            _key(body["replica_id"], body["replica_directory_id"]),
            body["fetch_offset"],
            body["last_fetched_epoch"],
            body["high_watermark"],
        )
    if api is FETCH_METADATA_SNAPSHOT:
        return FetchSnapshotRequest(
            body["epoch"],
            _key(body["replica_id"], body["replica_directory_id"]),
            EpochEnd(body["snapshot_epoch"], body["snapshot_end_offset"]),
            body["position"],
        )
    partition = _partition(body)
    if api is VOTE:
        return VoteRequest(
            partition["replica_epoch"],
            _key(partition["replica_id"], partition["replica_directory_id"]),
            _key(body["voter_id"], partition["voter_directory_id"]),
            partition["last_offset_epoch"],
            partition["last_offset"],
            partition["pre_vote"],
        )
    if api is BEGIN_QUORUM_EPOCH:
        return BeginQuorumEpochRequest(partition["leader_epoch"], partition["leader_id"])
    return EndQuorumEpochRequest(
        partition["leader_epoch"],
        partition["leader_id"],
        tuple(
            _key(each["candidate_id"], each["candidate_directory_id"])
            for each in partition["preferred_candidates"]
        ),
    )


def encode_answer(answer: Answer) -> Body:
    """Return the body of the response."""
    leader_id = _NOBODY if answer.leader_id is None else answer.leader_id
    match answer:
        case FetchAnswer():
            body: Body = {
                "epoch": answer.epoch,
                "leader_id": leader_id,
                "high_watermark": (
                    _NOBODY if answer.high_watermark is None else answer.high_watermark
                ),
                "entries": [each._asdict() for each in answer.entries],
            }
            if answer.diverging is not None:
                body["diverging_epoch"], body["diverging_end_offset"] = answer.diverging
            if answer.snapshot is not None:
                body["snapshot_epoch"], body["snapshot_end_offset"] = answer.snapshot
            return body
        case FetchSnapshotAnswer():
            return {
                "epoch": answer.epoch,
                "leader_id": leader_id,
                "size": answer.size,
                "chunk": answer.chunk,
                "voters": [
                    {
                        "voter_id": each.node_id,
                        "voter_directory_id": directory_bytes(each.directory_id),
                    }
                    for each in sorted(answer.voters)
                ],
            }
    partition: Body = {"leader_id": leader_id, "leader_epoch": answer.epoch}
    if isinstance(answer, VoteAnswer):
        partition["vote_granted"] = answer.granted
    return {"topics": _topic(partition)}


def decode_answer(api: AnyApi, body: Body) -> Answer:
    """Reverse `encode_answer`. Raises IndexError, ValueError for an invalid body."""
    if api is FETCH_METADATA:
        leader_id = None if body["leader_id"] == _NOBODY else body["leader_id"]
        return FetchAnswer(
            epoch=body["epoch"],
            leader_id=leader_id,
            high_watermark=None if body["high_watermark"] < 0 else body["high_watermark"],
            entries=tuple(
                Entry(each["epoch"], EntryKind(each["kind"]), bytes(each["value"]))
                for each in body["entries"]
            ),
            diverging=_epoch_end(body["diverging_epoch"], body["diverging_end_offset"]),
            snapshot=_epoch_end(body["snapshot_epoch"], body["snapshot_end_offset"]),
        )
    if api is FETCH_METADATA_SNAPSHOT:
        return FetchSnapshotAnswer(
            epoch=body["epoch"],
            leader_id=None if body["leader_id"] == _NOBODY else body["leader_id"],
            size=body["size"],
            chunk=None if body["chunk"] is None else bytes(body["chunk"]),
            voters=frozenset(
                _key(each["voter_id"], each["voter_directory_id"]) for each in body["voters"]
            ),
        )
    partition = _partition(body)
    leader_id = None if partition["leader_id"] == _NOBODY else partition["leader_id"]
    if api is VOTE:
        return VoteAnswer(
            epoch=partition["leader_epoch"], leader_id=leader_id, granted=partition["vote_granted"]
        )
    return Answer(epoch=partition["leader_epoch"], leader_id=leader_id)


def _epoch_end(epoch: int, end_offset: int) -> EpochEnd | None:
    return None if end_offset < 0 else EpochEnd(epoch, end_offset)
