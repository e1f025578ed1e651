"""Limits of the HTTP listener."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from waylog.network.reading_watch import STALLED_S

MEBIBYTE: Final = 1024 * 1024

#: Approximate bytes that a request under way takes besides its body.
OVERHEAD_BYTES: Final = 1024
#: Bytes that a record takes in the log's queue besides its part of the body: the key, the trace,
#: and members that the body does not have.
RECORD_BYTES: Final = 512

#: Bytes of the files that a user may have in imports that are not finished.
IMPORT_BYTES_MAX: Final = 16 * 1024 * MEBIBYTE

#: The reason of a refusal when too many bytes of a user wait for the log.
TOO_MUCH_UNDER_WAY: Final = "too much that you have sent waits for the log"


@dataclass(frozen=True)
class HttpLimits:
    """Limits of the HTTP listener; sizes are bytes, times seconds."""

    body_bytes_max: int = 8 * MEBIBYTE
    #: Large bodies being received at one time: over all connections, and of one user, or of one
    #: address before its credentials are known.
    all_body_bytes_max: int = 64 * MEBIBYTE
    body_bytes_each_max: int = 24 * MEBIBYTE
    #: Bytes received that wait for the log: over all connections, and of one user.
    under_way_bytes_max: int = 64 * MEBIBYTE
    under_way_bytes_each_max: int = 16 * MEBIBYTE
    #: Incomplete plain requests: over all connections, and of one address, or of one account of
    #: this machine.
    partial_bytes_max: int = 64 * MEBIBYTE
    partial_bytes_each_max: int = 16 * MEBIBYTE
    #: Large answers that are being made or sent: over all connections, and of one user.
    unread_bytes_max: int = 256 * MEBIBYTE
    unread_bytes_each_max: int = 64 * MEBIBYTE
    #: A client that reads nothing of a large answer for this long is disconnected.
    stalled_answer_timeout_s: float = STALLED_S
    #: Who takes less of an export a second, after a while, is disconnected: others wait for it.
    export_bytes_per_s_min: int = 8 * 1024
    export_patience_s: float = 120.0
    body_timeout_s: float = 60.0
    #: From a connection's start, or the end of its last request, to the end of the next request's
    #: headers. Clients that send them byte by byte are disconnected.
    header_timeout_s: float = 75.0
    header_line_bytes_max: int = 8190
    headers_max: int = 100
    #: All headers of a request together, as in nginx and Kestrel. Browsers send at most some 10 kB.
    head_bytes_max: int = 32 * 1024
    connections_max: int = 10_000
    #: Per address; loopback is not limited.
    connections_per_address_max: int = 1_000
    requests_per_s_per_address: float = 1_000.0
    #: Wrong credentials. Beyond this rate passwords for unknown names are not even verified.
    failures_per_minute_per_address: float = 60.0
    #: Passwords that an address, loopback too, may try for one name.
    guesses_at_once_per_name: int = 20
    guesses_per_minute_per_name: float = 2.0
    #: A request waits this long for the log. Then it is answered with 503, and a repeat joins the
    #: wait.
    append_timeout_s: float = 10.0
    #: A response waits this long for the address of the fix it acknowledges.
    address_timeout_s: float = 0.05
    #: Live viewers (SSE and WebSocket) of one user, and of one address unless it is loopback.
    viewers_per_user_max: int = 50
    viewers_per_address_max: int = 200
    #: A viewer that reads nothing for this long is disconnected.
    stalled_viewer_timeout_s: float = 30.0
    #: Days until which a share may last at most.
    share_days_max: int = 30
    #: Per WebSocket, with bursts of five seconds' worth.
    fixes_per_s_per_websocket: float = 2_000.0
    #: Refused requests that are kept in topic `error`; all are counted in the metrics.
    refusals_recorded_per_s: float = 10.0
    refusals_recorded_per_s_per_address: float = 2.0
    refusal_bytes_recorded: int = 64 * 1024
