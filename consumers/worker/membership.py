"""Settings, shared objects and counters that a worker keeps over all its sessions in a group."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic

from consumers.worker.delays import DelayedProcessor
from consumers.worker.processing_guarantee import AT_LEAST_ONCE, ProcessingGuarantee
from consumers.worker.processor import Processor, StateT
from waylog.kafka.reach import silence_reason
from waylog.observability.interceptors import Telemetry
from waylog.process.broker_liveness import BrokerLiveness
from waylog.process.process_status import ProcessStatus
from waylog.process.watchdog import Watchdog


@dataclass(frozen=True)
class WorkerSettings:
    """The bounds and intervals of one worker; times are in seconds."""

    batch_records: int = 2000
    #: Time that an idle worker waits for records before it does its other work.
    batch_wait_s: float = 0.05
    #: Time from one batch to the next while records keep coming. A result waits half of it on
    #: average. A batch costs the log one request and one sync for each partition; all its records
    #: share that cost. A record that comes alone waits for `gather_s` only.
    batch_interval_s: float = 0.03
    #: Wait after the first record of a batch, for records of other partitions that are on the way.
    gather_s: float = 0.003
    processing_guarantee: ProcessingGuarantee = AT_LEAST_ONCE
    #: Time from one commit of offsets to the next, at least once. Each commit is a record of the
    #: log for each partition; after a kill the records of so long are processed again.
    commit_interval_s: float = 0.5
    #: Time from one commit of a transaction to the next, exactly once. Results can be read after
    #: their commit, so they wait for half of it on average.
    transaction_interval_s: float = 0.1
    #: Time after which the log aborts a transaction that is not ended: readers of committed records
    #: wait that long for the results of others when this process is killed. It is as long as its
    #: place in the group is kept, and longer than a broker takes to start again.
    transaction_timeout_s: float = 10.0
    #: Limit for acknowledgements on a clean stop, or when a partition is revoked.
    drain_s: float = 10.0
    restart_pause_s: float = 1.0
    restart_pause_s_max: float = 30.0
    report_interval_s: float = 30.0
    #: End when a right is missing; otherwise the worker waits until somebody gives it.
    ends_if_forbidden: bool = False


class TopicsDiffer(Exception):
    """The topic to consume and the state topic cannot be used together."""


@dataclass
class Counters:
    """Counters of a worker since its start."""

    records: int = 0
    results: int = 0
    batches: int = 0
    sessions: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True, eq=False)
class Membership(Generic[StateT]):
    """A worker's settings and shared objects, the same over all its sessions."""

    bootstrap_servers: str
    group: str
    topic: str
    processor: Processor[StateT]
    client_id: str
    telemetry: Telemetry
    settings: WorkerSettings
    on_ready: Callable[[], None]
    delayed: DelayedProcessor[StateT] | None = None
    counters: Counters = field(default_factory=Counters)
    stopping: threading.Event = field(default_factory=threading.Event)
    #: Of all sessions, so that each one ends the transaction that the one before left open; of no
    #: other process, which would be fenced.
    transactional_id: str = field(init=False)
    contact: BrokerLiveness = field(init=False)
    watchdog: Watchdog = field(default_factory=Watchdog)
    status: ProcessStatus = field(default_factory=ProcessStatus)

    def __post_init__(self) -> None:
        why = partial(silence_reason, self.bootstrap_servers)
        object.__setattr__(self, "transactional_id", f"{self.group}-{uuid.uuid4()}")
        object.__setattr__(self, "contact", BrokerLiveness(self.status, why))
