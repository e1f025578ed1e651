from typing import Final

FORM_OTHER: Final = 0
FORM_POSITION: Final = 1
FORM_OWNTRACKS: Final = 2

class FixRoute:
    """The route of one device's payloads of one form."""

    def __init__(self, device: str | None, form: int) -> None: ...
    @property
    def is_quick(self) -> bool: ...
    def record_of(self, payload: bytes, received: int) -> tuple[bytes, int] | None: ...

def is_plain(name: str) -> bool: ...
