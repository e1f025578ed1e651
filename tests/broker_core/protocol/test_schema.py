"""Tables of fields that are malformed; test_definitions compiles those of all APIs."""

from __future__ import annotations

import pytest

from broker_core.protocol.schema import SchemaError, parse_fields


@pytest.mark.parametrize(
    "table",
    ["    name int32", "    name int99 0+", "        name int32 0+", "    a int32 0+ odd 1"],
)
def test_a_malformed_table_is_found_when_it_is_read(table: str) -> None:
    with pytest.raises(SchemaError):
        parse_fields(table)
