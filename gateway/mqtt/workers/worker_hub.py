"""The place where the workers of a machine meet, with their wishes and their sessions.

Sans-IO: frames of workers in, frames to workers out. It lives in the gateway that has the views,
whose own MQTT server is one worker more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, Protocol

from gateway.mqtt.journal.seats import seat_of
from gateway.mqtt.sessions.handover import ASK_AGAIN
from gateway.mqtt.workers.interest import Changes, InterestTable
from gateway.mqtt.workers.neighbours import CrossingMessage as Message

#: After the start, messages wait until workers that were there before have said what they want.
_SETTLING_S: Final = 1.0
_HELD_MAX: Final = 10_000
_INTERESTS_A_FRAME: Final = 10_000
#: Sessions whose worker is known here: what came last, until every worker has read it in the log.
_OWNERS_MAX: Final = 50_000

SessionKey = tuple[str, str]


class Worker(Hashable, Protocol):
    """The way to one worker."""

    def send(self, *frame: Any) -> None: ...


class _Question:
    """Something that others are asked for the sake of one worker."""

    def __init__(
        self,
        asker: Worker,
        number: int,
        asked: set[Worker],
        claimed: SessionKey | None = None,
        epoch: int = 0,
    ) -> None:
        #: None when it has gone: a session that is handed over then goes back.
        self.asker: Worker | None = asker
        self.number = number
        self.asked = asked
        self.claimed = claimed
        self.epoch = epoch  # at which the client of the claimed session has come
        #: Its worker has said what the session is, and still has it.
        self.is_announced = False


class WorkerHub:
    """See above. `call_later(s, callback)` is the event loop's; `is_known(device, fix_id)` says
    whether the view of fixes has one; `newest_time(device)` is the greatest time of all of a
    device, ms, None where there is none.
    """

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], object],
        is_known: Callable[[str, str], bool],
        newest_time: Callable[[str], int | None] | None = None,
    ) -> None:
        self._is_known = is_known
        self._newest_time = newest_time
        self._names: dict[Worker, str] = {}
        self._ids: dict[Worker, int] = {}
        self._last_id = 0
        # Of the worker whose clock is ahead of all others' (Epochs.keep_pace).
        self._clock_began_us = 0
        self._interests: InterestTable[Worker] = InterestTable()
        self._groups: dict[tuple[str, str], dict[Worker, int]] = {}
        self._questions: dict[int, _Question] = {}
        self._last_question = 0
        # And the epochs of their clients' connections. Whoever has had its client longest is first.
        self._owners: OrderedDict[SessionKey, tuple[Worker, int]] = OrderedDict()
        self._claimed: set[SessionKey] = set()  # sessions on their way from worker to worker
        self._held: list[tuple[Worker, list[Message], int]] | None = []
        # The number of the last message of each worker that was passed on.
        self._crossed: dict[Worker, int] = {}
        call_later(_SETTLING_S, self._settle)

    # --- workers --------------------------------------------------------------------------------

    def leave(self, worker: Worker) -> None:
        """A worker is gone."""
        if worker not in self._names:
            return
        del self._names[worker]
        self._tell(self._interests.leave(worker))
        for (share, topic_filter), members in list(self._groups.items()):
            if worker in members:
                self._share_changed(worker, share, topic_filter, 0)
        del self._ids[worker]
        self._crossed.pop(worker, None)
        for number, question in list(self._questions.items()):
            if question.asker is worker:
                if question.claimed is None:
                    self._forget(number)
                elif question.is_announced:
                    # Nothing was handed over yet.
                    self._forget(number)
                    for giver in question.asked:
                        giver.send("stays", *question.claimed)
                else:
                    question.asker = None
            elif worker in question.asked:
                self._answered(worker, number, None)

    def on_frame(self, worker: Worker, kind: str, arguments: list[Any]) -> None:
        """Take a frame of a worker; other kinds than these are no business of this class."""
        if kind == "hello":
            self._join(worker, *arguments)
        elif kind == "interest":
            self._tell(self._interests.change(worker, arguments[0]))
        elif kind == "share":
            self._share_changed(worker, *arguments)
        elif kind == "messages":
            self._messages(worker, *arguments)
        elif kind == "leaving":
            self._leaving(worker, *arguments)
        elif kind == "ready":
            self._ready(worker, *arguments)
        elif kind == "came":
            self._came(worker, arguments[0])
        elif kind == "claim":
            self._claim(worker, *arguments)
        elif kind == "known":
            self._known(worker, *arguments)
        elif kind == "look_up":
            self._looked_up(worker, *arguments)
        elif kind == "answered":
            self._answered(worker, *arguments)

    def _join(self, worker: Worker, name: str, clock_began_us: int) -> None:
        self.leave(worker)
        if clock_began_us > self._clock_began_us:
            self._clock_began_us = clock_began_us
            for other in self._names:
                other.send("clock", clock_began_us)
        worker.send("clock", self._clock_began_us)
        self._last_id += 1
        self._ids[worker] = self._last_id
        self._names[worker] = name
        self._send_interests(worker, self._interests.join(worker))
        for (share, topic_filter), members in self._groups.items():
            for member, state in members.items():
                worker.send("group", self._ids[member], share, topic_filter, state)

    # --- who wants what -------------------------------------------------------------------------

    def _tell(self, news: dict[Worker, Changes]) -> None:
        for worker, changes in news.items():
            self._send_interests(worker, changes)

    @staticmethod
    def _send_interests(worker: Worker, changes: Changes) -> None:
        for start in range(0, len(changes), _INTERESTS_A_FRAME):
            worker.send("interest", changes[start : start + _INTERESTS_A_FRAME])

    def _share_changed(self, worker: Worker, share: str, topic_filter: str, state: int) -> None:
        members = self._groups.setdefault((share, topic_filter), {})
        members.pop(worker, None)
        if state:
            members[worker] = state
        elif not members:
            del self._groups[(share, topic_filter)]
        for other in self._names:
            if other is not worker:
                other.send("group", self._ids[worker], share, topic_filter, state)

    # --- messages -------------------------------------------------------------------------------

    def _settle(self) -> None:
        held, self._held = self._held, None
        for worker, messages, number in held or ():
            self._messages(worker, messages, number)

    def _messages(self, publisher: Worker, messages: list[Message], number: int = 0) -> None:
        if self._held is not None:
            if sum(len(each) for _, each, _ in self._held) < _HELD_MAX:
                self._held.append((publisher, messages, number))
            return
        if publisher in self._names:
            self._crossed[publisher] = number
        passed_on: dict[Worker, list[Message]] = {}
        for message in messages:
            target, topic = message[0], message[1]
            if target is None:
                receivers = self._interests.wanting(topic, publisher)
            else:
                receivers = {each for each, number in self._ids.items() if number == target[0]}
            for worker in receivers:
                passed_on.setdefault(worker, []).append(message)
        for worker, news in passed_on.items():
            worker.send("messages", news)

    # --- sessions -------------------------------------------------------------------------------

    def _came(self, worker: Worker, came: list[tuple[str, str, int]]) -> None:
        """Clients have come to a worker: their connections elsewhere are the older ones.

        The epoch says who came last, in whichever order the workers say so.
        """
        name = self._names.get(worker, "")
        for user, client_id, epoch in came:
            owner, latest = self._owners.get((user, client_id), (worker, 0))
            owner_name = self._names.get(owner, "")
            if (epoch, name) >= (latest, owner_name):
                self._owned((user, client_id), worker, epoch)
            elif owner_name:
                # It may not have been here when that was said.
                worker.send("came", owner_name, [(user, client_id, latest)])
        for other in self._names:
            if other is not worker:
                other.send("came", name, came)

    # --- questions ------------------------------------------------------------------------------

    def _claim(
        self, asker: Worker, number: int, named: str | None, user: str, client_id: str, epoch: int
    ) -> None:
        """A client has come at `epoch` to a worker that does not have its session.

        The asker names the worker that has it as far as the log has told; a client may have been
        to another one since. One claim of a session is settled after the other.
        """
        key = (user, client_id)
        if key in self._claimed:
            asker.send("answer", number, ASK_AGAIN)
            return
        owner, _ = self._owners.get(key, (None, 0))
        if owner not in self._names:
            owner = self._successor_of(named)
        if owner is None or owner is asker:
            self._owned(key, asker)
            asker.send("answer", number, None)
            return
        self._claimed.add(key)
        claimer = self._names.get(asker, "")
        self._ask(
            *(asker, number, {owner}, "claim", user, client_id, claimer, epoch),
            claimed=key,
            epoch=epoch,
        )

    def _leaving(self, giver: Worker, number: int, record: bytes) -> None:
        """A worker says what the session is that it is asked for.

        It stays there until the asker takes what is published for its client: nothing that is
        published while it is on its way is lost, or reaches it twice.
        """
        question = self._questions.get(number)
        if question is None or question.claimed is None:
            return
        if question.asker is None:
            self._forget(number)
            giver.send("stays", *question.claimed)
            return
        question.is_announced = True
        question.asker.send("arriving", number, *question.claimed, record)

    def _ready(self, asker: Worker, number: int) -> None:
        """The asker takes from now on what crosses; what has crossed before its giver brings."""
        question = self._questions.get(number)
        if question is None or question.claimed is None or not question.is_announced:
            return
        question.is_announced = False
        asker.send("due", *question.claimed)
        came = self._names.get(asker, ""), question.epoch
        for giver in list(question.asked):
            crossed = self._crossed.get(giver, 0)
            giver.send("hand_over", number, *question.claimed, *came, crossed)

    def _successor_of(self, named: str | None) -> Worker | None:
        """The worker of a name, or the one that has its seat and sessions since it was killed."""
        if named is None:
            return None
        by_name = {name: worker for worker, name in self._names.items()}
        if named in by_name or not (seat := seat_of(named)):
            return by_name.get(named)
        return next((each for each, name in self._names.items() if seat_of(name) == seat), None)

    def _passed_on(self, key: SessionKey, giver: Worker, taker: Worker) -> None:
        """A worker has handed over a session, unless its client has come to a third one by now."""
        owner, _ = self._owners.get(key, (giver, 0))
        if owner is giver or owner not in self._names:
            self._owned(key, taker)

    def _owned(self, key: SessionKey, worker: Worker, epoch: int = 0) -> None:
        _, before = self._owners.get(key, (worker, 0))
        self._owners[key] = worker, max(epoch, before)
        self._owners.move_to_end(key)
        if len(self._owners) > _OWNERS_MAX:
            self._owners.popitem(last=False)

    def _known(self, asker: Worker, number: int, device: str, fix_id: str) -> None:
        """A client repeats a fix: has the log it, or is it on its way there from another worker?"""
        asked = {each for each in self._names if each is not asker}
        if self._is_known(device, fix_id) or not asked:
            asker.send("answer", number, self._is_known(device, fix_id))
            return
        self._ask(asker, number, asked, "stored", device, fix_id)

    def _looked_up(self, asker: Worker, number: int, device: str, fix_id: str) -> None:
        """A worker has a fix that may have come by another one before."""
        newest = None if self._newest_time is None else self._newest_time(device)
        asker.send("answer", number, (self._is_known(device, fix_id), newest))

    def _ask(
        self,
        asker: Worker,
        number: int,
        asked: set[Worker],
        kind: str,
        *arguments: Any,
        claimed: SessionKey | None = None,
        epoch: int = 0,
    ) -> None:
        self._last_question += 1
        question = self._last_question
        self._questions[question] = _Question(asker, number, set(asked), claimed, epoch)
        for worker in asked:
            worker.send(kind, question, *arguments)

    def _answered(self, worker: Worker, number: int, answer: Any) -> None:
        question = self._questions.get(number)
        if question is None:
            return
        question.asked.discard(worker)
        if answer or not question.asked:
            self._forget(number)
            if question.asker is None:
                self._give_back(worker, question.claimed, answer)
                return
            if question.claimed is not None and answer != ASK_AGAIN:
                self._passed_on(question.claimed, worker, question.asker)
            question.asker.send("answer", question.number, answer)

    def _give_back(self, worker: Worker, key: SessionKey | None, record: Any) -> None:
        """A worker has handed over a session to one that is gone."""
        if key is not None and record is not None and record != ASK_AGAIN:
            worker.send("returned", *key, record)

    def _forget(self, number: int) -> None:
        claimed = self._questions.pop(number).claimed
        if claimed is not None:
            self._claimed.discard(claimed)
