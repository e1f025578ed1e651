"""What a worker is in its group, over all its sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic

from consumers.processor import Processor, StateT
from waylog.observability.interceptors import Telemetry
from waylog.process.log_contact import LogContact


@dataclass(frozen=True)
class WorkerSettings:
    """Bounds of one worker."""

    batch_records: int = 2000
    #: How long an idle worker waits before it looks after everything else.
    batch_wait_s: float = 0.05
    #: From one batch to the next while records keep coming: a result waits half of it on average,
    #: and what a batch costs the log (a request and a sync for each partition) is shared by all
    #: its records. A record that comes alone waits for `gather_s` only.
    batch_interval_s: float = 0.03
    #: After the first record of a batch: those of other partitions are on their way too.
    gather_s: float = 0.003
    commit_interval_s: float = 0.2
    #: How long a clean stop, or giving a partition away, waits for acknowledgements.
    drain_s: float = 10.0
    restart_pause_s: float = 1.0
    restart_pause_s_max: float = 30.0
    report_interval_s: float = 30.0


class TopicsDiffer(Exception):
    """The topic to consume and the topic of states cannot be used together."""


@dataclass
class Counters:
    """What a worker has done since it was started."""

    records: int = 0
    results: int = 0
    batches: int = 0
    sessions: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True, eq=False)
class Membership(Generic[StateT]):
    """What a worker is in the group: the same over all its sessions."""

    bootstrap_servers: str
    group: str
    topic: str
    processor: Processor[StateT]
    client_id: str
    telemetry: Telemetry
    settings: WorkerSettings
    on_ready: Callable[[], None]
    counters: Counters = field(default_factory=Counters)
    stopping: threading.Event = field(default_factory=threading.Event)
    contact: LogContact = field(default_factory=LogContact)
