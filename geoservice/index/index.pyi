from array import array
from typing import Any

NEAR_COAST_M: float
STRAY_M: float

class WorldIndex:
    cell_count: int
    leaf_count: int
    piece_count: int
    vertex_count: int
    country_count: int
    town_count: int
    stray_count: int
    def __init__(
        self,
        # Any object with a buffer of the right type: memoryview, array, numpy array.
        cells: Any,
        leaves: Any,
        pieces: Any,
        vertices: Any,
        countries: Any,
        tree: Any,
        axes: Any,
        towns: Any,
        stray_ends: Any,
        stray_tree: Any,
        stray_axes: Any,
        strays: Any,
        string_ends: Any,
        string_bytes: int,
    ) -> None: ...
    def reverse(self, lat: float, lon: float) -> tuple[int, int, float]: ...
    def reverse_batch(self, lat: Any, lon: Any) -> tuple[array[int], array[int], array[float]]: ...
