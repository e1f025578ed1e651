"""One of several workers that share connectors: what it does when the group or a topic changes.

One loop joins the group, begins and ends what the leader has assigned, and reacts to what is read
from the topic of configurations. Operations of requests wait until the worker has its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from consumers.connect.configuration.variables import Variables
from consumers.connect.data.exceptions import ConnectException
from consumers.connect.distributed.cluster_view import ClusterView
from consumers.connect.distributed.distributed_settings import (
    DistributedSettings,
    ExactlyOnce,
    group_security,
)
from consumers.connect.distributed.leader_client import LeaderClient
from consumers.connect.distributed.shared_log import shared_log
from consumers.connect.distributed.source_fencing import SourceFencing
from consumers.connect.group.assignor import Assignor
from consumers.connect.group.member import Member
from consumers.connect.group.membership import Membership
from consumers.connect.group.protocol import SESSIONED, Assignment
from consumers.connect.group.session_keys import check_signature, make_key
from consumers.connect.group.work import Work
from consumers.connect.herder.distributed_herder import DistributedHerder
from consumers.connect.herder.effects import (
    Effect,
    FenceTasks,
    Operation,
    PublishTasks,
    Refresh,
    RequestRestart,
)
from consumers.connect.herder.refusals import WrongWorker
from consumers.connect.herder.restart_plan import RestartRequest
from consumers.connect.observability.measures import Durations, Measure
from consumers.connect.storage.config_records import (
    logger_record,
    restart_record,
    session_key_record,
)
from consumers.connect.storage.config_topic import (
    ConnectorChanged,
    ConnectorRemoved,
    LevelChanged,
    Notice,
    RestartRequested,
    TargetChanged,
    TasksChanged,
)
from consumers.connect.storage.configurations import PutTasks
from consumers.connect.storage.states import TaskId
from consumers.connect.topics.config_store import ConfigStore
from consumers.connect.topics.offset_store import OffsetTopicStore
from consumers.connect.topics.status_store import StatusTopicStore
from consumers.connect.worker.in_thread import in_thread
from consumers.connect.worker.listener import HerderListener
from consumers.connect.worker.log_levels import LogLevels, is_level
from consumers.connect.worker.operations import REQUEST_S, OperationDriver, TimedOut
from consumers.connect.worker.plugin_table import WorkerPlugins
from consumers.connect.worker.worker import CONNECTOR_STOP_S, Worker
from consumers.connect.worker.worker_settings import WorkerSettings
from waylog.kafka.group_coordinator import GroupCoordinator
from waylog.process.background import spawn
from waylog.process.log_throttle import LogThrottle, since_last_line

logger = logging.getLogger(__name__)

T = TypeVar("T")
#: Seconds until a connector's tasks are sent to the leader again, growing.
_PUBLISH_AGAIN_S: Final = 0.25
_PUBLISH_AGAIN_MAX_S: Final = 60.0
#: How often a worker that cannot read the configurations joins again before it gives its work up.
_UNSYNC_TRIES: Final = 5
_FLUSH_S: Final = 3.0
_REBALANCES: Final = "connect-worker-rebalance-metrics"
#: Seconds until all join again when some have read more configurations than others.
_MISMATCH_S: Final = 0.1
#: The same when one of them reads another topic, which takes an operator to change.
_OTHER_TOPIC_S: Final = 2.0
#: Changes after which work may move.
_MOVING: Final = (ConnectorChanged, ConnectorRemoved, TasksChanged)


class DistributedWorker:
    """One worker (`ConnectWorker`). All methods are called on the event loop."""

    def __init__(
        self,
        settings: DistributedSettings,
        variables: Variables,
        *,
        worker_id: str,
        url: str,
        cluster_id: str,
    ) -> None:
        """`worker_id` is HOST:PORT of the REST interface, `url` where others reach it."""
        self._all: Final = settings
        self._worker_id: Final = worker_id
        self.settings: Final[WorkerSettings] = settings.worker
        self.plugins: Final = WorkerPlugins()
        self.cluster_id: Final = cluster_id
        self.levels: Final = LogLevels()
        self.is_ready = False
        self._loop: Final = asyncio.get_running_loop()
        self._config: Final = ConfigStore(settings.config_topic.name, self._loop, self._on_notice)
        self._statuses: Final = StatusTopicStore(
            settings.status_topic.name, self._loop, self._on_topics_forgotten
        )
        self._offsets: Final = OffsetTopicStore(
            settings.offset_topic.name, self.settings.timing.flush_timeout_s, self._may_write
        )
        self._member: Final = Member(url, settings.protocol, Assignor(settings.max_delay_ms))
        self.herder: Final = DistributedHerder(
            self._config,
            self._statuses,
            worker_id,
            self.plugins.type_of_configuration,
            ClusterView(self._member, lambda: self._rebalance_expected),
            self.plugins.version_of_configuration,
            is_exactly_once=settings.exactly_once is ExactlyOnce.ENABLED,
        )
        self._leader: Final = LeaderClient(
            settings.signature_algorithm, self.settings.rest_security.client
        )
        self._sources: Final = SourceFencing(
            settings, self._member, self._config, self._leader, self._may_write
        )
        listener = HerderListener(
            lambda: self.herder,
            self._loop,
            self._divide,
            tracks_topics=self.settings.tracks_topics,
        )
        self.worker: Final = Worker(
            self.settings,
            variables,
            self.plugins,
            self._config,
            self._offsets,
            listener,
            self._sources.exactly_once,
        )
        self._driver: Final = OperationDriver(self._carry_out)
        self._log: Final = shared_log(settings, self._config, self._statuses, self._offsets)
        self._membership: Membership | None = None
        self._main: asyncio.Task[None] | None = None
        #: What was begun here and not ended.
        self._running = Work()
        self._notices: Final[list[Notice]] = []
        self._reads_notices = False
        self._woken: Final = asyncio.Event()
        self._settled: Final = asyncio.Event()
        #: When work is divided again, on the loop's clock; None: it is not known yet.
        self._rebalance_at: float | None = None
        self._unsync_tries = 0
        self._said_other_topic: Final = LogThrottle()
        self._rebalances: Final = Durations()
        self._publish_tries: Final[dict[str, int]] = {}

    # ---- life ----

    async def start(self) -> None:
        """Read the topics, and join the group; `settled` tells when this worker has its place.

        Raises LogUnreachable, ConfigError.
        """
        await in_thread(self._log.start, "connect-topics-start")
        for topic in self._all.topics:
            await asyncio.wrap_future(self._log.read_to_end(topic.name))
        self._reads_notices = True
        coordinator = GroupCoordinator(
            self.settings.bootstrap_servers,
            f"connect-{self._worker_id}",
            self._all.group_id,
            group_security(self.settings),
        )
        self._membership = Membership(
            coordinator,
            self._member,
            self._all.timing,
            self,
            wake=self._woken.set,
            cut_off=self._cut_off,
        )
        self._main = spawn(self._run(), "the worker's place in its group", endless=True)

    async def settled(self) -> None:
        """Wait until this worker has its place in the group."""
        await self._settled.wait()

    async def close(self) -> None:
        """End all work, tell so, and leave the group."""
        if self._main is not None:
            self._main.cancel()
            await asyncio.gather(self._main, return_exceptions=True)
        await self._driver.close(CONNECTOR_STOP_S)
        await self.worker.close()
        # The threads' last reports have been posted to the loop.
        await asyncio.sleep(0)
        await in_thread(lambda: self._log.flush(_FLUSH_S), "connect-topics-flush")
        if self._membership is not None:
            await self._membership.leave()
            await self._membership.close()
        await self._leader.close()
        await in_thread(self._log.close, "connect-topics-close")

    # ---- Configurations of the group ----

    @property
    def offset(self) -> int:
        """See Configurations."""
        return self._config.offset

    def configured(self) -> Work:
        """See Configurations."""
        config = self._config.config
        connectors = config.connectors()
        return Work.of(connectors, (task for each in connectors for task in config.tasks(each)))

    async def refresh(self) -> bool:
        """See Configurations."""
        return await self._config.refresh(self._all.sync_timeout_s)

    # ---- ConnectWorker ----

    async def run(self, connector: str, operation: Operation[T]) -> T:
        """See ConnectWorker."""
        try:
            async with asyncio.timeout(REQUEST_S):
                await self._settled.wait()
        except TimeoutError:
            raise TimedOut(
                "Request timed out. The worker is currently ensuring membership in the cluster."
            ) from None
        return await self._driver.run(connector, operation)

    async def accept(self, connector: str, operation: Operation[Any]) -> None:
        """See ConnectWorker; what it asks for is stored when this returns."""
        await self.run(connector, operation)

    def reset_topics(self, connector: str) -> None:
        """See ConnectWorker."""
        self.herder.reset_topics(connector)

    async def set_levels(self, logger: str, level: str) -> None:
        """See ConnectWorker."""
        record = logger_record(logger, level)
        await self._config.write_records([[record]], "Error writing logger level to Kafka")

    def measures(self) -> Iterator[Measure]:
        """See ConnectWorker."""
        yield from self.worker.measures()
        yield from self.herder.measures()
        yield Measure(_REBALANCES, "epoch", self._member.generation)
        yield Measure(_REBALANCES, "leader", self._member.is_leader)
        yield Measure(_REBALANCES, "rebalancing", not self._settled.is_set())
        yield Measure(_REBALANCES, "completed-rebalances-total", self._rebalances.count)
        yield from self._rebalances.measures(_REBALANCES, "rebalance")

    def check_internal(self, headers: Any, body: bytes) -> None:
        """Raise Refused unless another worker has sent a request."""
        if self._member.protocol == SESSIONED:
            key, allowed = self._config.session_key, self._all.verification_algorithms
            check_signature(headers, body, key, allowed)

    # ---- the loop ----

    async def _run(self) -> None:
        membership = self._membership
        assert membership is not None
        while True:
            if self._rebalance_at is not None and self._loop.time() >= self._rebalance_at:
                self._rebalance_at = None
                membership.rejoin()
            if membership.must_join:
                self._settled.clear()
                await self._take_place(membership)
                continue
            await self._follow_notices(membership.rejoin)
            if membership.must_join:
                continue
            self._settled.set()
            await self._renew_key()
            await self._sleep()

    async def _sleep(self) -> None:
        wake_ats = [at for at in (self._rebalance_at, self._key_renewal_at()) if at is not None]
        timeout_s = max(min(wake_ats) - self._loop.time(), 0.0) if wake_ats else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        self._woken.clear()

    async def _take_place(self, membership: Membership) -> None:
        """Join the group, and begin and end what was assigned; it may have to join once more."""
        began = self._loop.time()
        if self._member.is_eager:
            # Whoever gets it next may begin it as soon as all have joined.
            await self._end(self._running)
            self._member.cut_off()
        led = self._member.is_leader
        assignment = await membership.join()
        if self._member.is_leader and not led:
            await self._claim()
        self.herder.generation = self._member.generation
        delay_ms = assignment.delay_ms
        self._rebalance_at = self._loop.time() + delay_ms / 1000 if delay_ms > 0 else None
        # What was revoked has ended before anybody else can begin it: they get it when this worker
        # has joined again without it.
        await self._end(assignment.revoked.both(self._running))
        if self._member.is_leader:
            self.herder.forget_deleted()
        if not await self._is_current(membership, assignment):
            return
        # The leader has known of all of them.
        await self._follow_notices()
        self._begin_missing()
        self._rebalances.add(self._loop.time() - began)
        if not assignment.revoked.is_empty and not self._member.is_eager:
            membership.rejoin()

    async def _claim(self) -> None:
        try:
            await self._config.claim()
        except ConnectException as error:
            logger.warning("the right to write configurations is not taken yet: %s", error)

    async def _is_current(self, membership: Membership, assignment: Assignment) -> bool:
        """Tell whether an assignment is about the configurations that are there now."""
        needs_read = self._config.offset < assignment.offset or (
            assignment.failed and self._member.is_leader
        )
        if needs_read and not await self.refresh():
            await self._fall_out(membership)
            return False
        self._unsync_tries = 0
        if needs_read and self._config.offset < assignment.offset:
            await self._meet_other_topic(assignment)
            membership.rejoin()
            return False
        # Newer records matter only if they move work.
        newer = self._config.offset > assignment.offset and self._moves_pending
        if assignment.failed or newer:
            logger.info(
                "the assignment is of configurations up to %d, and this worker has read up to %d",
                *(assignment.offset, self._config.offset),
            )
            await asyncio.sleep(_MISMATCH_S)
            membership.rejoin()
            return False
        return True

    async def _meet_other_topic(self, assignment: Assignment) -> None:
        """Tell that some worker knows configurations beyond the end of the topic, and wait.

        As in Kafka the group divides no work until that worker has gone.
        """
        unsaid = self._said_other_topic.count(self._loop.time())
        if unsaid is not None:
            ahead = self._member.ahead
            logger.error(
                "worker %s has read configurations up to offset %d, and topic %s ends at %d: all "
                "workers of group %s need the same config.storage.topic on the same cluster; no "
                "work is divided until then%s",
                assignment.leader_url if ahead is None else ahead.url,
                assignment.offset,
                self._config.topic,
                max(self._config.offset, 0),
                self._all.group_id,
                since_last_line(unsaid),
            )
        await asyncio.sleep(_OTHER_TOPIC_S)

    async def _fall_out(self, membership: Membership) -> None:
        """Stay out of the group for a while: the others would wait for this worker."""
        self._unsync_tries += 1
        backoff_s = self._all.unsync_backoff_s
        if self._unsync_tries <= _UNSYNC_TRIES:
            share_s = self._all.max_delay_ms / 1000 / 10 / (_UNSYNC_TRIES + 1 - self._unsync_tries)
            backoff_s = min(backoff_s, share_s)
        else:
            self._unsync_tries = 0
            await self._end(self._member.cut_off())
        logger.warning(
            "configurations were not read to the end in time; joining again in %.1f s", backoff_s
        )
        await membership.leave()
        await asyncio.sleep(backoff_s)
        while not await self.refresh():
            pass  # each waits for worker.sync.timeout.ms; what is wrong is told by the log's thread
        membership.rejoin()

    # ---- what has changed ----

    def _on_notice(self, notice: Notice) -> None:
        if self._reads_notices:
            self._notices.append(notice)
            self._woken.set()

    def _on_topics_forgotten(self, connector: str) -> None:
        self.worker.forget_topics(connector)

    @property
    def _rebalance_expected(self) -> bool:
        return self._membership is None or self._membership.must_join or self._moves_pending

    @property
    def _moves_pending(self) -> bool:
        return any(isinstance(each, _MOVING) for each in self._notices)

    async def _follow_notices(self, rejoin: Callable[[], None] = lambda: None) -> None:
        """React to what was read; call `rejoin` if work has to be divided anew."""
        notices = list(self._notices)
        self._notices.clear()
        changed: set[str] = set()
        moves = False
        for notice in notices:
            match notice:
                case ConnectorChanged():
                    moves = moves or notice.is_new
                    if notice.connector in self._running.connectors:
                        self._later(notice.connector, self.herder.begin(notice.connector))
                case ConnectorRemoved():
                    moves = True
                case TasksChanged():
                    moves = True
                    changed.add(notice.connector)
                case TargetChanged():
                    self._later(notice.connector, self.herder.move(notice.connector))
                case RestartRequested():
                    request = RestartRequest(*notice)
                    self._later(notice.connector, self.herder.restart_here(request))
                case LevelChanged() if is_level(notice.level):
                    self.levels.set(notice.logger, notice.level)
        # They begin again, with their new properties, where they are assigned then.
        tasks = [each for each in self._running.tasks if each.connector in changed]
        if moves:
            rejoin()
        await self._end(Work.of((), tasks))

    def _later(self, connector: str, operation: Operation[Any]) -> None:
        self._driver.run_later(connector, operation)

    # ---- work ----

    def _begin_missing(self) -> None:
        missing = self._member.work.minus(self._running)
        self._running = self._running.both(self._member.work).plus(missing)
        for connector in sorted(missing.connectors):
            self._later(connector, self.herder.begin(connector))
        for connector, tasks in _by_connector(missing.tasks).items():
            self._later(connector, self.herder.begin_tasks(tasks))

    async def _end(self, work: Work) -> None:
        """End work and wait for that, for a time: a plugin may hang."""
        if work.is_empty:
            return
        ending = self._begin_to_end(work, None)
        await asyncio.wait(ending, timeout=self.settings.stop_timeout_s + 2 * CONNECTOR_STOP_S)

    def _begin_to_end(self, work: Work, within_s: float | None) -> list[asyncio.Task[None]]:
        self._running = self._running.minus(work)
        tasks = _by_connector(work.tasks)
        return [
            self._driver.run_later(
                connector,
                self.herder.end(
                    {connector} & work.connectors,
                    tasks.get(connector, ()),
                    generation=self.herder.generation,
                    within_s=within_s,
                ),
            )
            for connector in {*work.connectors, *tasks}
        ]

    def _cut_off(self, work: Work) -> None:
        """End all work at once: others may get it soon."""
        self._settled.clear()
        self._begin_to_end(work.plus(self._running), self._all.timing.stop_s)

    def _may_write(self) -> bool:
        return self._membership is not None and self._membership.is_held

    def _divide(self, connector: str) -> None:
        if connector in self._running.connectors:
            self._later(connector, self.herder.divide(connector))

    # ---- effects ----

    async def _carry_out(self, effect: Effect) -> Any:
        match effect:
            case PublishTasks():
                return await self._publish(effect)
            case RequestRestart():
                record = restart_record(
                    effect.connector,
                    only_failed=effect.only_failed,
                    include_tasks=effect.include_tasks,
                )
                return await self._config.write_records(
                    [[record]], "Error writing restart request to Kafka"
                )
            case FenceTasks():
                return await self._sources.fence(effect.connector)
            case Refresh():
                if not await self.refresh():
                    raise ConnectException("Failed to read to end of config topic")
                return None
        return await self.worker.carry_out(effect)

    async def _publish(self, effect: PublishTasks) -> None:
        connector = effect.connector
        try:
            await self._publish_once(effect)
        except ConnectException as error:
            tries = self._publish_tries.get(connector, 0)
            self._publish_tries[connector] = tries + 1
            again_s = min(_PUBLISH_AGAIN_S * 2 ** min(tries, 10), _PUBLISH_AGAIN_MAX_S)
            logger.warning(
                "tasks of connector %s are not stored, and sent again in %.2f s: %s",
                *(connector, again_s, error),
            )
            self._loop.call_later(again_s, self._divide, connector)
            return
        self._publish_tries.pop(connector, None)

    async def _publish_once(self, effect: PublishTasks) -> None:
        if self._member.is_leader:
            await self.refresh()
            await self._config.write(PutTasks(effect.connector, effect.tasks))
            return
        url = self._member.leader_url
        if url is None:
            raise WrongWorker("the leader of the workers is not known", None)
        key = self._config.session_key if self._member.protocol == SESSIONED else None
        await self._leader.put_tasks(url, effect.connector, effect.tasks, key)

    # ---- the key of the workers ----

    def _key_age_limit(self) -> float | None:
        """Return the time (s since 1970) at which the leader makes another key; None: never."""
        if not self._member.is_leader or self._member.protocol != SESSIONED:
            return None
        key = self._config.session_key
        if key is None or key.algorithm != self._all.key_algorithm:
            return 0.0
        return (key.created_ms + self._all.key_ttl_ms) / 1000

    def _key_renewal_at(self) -> float | None:
        limit = self._key_age_limit()
        return None if limit is None else self._loop.time() + max(limit - time.time(), 1.0)

    async def _renew_key(self) -> None:
        limit = self._key_age_limit()
        now = time.time()
        if limit is None or now < limit:
            return
        key = make_key(self._all.key_algorithm, self._all.key_size_bits, round(now * 1000))
        try:
            await self._config.write_records(
                [[session_key_record(key)]], "Error writing session key to Kafka"
            )
        except ConnectException as error:
            logger.warning("%s", error)


def _by_connector(tasks: Iterable[TaskId]) -> dict[str, list[TaskId]]:
    grouped: dict[str, list[TaskId]] = defaultdict(list)
    for task in tasks:
        grouped[task.connector].append(task)
    return grouped
