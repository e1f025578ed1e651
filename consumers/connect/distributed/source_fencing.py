"""Exactly-once sources on several workers: who fences former tasks, and which task may begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.distributed.distributed_settings import DistributedSettings, ExactlyOnce
from consumers.connect.distributed.leader_client import LeaderClient
from consumers.connect.group.member import Member
from consumers.connect.group.protocol import SESSIONED
from consumers.connect.storage.configurations import Properties
from consumers.connect.storage.states import TaskId
from consumers.connect.topics.config_store import ConfigStore
from consumers.connect.worker.worker import ExactlyOnceSources

#: Seconds for fencing former tasks, and until that is asked again.
_FENCE_S: Final = 30.0
_AGAIN_S: Final = 0.5


class SourceFencing:
    """What one worker does about it."""

    def __init__(
        self,
        settings: DistributedSettings,
        member: Member,
        config: ConfigStore,
        leader: LeaderClient,
        is_member: Callable[[], bool],
    ) -> None:
        self._sync_timeout_s: Final = settings.sync_timeout_s
        self._member: Final = member
        self._config: Final = config
        self._leader: Final = leader
        self._is_member: Final = is_member
        self._loop: Final = asyncio.get_running_loop()
        #: For the worker; None: sources write at least once.
        self.exactly_once: Final = (
            ExactlyOnceSources(settings.group_id, self._verify)
            if settings.exactly_once is ExactlyOnce.ENABLED
            else None
        )

    async def fence(self, connector: str) -> None:
        """Have the leader fence former tasks of a source; raises ConnectException."""
        deadline = self._loop.time() + _FENCE_S
        while True:
            url = self._member.leader_url
            try:
                if url is None:
                    raise ConnectException("the leader of the workers is not known")
                key = self._config.session_key if self._member.protocol == SESSIONED else None
                return await self._leader.fence(url, connector, key)
            except ConnectException:
                # The group is in between, as a rule.
                if self._loop.time() > deadline:
                    raise
            await asyncio.sleep(_AGAIN_S)

    def _verify(self, task: TaskId, properties: Properties) -> None:
        """Raise ConnectException unless a task is to run here as it is; called in its thread."""
        checked = asyncio.run_coroutine_threadsafe(self._check(task, properties), self._loop)
        try:
            checked.result(_FENCE_S)
        except TimeoutError:
            raise ConnectException("it is not known in time whether the task is to run") from None

    async def _check(self, task: TaskId, properties: Properties) -> None:
        if not await self._config.refresh(self._sync_timeout_s):
            raise ConnectException("Failed to read to end of config topic")
        config = self._config.config
        if config.task_properties(task) != properties or config.is_fencing_due(task.connector):
            raise ConnectException(
                "Cannot start source task with exactly-once support enabled and an outdated "
                "configuration: the work of its connector has been divided anew"
            )
        if not self._is_member() or task not in self._member.work.tasks:
            raise ConnectException("the task is not assigned to this worker any more")
