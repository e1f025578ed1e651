"""A user database for the tests of its parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.users.database import UserStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[UserStore]:
    """Yield a database with ada, bob and cyd."""
    store = UserStore(tmp_path / "users.db")
    for name in ("ada", "bob", "cyd"):
        store.add(name)
    yield store
    store.close()
