from collections.abc import Iterable

from gateway.views.live_positions import LivePositions

VERSION: int
POINTS_FROM: int
CELLS_MAX: int
LEVEL_MAX: int

class LevelCounts:
    level: int
    def __init__(self, positions: LivePositions, level: int, now: int) -> None: ...
    def __len__(self) -> int: ...

class Lens:
    level: int
    version: int
    delta: bytes | None
    inside: int
    has_points: bool
    def __init__(
        self, level: int, x: int, y: int, columns: int, lines: int, points_from: int = ...
    ) -> None: ...
    def refresh(self, positions: LivePositions, counts: LevelCounts | None, now: int) -> bool: ...
    def whole(self, positions: LivePositions, now: int) -> bytes: ...

def chosen_frame(positions: LivePositions, devices: Iterable[str], now: int) -> bytes: ...

class SentNames:
    def frame(self, positions: LivePositions, points: bytes, now: int) -> bytes | None: ...
