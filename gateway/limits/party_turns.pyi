import asyncio
from collections.abc import Callable
from typing import Final

TURN_S: Final[float]
STRANGER: Final[str]

class PartyTurns:
    """The present turn of the loop: what each party has had of it, and what waits for later ones.

    Somebody who has not signed in can be as many strangers as it likes: behind a proxy, and on this
    machine. So what strangers do waits for what users do, but for a part of each turn.

    The loop tells nobody that a turn has ended, so that small amounts are added up until they
    matter.
    """

    def may_begin(self, party: str) -> bool:
        """Tell whether a party may work now: it has time left, and nothing of it waits."""

    def may_go_on(self, party: str) -> bool:
        """Tell whether a party that works now may begin more, if that is short."""

    def left_s(self, party: str) -> float:
        """Return the seconds of this turn that are left to a party for long work."""

    def begin(self, party: str) -> str | None:
        """Take note that work of a party begins. Return what `end` has to be given as `outer`."""

    def end(self, party: str, outer: str | None) -> None:
        """Charge the work that has begun last to a party: it may have turned out whose it is."""

    def call(self, party: str, callback: Callable[[], object]) -> None:
        """Call back now if the party may begin, else when it is its turn."""

    def call_soon(self, party: str, callback: Callable[[], object] | asyncio.Future[None]) -> None:
        """Call back, or set the result of a future, when it is the party's turn.

        It comes after what of the party waits already.
        """

    def returned(self, party: str) -> None:
        """Take note that a task has got its turn, and is charged for what it needs."""
