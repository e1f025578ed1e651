from typing import Any

from broker_core.protocol.plan import Plan

_Buffer = bytes | bytearray | memoryview

STRING_MAX: int

# What a body has in it only its caller knows: see `bodies.py`. Messages are always dicts.
def decode(plan: Plan, view: _Buffer, start: int = 0, string_max: int = ...) -> tuple[Any, int]: ...
def decode_request_header(
    view: _Buffer, start: int = 0
) -> tuple[int, int, int, str | None, int]: ...
def skip_tagged_fields(view: _Buffer, start: int) -> int: ...
