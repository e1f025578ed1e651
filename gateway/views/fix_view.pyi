from collections.abc import Callable, Sequence

from gateway.fixes.known_fixes import KnownFixes
from gateway.views.location_view import LocationView
from gateway.views.snapshots.key_view import KeyView
from gateway.views.view import Record, ViewEvent

def take_fixes(
    view: LocationView,
    records: Sequence[Record],
    known_fixes: KnownFixes,
    events: list[ViewEvent] | None,
    make_event: Callable[[int, int, str, float, float, bytes, int], ViewEvent],
    positions: dict[int, int],
    recent: bool = True,
) -> None: ...
def take_keys(
    view: KeyView,
    records: Sequence[Record],
    known_fixes: KnownFixes,
    positions: dict[int, int],
    recent: bool = True,
) -> None: ...
