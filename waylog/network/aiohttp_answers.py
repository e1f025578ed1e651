"""What an aiohttp server still has to answer on a connection."""

from __future__ import annotations

from aiohttp.web_protocol import RequestHandler


def awaits_client(protocol: RequestHandler) -> bool:
    """Tell whether nothing can happen before the client sends more."""
    waiter = protocol._waiter
    if waiter is not None and not waiter.done() and not protocol._messages:
        return True
    # There is none for a moment when aiohttp has taken a request and not begun with it.
    current = protocol._current_request
    return current is not None and not current.content.is_eof()


def owes_answers(protocol: RequestHandler) -> bool:
    """Tell whether an answer to a complete request has not been written, or not all of it.

    The answer of a stream or a WebSocket has begun and has no length: its client has gone if it
    sends no more.
    """
    if protocol._upgraded or awaits_client(protocol):
        return False
    current = protocol._current_request
    if current is None:
        return True
    writer = current.writer
    return not writer.output_size or bool(writer.length)
