"""What is to be done for a record."""

from __future__ import annotations

from typing import Any, NamedTuple

from consumers.connect.data.records import SinkRecord
from consumers.connect.data.schemas import Schema

Key = tuple[Any, ...]


class Item(NamedTuple):
    """A record with the key of its row, and the struct or object that it says."""

    record: SinkRecord
    key: Key
    value: Any
    #: The schema; True: an object without one; False: no value, the row is deleted.
    form: Schema | bool
