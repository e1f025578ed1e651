"""The worker hub: connects the workers of a machine and knows their interest and their sessions.

Sans-IO: frames of workers come in, frames to workers go out. It lives in the gateway that has the
views, whose own MQTT server is one more worker.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, Protocol

from gateway.mqtt.journal.seats import seat_of
from gateway.mqtt.sessions.handover import ASK_AGAIN
from gateway.mqtt.workers.interest import Changes, InterestTable
from gateway.mqtt.workers.worker_peers import CrossingMessage as Message

#: Seconds after the start during which messages wait for workers to announce their interest.
_SETTLING_S: Final = 1.0
#: Messages that may wait then.
_HELD_MAX: Final = 10_000
_INTERESTS_A_FRAME: Final = 10_000
#: Sessions whose worker is known here: the latest, until every worker has read them in the log.
_OWNERS_MAX: Final = 50_000

SessionKey = tuple[str, str]


class Worker(Hashable, Protocol):
    """The connection to one worker."""

    def send(self, *frame: Any) -> None: ...


class _Question:
    """A request of one worker that other workers have to answer."""

    def __init__(
        self,
        asker: Worker,
        number: int,
        asked: set[Worker],
        claimed: SessionKey | None = None,
        epoch: int = 0,
    ) -> None:
        #: None if it has gone: a session that is handed over then is given back.
        self.asker: Worker | None = asker
        self.number = number
        self.asked = asked
        self.claimed = claimed
        self.epoch = epoch  # of the connection whose client's session is claimed
        #: True if the session was announced but not handed over yet.
        self.is_announced = False


class WorkerHub:
    """Connects the workers of one machine.

    `call_later(s, callback)` is the event loop's. `is_known(device, fix_id)` tells whether the view
    of fixes has a fix. `newest_time(device)` returns the greatest time (ms) of all fixes of a
    device, or None if there is none.
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
        # The clock of the worker whose epochs are ahead of all others' (Epochs.keep_pace).
        self._clock_began_us = 0
        self._interests: InterestTable[Worker] = InterestTable()
        self._groups: dict[tuple[str, str], dict[Worker, int]] = {}
        self._questions: dict[int, _Question] = {}
        self._last_question = 0
        # The workers of sessions, with the epochs of their clients' connections; oldest first.
        self._owners: OrderedDict[SessionKey, tuple[Worker, int]] = OrderedDict()
        self._claimed: set[SessionKey] = set()  # sessions on their way from worker to worker
        self._held: list[tuple[Worker, list[Message], int]] | None = []
        # The number of the last message of each worker that was distributed.
        self._crossed: dict[Worker, int] = {}
        call_later(_SETTLING_S, self._settle)

    # --- workers --------------------------------------------------------------------------------

    def leave(self, worker: Worker) -> None:
        """Remove a worker that has disconnected."""
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
                    # The session was not handed over yet.
                    self._forget(number)
                    for giver in question.asked:
                        giver.send("stays", *question.claimed)
                else:
                    question.asker = None
            elif worker in question.asked:
                self._answered(worker, number, None)

    def on_frame(self, worker: Worker, kind: str, arguments: list[Any]) -> None:
        """Handle a frame of a worker; frames of unknown kinds are ignored."""
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
        """Record that clients have connected to a worker, and announce it to the other workers.

        Epochs tell which connection is the last, in whatever order the frames arrive.
        """
        name = self._names.get(worker, "")
        for user, client_id, epoch in came:
            owner, latest = self._owners.get((user, client_id), (worker, 0))
            owner_name = self._names.get(owner, "")
            if (epoch, name) >= (latest, owner_name):
                self._owned((user, client_id), worker, epoch)
            elif owner_name:
                # The worker may not have been connected when the newer one was announced.
                worker.send("came", owner_name, [(user, client_id, latest)])
        for other in self._names:
            if other is not worker:
                other.send("came", name, came)

    # --- questions ------------------------------------------------------------------------------

    def _claim(
        self, asker: Worker, number: int, named: str | None, user: str, client_id: str, epoch: int
    ) -> None:
        """Handle a claim: a client has come at `epoch` to a worker that lacks its session.

        `named` is the worker that has the session according to the log; the client may have been
        to another one since. Claims of one session are handled one after the other.
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
        """Pass on the announcement of a claimed session.

        The session stays where it is until the claimer receives what is published for its client,
        so that no message published meanwhile is lost or delivered twice.
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
        """Start the hand-over: from now on the claimer receives messages that cross.

        Messages that have crossed before come with the session.
        """
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
        """Return the worker of a name, or the present worker of its seat if it was killed."""
        if named is None:
            return None
        by_name = {name: worker for worker, name in self._names.items()}
        if named in by_name or not (seat := seat_of(named)):
            return by_name.get(named)
        return next((each for each, name in self._names.items() if seat_of(name) == seat), None)

    def _passed_on(self, key: SessionKey, giver: Worker, taker: Worker) -> None:
        """Record a hand-over, unless the client has connected to a third worker meanwhile."""
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
        """Answer whether a repeated fix is in the log or on its way there from another worker."""
        asked = {each for each in self._names if each is not asker}
        if self._is_known(device, fix_id) or not asked:
            asker.send("answer", number, self._is_known(device, fix_id))
            return
        self._ask(asker, number, asked, "stored", device, fix_id)

    def _looked_up(self, asker: Worker, number: int, device: str, fix_id: str) -> None:
        """Answer whether the views have a fix, and the newest time of its device."""
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
        """Return a session to its worker, as the one that has claimed it has gone."""
        if key is not None and record is not None and record != ASK_AGAIN:
            worker.send("returned", *key, record)

    def _forget(self, number: int) -> None:
        claimed = self._questions.pop(number).claimed
        if claimed is not None:
            self._claimed.discard(claimed)
