from typing import TypeAlias

#: Key for gateway.known_fixes, device, record, and whether its id is the client's own.
Record: TypeAlias = tuple[int, bytes, bytes, bool]

class PlainPositions:
    def __init__(self, user: str, device: str | None = None) -> None: ...
    def records(self, body: bytes, received: int) -> list[Record] | None: ...

def answer(records: list[Record]) -> bytes: ...
