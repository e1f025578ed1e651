"""The squares that are told in place of a device's positions, and when one follows another.

Near an edge each error of measurement changes the square that a position is in. If that were told,
it would show where the device is to some metres, and the moment when it crosses. So there is one
square in each step of time: that of the step before if the first position of this one is not far
outside of it, else the one that this position is in. Each UTC day begins anew. So what is told
follows from the day's positions alone, whatever part of them somebody asks for, and when.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from gateway.friends.home_blur import Grid, Square

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gateway.shares.share import Terms

DAY_MS: Final = 86_400_000
#: How far outside of its square a position may be: as a part of the side, and in m at least, which
#: is more than a usual error of measurement.
_MARGIN: Final = 0.1
_MARGIN_M_MIN: Final = 25.0
#: Changes of square that are remembered of a device: there are 288 steps in a day.
_CHANGES_MAX: Final = 512
_DEVICES_MAX: Final = 50_000


class Recent(Protocol):
    """Recent positions of devices; so that each process tells the same squares."""

    def firsts(
        self, device: str, from_ms: int, to_ms: int, step_ms: int
    ) -> list[tuple[int, float, float]]:
        """Return time (ms), lat and lon of the first position of each step, in their order."""


def begin_of_squares(time: int) -> int:
    """Return from when on (ms) positions are needed to tell the square of a time."""
    return time - time % DAY_MS


class ToldSquares:
    """The squares of one device by time.

    Positions are expected in the order of time. An earlier one gets the square of its time, as far
    as that is remembered.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._margin_m = max(_MARGIN * grid.cell_m, _MARGIN_M_MIN)
        self._newest = -(2**62)  # step
        # Of each change the step from which on a square is told, ascending, and the square.
        self._steps: list[int] = []
        self._squares: list[Square] = []

    @property
    def next_ms(self) -> int:
        """Return the end (ms) of the newest step that has a square."""
        return (self._newest + 1) * self._grid.step_ms

    def is_news(self, time: int) -> bool:
        """Tell whether a time (ms) has no square yet, as nothing of its step or later was seen."""
        return time // self._grid.step_ms > self._newest

    def square(self, time: int, lat: float, lon: float) -> Square:
        """Return the square to tell of a position at a time (ms)."""
        step = time // self._grid.step_ms
        if not self.is_news(time):
            number = bisect_right(self._steps, step) - 1
            return self._squares[number] if number >= 0 else self._grid.square(lat, lon)
        is_same_day = self._day_of(step) == self._day_of(self._newest)
        self._newest = step
        if is_same_day and self._squares[-1].is_near(lat, lon, self._margin_m):
            return self._squares[-1]
        square = self._grid.square(lat, lon)
        if not self._squares or square != self._squares[-1]:
            self._steps.append(step)
            self._squares.append(square)
            if len(self._steps) > _CHANGES_MAX:
                del self._steps[: _CHANGES_MAX // 2], self._squares[: _CHANGES_MAX // 2]
        return square

    def _day_of(self, step: int) -> int:
        return step * self._grid.step_ms // DAY_MS


class ToldSquaresOfDevices:
    """The squares of all devices that are told as squares, by what terms."""

    def __init__(self) -> None:
        self._of: OrderedDict[tuple[str, Terms], ToldSquares] = OrderedDict()

    def of(self, device: str, terms: Terms, grid: Grid) -> ToldSquares:
        """Return the squares of a device that are told by some terms."""
        key = (device, terms)
        squares = self._of.get(key)
        if squares is None:
            squares = self._of[key] = ToldSquares(grid)
            if len(self._of) > _DEVICES_MAX:
                self._of.popitem(last=False)
        self._of.move_to_end(key)
        return squares

    def forget(self) -> None:
        """Forget all: what is told in place of homes has changed."""
        self._of.clear()


def told_centres(
    times: NDArray[np.int64], lat: NDArray[np.float64], lon: NDArray[np.float64], grid: Grid
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the centres of the squares to tell of positions in the order of time.

    Of each step of time only the first position counts, which makes a year's way 100,000 looks at
    most, some 2 us each.
    """
    import numpy as np

    if not len(times):
        return lat, lon
    steps = times // grid.step_ms
    begins = np.flatnonzero(np.concatenate(([True], steps[1:] != steps[:-1])))
    squares = ToldSquares(grid)
    centres = np.array(
        [
            squares.square(*each).centre
            for each in zip(
                times[begins].tolist(), lat[begins].tolist(), lon[begins].tolist(), strict=True
            )
        ]
    )
    counts = np.diff(np.append(begins, len(times)))
    return np.repeat(centres[:, 0], counts), np.repeat(centres[:, 1], counts)
