from collections.abc import Sequence

from geoservice.index.streets import StreetIndex

class AddressWriter:
    def __init__(self, streets: StreetIndex) -> None: ...
    def write(
        self,
        objects: Sequence[int],
        tails: Sequence[int],
        numbers: Sequence[int],
        metres: Sequence[float],
    ) -> list[bytes | None]: ...

class TownWriter:
    def __init__(self, most: int) -> None: ...
    def keep(self, town: int, members: bytes) -> None: ...
    def write(
        self, towns: Sequence[int], metres: Sequence[float], farthest: float
    ) -> tuple[list[bytes | None], list[int]]: ...
