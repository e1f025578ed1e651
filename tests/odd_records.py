"""Records of other programs that no reader of ours can take."""

from __future__ import annotations

import asyncio
from typing import Final

from waylog.kafka.batch_producer import BatchProducer

#: Values that are JSON, or nearly so, and for which decoding raises three kinds of errors.
MALFORMED_VALUES: Final = (
    b"{",
    b'{"device":"\xff","owner":"\xff"}',
    b'{"x":' + b"[" * 3000 + b"]" * 3000 + b"}",
)


class _NotUtf8(str):
    """The name of a header that another client has written."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b"\xff\xfe"


def append_with_odd_header(servers: str, topic: str, value: bytes, key: bytes) -> None:
    """Append a record that has a header whose name is not UTF-8."""

    async def append() -> None:
        producer = BatchProducer(servers, "test", asyncio.get_running_loop())
        await producer.append(topic, value, key, [(_NotUtf8("name"), b"value")])
        assert await producer.close() == 0

    asyncio.run(append())
