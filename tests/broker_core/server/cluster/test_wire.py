from __future__ import annotations

import uuid

import pytest

from broker_core.protocol.decoder import decode
from broker_core.protocol.encoder import encode
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
from broker_core.server.cluster import wire

ONE = ReplicaKey(1, "")
TWO = ReplicaKey(2, str(uuid.UUID(int=7)))
FETCH = FetchRequest(3, ONE, 5, 2, 4)
SNAPSHOT = FetchSnapshotRequest(3, TWO, EpochEnd(2, 9), 100)
VOTE = VoteRequest(4, ONE, TWO, 3, 12, pre_vote=True)
BEGIN = BeginQuorumEpochRequest(5, 2)
END = EndQuorumEpochRequest(5, 2, (TWO, ONE))

EXCHANGES: list[tuple[Request, Answer]] = [
    (FETCH, FetchAnswer(epoch=3, leader_id=None)),
    (
        FETCH,
        FetchAnswer(
            epoch=3,
            leader_id=1,
            high_watermark=0,
            entries=(Entry(3, EntryKind.DATA, b"x"), Entry(3, EntryKind.LEADER_CHANGE, b"")),
        ),
    ),
    (FETCH, FetchAnswer(epoch=3, leader_id=1, high_watermark=7, diverging=EpochEnd(0, 0))),
    (FETCH, FetchAnswer(epoch=3, leader_id=1, high_watermark=7, snapshot=EpochEnd(2, 8))),
    (SNAPSHOT, FetchSnapshotAnswer(epoch=3, leader_id=1)),
    (
        SNAPSHOT,
        FetchSnapshotAnswer(
            epoch=3, leader_id=1, size=9, chunk=b"data", voters=frozenset({ONE, TWO})
        ),
    ),
    (VOTE, VoteAnswer(epoch=4, leader_id=None, granted=True)),
    (BEGIN, Answer(epoch=5, leader_id=2)),
    (END, Answer(epoch=6, leader_id=None)),
]


@pytest.mark.parametrize(("request_", "answer"), EXCHANGES)
def test_what_replicas_say_survives_the_wire(request_: Request, answer: Answer) -> None:
    api, body = wire.encode_request(request_, "cluster", 500)
    version = api.versions[1]
    sent, _ = decode(api.request_plan(version), encode(api.request_plan(version), body))
    assert wire.decode_request(api, sent) == request_
    answered = encode(api.response_plan(version), wire.encode_answer(answer))
    received, _ = decode(api.response_plan(version), answered)
    assert wire.decode_answer(api, received) == answer
