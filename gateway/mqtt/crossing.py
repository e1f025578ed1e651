"""Where the workers of one machine meet: who wants which messages, who has which session.

Sans-IO: frames of workers in, frames to workers out. It lives in the gateway that has the views,
whose own MQTT server is one worker more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, Protocol

from gateway.mqtt.interest import Changes, InterestTable
from gateway.mqtt.neighbours import Crossing as Message

#: After the start, messages wait until workers that were there before have said what they want.
_SETTLING_S: Final = 1.0
_HELD_MAX: Final = 10_000
_INTERESTS_A_FRAME: Final = 10_000


class Worker(Hashable, Protocol):
    """The way to one worker."""

    def send(self, *frame: Any) -> None: ...


class _Question:
    """Something that others are asked for the sake of one worker."""

    def __init__(self, asker: Worker, number: int, asked: set[Worker]) -> None:
        self.asker = asker
        self.number = number
        self.asked = asked


class Crossing:
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
        self._interests: InterestTable[Worker] = InterestTable()
        self._groups: dict[tuple[str, str], dict[Worker, int]] = {}
        self._questions: dict[int, _Question] = {}
        self._last_question = 0
        self._held: list[tuple[Worker, list[Message]]] | None = []
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
        for number, question in list(self._questions.items()):
            if question.asker is worker:
                del self._questions[number]
            elif worker in question.asked:
                self._answered(worker, number, None)

    def on_frame(self, worker: Worker, kind: str, arguments: list[Any]) -> None:
        """Take a frame of a worker; other kinds than these are no business of this class."""
        if kind == "hello":
            self._join(worker, arguments[0])
        elif kind == "interest":
            self._tell(self._interests.change(worker, arguments[0]))
        elif kind == "share":
            self._share_changed(worker, *arguments)
        elif kind == "messages":
            self._messages(worker, arguments[0])
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

    def _join(self, worker: Worker, name: str) -> None:
        self.leave(worker)
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
        for worker, messages in held or ():
            self._messages(worker, messages)

    def _messages(self, publisher: Worker, messages: list[Message]) -> None:
        if self._held is not None:
            if sum(len(each) for _, each in self._held) < _HELD_MAX:
                self._held.append((publisher, messages))
            return
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

    def _came(self, worker: Worker, keys: list[tuple[str, str]]) -> None:
        """Clients have come to a worker: their connections elsewhere are the older ones.

        Here it is decided who came last: `noted` has its place among the others' news.
        """
        for other in self._names:
            other.send(*(("noted",) if other is worker else ("came", keys)))

    # --- questions ------------------------------------------------------------------------------

    def _claim(self, asker: Worker, number: int, owner: str, user: str, client_id: str) -> None:
        """A client has come to another worker than the one that has its session."""
        asked = {each for each, name in self._names.items() if name == owner and each is not asker}
        if not asked:
            asker.send("answer", number, None)
            return
        self._ask(asker, number, asked, "claim", user, client_id)

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
        self, asker: Worker, number: int, asked: set[Worker], kind: str, *arguments: Any
    ) -> None:
        self._last_question += 1
        question = self._last_question
        self._questions[question] = _Question(asker, number, set(asked))
        for worker in asked:
            worker.send(kind, question, *arguments)

    def _answered(self, worker: Worker, number: int, answer: Any) -> None:
        question = self._questions.get(number)
        if question is None:
            return
        question.asked.discard(worker)
        if answer or not question.asked:
            del self._questions[number]
            question.asker.send("answer", question.number, answer)
