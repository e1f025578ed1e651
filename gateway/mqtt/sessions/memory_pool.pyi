from typing import Any

class Pool:
    """A pool of bytes that all users share."""

    total: int
    each: int
    used: int
    def __init__(self, total: int, each: int) -> None: ...

class Account:
    """One user's part of a pool (bytes)."""

    pool: Pool
    held: int
    waiting: dict[Any, None] | None
    def __init__(self, pool: Pool) -> None: ...
    def take(self, amount: int) -> bool: ...
    def hold(self, amount: int) -> None: ...
    def give_back(self, amount: int) -> None: ...
