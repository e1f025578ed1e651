"""Client of the share coordinator: finds it on any broker, and retries until it answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from broker_core import errors
from broker_core.coordinator.sharing.share_records import (
    SharePartitionKey,
    StoredState,
    batch_fields,
    batches_of,
)
from broker_core.protocol.definitions import (
    DELETE_SHARE_GROUP_STATE,
    INITIALIZE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
    WRITE_SHARE_GROUP_STATE,
)
from broker_core.protocol.schema import AnyApi
from broker_core.server.coordination.groups import Stored
from broker_core.server.coordination.transactions import RemoteBrokers
from broker_core.server.sharing.share_coordinator import NO_OFFSET, Read, ShareCoordinator
from waylog.process.background import failure_ends_process

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ReadShareGroupStateResponsePartition,
        ReadShareGroupStateSummaryResponsePartition,
    )

#: Errors of a coordinator that is loading, moving or not known yet.
_AGAIN: Final = frozenset(
    each.code
    for each in (
        errors.NotCoordinator,
        errors.CoordinatorNotAvailable,
        errors.CoordinatorLoadInProgress,
    )
)
_RETRY_S: Final = 0.05
#: Seconds after which the caller gets such an error instead of another attempt.
_PATIENCE_S: Final = 10.0

#: The fields of a partition in a request, apart from its number: they are those of several APIs.
_Asked = Mapping[str, object]
#: Takes a partition of a response of one of these APIs.
_Answered = Callable[[Any], None]


class _Question:
    """A question to the share coordinator, asked by a call on this broker or by a request."""

    __slots__ = ("api", "ask_here", "done", "ends", "fields")

    def __init__(
        self,
        api: AnyApi,
        fields: _Asked,
        ask_here: Callable[[_Answered], None],
        done: _Answered,
        ends: float,
    ) -> None:
        self.api = api
        self.fields = fields
        self.ask_here = ask_here
        self.done = done
        self.ends = ends


class ShareCoordinatorClient:
    """The states of share partitions, for the partitions' leaders and for administrators.

    Questions about the same share partition are asked one after the other, so that no older
    state overwrites a newer one.
    """

    def __init__(
        self,
        coordinator: ShareCoordinator,
        remote: RemoteBrokers,
        create_topic: Callable[[], None],
    ) -> None:
        self._coordinator = coordinator
        self._remote = remote
        self._create_topic = create_topic
        self._loop = asyncio.get_running_loop()
        self._queues: dict[SharePartitionKey, deque[_Question]] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._closed = False

    def close(self) -> None:
        """Ask nothing more."""
        self._closed = True
        for timer in self._timers:
            timer.cancel()

    # ----------------------------------------------------------------------------------- questions

    def read(self, place: SharePartitionKey, leader_epoch: int, read: Read) -> None:
        """See ShareCoordinator."""

        def answered(fields: ReadShareGroupStateResponsePartition) -> None:
            code = fields["error_code"]
            is_there = not code and fields["start_offset"] != NO_OFFSET
            read(
                code,
                StoredState(
                    fields["start_offset"],
                    batches_of(fields["state_batches"]),
                    fields["state_epoch"],
                    leader_epoch,
                )
                if is_there
                else None,
            )

        self._ask(
            place,
            READ_SHARE_GROUP_STATE,
            {"leader_epoch": leader_epoch},
            lambda reply: self._coordinator.read(
                place, leader_epoch, lambda code, state: reply(state_fields(code, state))
            ),
            answered,
        )

    def write(self, place: SharePartitionKey, state: StoredState, stored: Stored) -> None:
        """See ShareCoordinator."""
        fields = {
            "state_epoch": state.state_epoch,
            "leader_epoch": state.leader_epoch,
            "start_offset": state.start_offset,
            "state_batches": batch_fields(state.batches),
        }
        self._tell(
            place,
            WRITE_SHARE_GROUP_STATE,
            fields,
            lambda done: self._coordinator.write(place, state, done),
            stored,
        )

    def initialize(
        self, place: SharePartitionKey, state_epoch: int, start_offset: int, stored: Stored
    ) -> None:
        """See ShareCoordinator."""
        self._tell(
            place,
            INITIALIZE_SHARE_GROUP_STATE,
            {"state_epoch": state_epoch, "start_offset": start_offset},
            lambda done: self._coordinator.initialize(place, state_epoch, start_offset, done),
            stored,
        )

    def delete(self, place: SharePartitionKey, stored: Stored) -> None:
        """See ShareCoordinator."""
        self._tell(
            place,
            DELETE_SHARE_GROUP_STATE,
            {},
            lambda done: self._coordinator.delete(place, done),
            stored,
        )

    def summarize(
        self, place: SharePartitionKey, answered: Callable[[int, int, int], None]
    ) -> None:
        """Call `answered` with error code, start offset, and number of records completed after it.

        The last two are -1 if they are unknown.
        """

        def summarized(fields: ReadShareGroupStateSummaryResponsePartition) -> None:
            answered(
                fields["error_code"], fields["start_offset"], fields["delivery_complete_count"]
            )

        self._ask(
            place,
            READ_SHARE_GROUP_STATE_SUMMARY,
            {"leader_epoch": -1},
            lambda reply: reply(summary_fields(*self._coordinator.find(place))),
            summarized,
        )

    # -------------------------------------------------------------------------------------- asking

    def _tell(
        self,
        place: SharePartitionKey,
        api: AnyApi,
        fields: _Asked,
        ask_here: Callable[[Stored], None],
        stored: Stored,
    ) -> None:
        self._ask(
            place,
            api,
            fields,
            lambda reply: ask_here(lambda code: reply({"error_code": code})),
            lambda answer: stored(answer["error_code"]),
        )

    def _ask(
        self,
        place: SharePartitionKey,
        api: AnyApi,
        fields: _Asked,
        ask_here: Callable[[_Answered], None],
        done: _Answered,
    ) -> None:
        queue = self._queues.setdefault(place, deque())
        queue.append(_Question(api, fields, ask_here, done, self._loop.time() + _PATIENCE_S))
        if len(queue) == 1:
            self._begin(place)

    def _begin(self, place: SharePartitionKey) -> None:
        # A question that is not answered would keep all those behind it waiting.
        with failure_ends_process(self._loop, "questions to the share coordinator"):
            self._go_on(place)

    def _go_on(self, place: SharePartitionKey) -> None:
        queue = self._queues[place]
        question = queue[0]

        def answered(fields: Any) -> None:
            if self._closed:
                return
            if fields["error_code"] in _AGAIN and self._loop.time() < question.ends:
                self._later(lambda: self._go_on(place))
                return
            # Before the next question is sent: a question that `done` asks is queued behind it.
            question.done(fields)
            queue.popleft()
            if queue:
                self._go_on(place)
            else:
                del self._queues[place]

        try:
            topic, index = self._coordinator.place_of(place)
        except errors.CoordinatorNotAvailable as error:
            self._create_topic()
            answered(refusal_fields(error.code))
            return
        remote = self._remote
        leader = remote.leader_of((topic, index))
        if leader == remote.node_id:
            question.ask_here(answered)
        elif leader is None or leader < 0:
            answered(refusal_fields(errors.CoordinatorNotAvailable.code))
        else:
            self._send(remote, leader, place, question, answered)

    def _send(
        self,
        remote: RemoteBrokers,
        leader: int,
        place: SharePartitionKey,
        question: _Question,
        answered: _Answered,
    ) -> None:
        def received(answer: Any) -> None:
            for topic in answer["results"] if answer is not None else ():
                for each in topic["partitions"]:
                    answered(each)
                    return
            answered(refusal_fields(errors.CoordinatorNotAvailable.code))

        partition = {"partition": place.partition, **question.fields}
        body = {
            "group_id": place.group_id,
            "topics": [{"topic_id": place.topic_id, "partitions": [partition]}],
        }
        remote.send(leader, question.api, question.api.versions[1], body, received)

    def _later(self, action: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.discard(timer)
            action()

        timer = self._loop.call_later(_RETRY_S, run)
        self._timers.add(timer)


def refusal_fields(code: int) -> Mapping[str, object]:
    """Return a partition of any of the responses, with an error."""
    return {**state_fields(code, None), **summary_fields(code, None)}


def state_fields(code: int, state: StoredState | None) -> ReadShareGroupStateResponsePartition:
    """Return a partition of a ReadShareGroupState response."""
    found = StoredState(NO_OFFSET, []) if state is None else state
    return {
        "error_code": code,
        "state_epoch": found.state_epoch,
        "start_offset": found.start_offset,
        "state_batches": batch_fields(found.batches),
    }


def summary_fields(
    code: int, state: StoredState | None
) -> ReadShareGroupStateSummaryResponsePartition:
    """Return a partition of a ReadShareGroupStateSummary response."""
    found = StoredState(NO_OFFSET, []) if state is None else state
    return {
        "error_code": code,
        "state_epoch": found.state_epoch,
        "leader_epoch": found.leader_epoch,
        "start_offset": found.start_offset,
        "delivery_complete_count": -1 if state is None else found.delivery_complete_count,
    }
