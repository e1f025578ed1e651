from array import array
from collections.abc import Mapping, Sequence

class StreetIndex:
    object_count: int
    tail_count: int

    def __init__(self, sections_by_name: Mapping[str, memoryview]) -> None: ...
    def reverse(
        self, lat: float, lon: float, layers: int, rank_max: int, degrees: bool
    ) -> tuple[int, int, int, float, float, float]: ...
    def nearest_settlement(
        self, lat: float, lon: float, rank_max: int, degrees: bool
    ) -> tuple[int, float]: ...
    def reverse_batch(
        self,
        lat: Sequence[float],
        lon: Sequence[float],
        layers: int,
        rank_max: int,
        degrees: bool,
    ) -> tuple[array[int], array[int], array[int], array[float], array[float], array[float]]: ...
