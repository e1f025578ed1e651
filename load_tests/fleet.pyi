from collections.abc import Iterator

class Fleet:
    """A fleet of `devices` devices that together send `rate` fixes per second."""

    devices: int
    first_device: int
    rate: float
    run: str
    user: str
    sent: int  # fixes that were sent at least once
    acknowledged: int
    resent: int  # PUBLISH packets with DUP
    late: int  # sent more than 100 ms after they were due
    pushes: int  # fixes whose address was received
    push_messages: int  # all messages on address topics
    push_bytes: int
    connects: int
    connect_failures: int
    disconnects: int
    protocol_errors: int
    ready: int  # devices that may publish now
    refused: int  # devices whose password was rejected
    last_errno: int
    def __init__(
        self,
        host: str,
        port: int,
        *,
        devices: int,
        rate: float,
        run: str,
        first_device: int = 0,
        user: str = "load",
        password: str | None = None,
        source_addresses: int = 8,
        window: int = 16,
        ack_timeout_s: float = 30.0,
        connects_per_s: float = 4000.0,
        subscribe: bool = True,
    ) -> None: ...
    def device_name(self, index: int) -> str: ...
    def begin(self) -> float: ...
    def end(self) -> None: ...
    @property
    def due(self) -> int: ...
    @property
    def settled(self) -> bool: ...
    def step(self, wait_ms: int = 20) -> None: ...
    def close(self) -> None: ...
    def take_acknowledgement_latencies(self) -> list[tuple[int, int]]: ...
    def take_push_latencies(self) -> list[tuple[int, int]]: ...
    def accounts(self) -> Iterator[tuple[int, int, bytes]]: ...
