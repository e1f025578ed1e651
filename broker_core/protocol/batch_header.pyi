HEADER_BYTES: int

class BatchHeader:
    position: int
    size: int
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    has_null_key: bool
    newest_timestamp: int
    oldest_timestamp: int
    @property
    def last_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def compression(self) -> int: ...
    @property
    def is_log_append_time(self) -> bool: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def delete_horizon_ms(self) -> int: ...
    @property
    def is_control(self) -> bool: ...
