"""Consumer instances of the Kafka REST interface: ordinary Kafka consumers, closed when idle.

librdkafka blocks, so each call runs in a thread of a small pool. An instance serves one call at a
time.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from gateway.limits.pools import Turns
from waylog.kafka.clients import consumer_config
from waylog.kafka.group_membership import leave_group
from waylog.process.background import PeriodicTask

INSTANCES_MAX: Final = 16
#: Instances of one user.
INSTANCES_EACH_MAX: Final = 8
#: Concurrent calls in total, and of one user.
_CALLS_MAX: Final = 4
_CALLS_EACH_MAX: Final = 2
#: Seconds without a request after which an instance is closed.
IDLE_S: Final = 300.0
_SWEEP_S: Final = 5.0
_RECORDS_MAX: Final = 1_000
_BATCH: Final = 100
_QUEUED_KBYTES: Final = "4096"

T = TypeVar("T")


class TooManyInstances(Exception):
    """The limit on consumer instances is reached."""


class InstanceExists(Exception):
    """The group already has an instance of that name."""


class UnknownInstance(Exception):
    """There is no such instance, or it has been closed."""


class Instance:
    """One consumer instance."""

    def __init__(self, name: str, consumer: Consumer, format_: str, user: str) -> None:
        self.name = name
        self.user = user
        self.consumer = consumer
        self.format = format_
        self.lock = asyncio.Lock()
        self.used = time.monotonic()
        self.topics: list[str] = []
        self._has_subscribed = False

    # The methods below run in a thread of the pool.

    def subscribe(self, topics: Sequence[str]) -> None:
        """Join the group for these topics; leave it if there are none."""
        self.topics = list(topics)
        if topics:
            self._has_subscribed = True
            self.consumer.subscribe(self.topics)
        else:
            self.consumer.unsubscribe()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Consume these partitions, without an assignment by the group."""
        self.consumer.assign(partitions)

    def seek(self, partitions: list[TopicPartition]) -> None:
        """Continue at these offsets."""
        # librdkafka cannot seek in a partition before its first fetch, so the partitions are
        # assigned anew.
        assigned = {(each.topic, each.partition): each for each in self.consumer.assignment()}
        for each in partitions:
            assigned[each.topic, each.partition] = each
        self.consumer.assign(list(assigned.values()))

    def records(self, timeout_s: float, bytes_max: int) -> list[Message]:
        """Return the records that arrive within `timeout_s`, up to about `bytes_max`."""
        found: list[Message] = []
        size = 0
        deadline = time.monotonic() + timeout_s
        while size < bytes_max and len(found) < _RECORDS_MAX:
            left = deadline - time.monotonic()
            # Records that are already fetched make a response; there is no long wait for more.
            messages = self.consumer.consume(_BATCH, max(0.0, 0.05 if found else left))
            if not messages:
                break
            for message in messages:
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        continue
                    raise KafkaException(error)
                found.append(message)
                size += len(message.value() or b"") + len(message.key() or b"")
        return found

    def commit(self, offsets: list[TopicPartition] | None) -> None:
        """Commit these offsets, or the current positions of the instance if there are none."""
        if offsets is not None:
            self.consumer.commit(offsets=offsets, asynchronous=False)
            return
        positions = [
            each for each in self.consumer.position(self.consumer.assignment()) if each.offset >= 0
        ]
        if positions:
            self.consumer.commit(offsets=positions, asynchronous=False)

    def close(self) -> None:
        """Leave the group, if the instance has subscribed, and close the consumer."""
        if self._has_subscribed:
            leave_group(self.consumer)
        else:
            self.consumer.close()


class RestConsumers:
    """All consumer instances of this process."""

    def __init__(self, bootstrap_servers: str, client_id: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client_id = client_id
        self._instances: dict[tuple[str, str], Instance] = {}
        self._threads = ThreadPoolExecutor(_CALLS_MAX, thread_name_prefix="kafka-rest")
        self._calls = Turns(_CALLS_MAX, _CALLS_EACH_MAX)
        self._sweeping: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._instances)

    async def create(
        self, group: str, name: str | None, format_: str, settings: dict[str, str], user: str
    ) -> Instance:
        """Create an instance. Raises TooManyInstances, InstanceExists, KafkaException."""
        name = name or f"rest-{secrets.token_hex(8)}"
        if (group, name) in self._instances:
            raise InstanceExists(name)
        own = sum(instance.user == user for instance in self._instances.values())
        if len(self._instances) >= INSTANCES_MAX or own >= INSTANCES_EACH_MAX:
            raise TooManyInstances
        if self._sweeping is None:
            sweeping = PeriodicTask("deleting idle instances")
            self._sweeping = sweeping.spawn(_SWEEP_S, self._sweep)
        config = consumer_config(
            self._bootstrap_servers,
            f"{self._client_id}-rest",
            group,
            queued_max_messages_kbytes=_QUEUED_KBYTES,
            enable_auto_offset_store=True,
        )
        instance = Instance(name, Consumer(config | settings), format_, user)
        self._instances[group, name] = instance
        return instance

    def instance(self, group: str, name: str) -> Instance:
        """Return an instance. Raises UnknownInstance."""
        instance = self._instances.get((group, name))
        if instance is None:
            raise UnknownInstance(name)
        instance.used = time.monotonic()
        return instance

    async def run(self, instance: Instance, call: Callable[..., T], *arguments: Any) -> T:
        """Run a blocking call of an instance in a thread. Raises KafkaException."""
        async with instance.lock, self._calls.turn(instance.user):
            result = await asyncio.get_running_loop().run_in_executor(
                self._threads, call, *arguments
            )
        instance.used = time.monotonic()
        return result

    async def delete(self, group: str, name: str) -> None:
        """Close an instance, which leaves its group. Raises UnknownInstance."""
        instance = self.instance(group, name)
        del self._instances[group, name]
        await self.run(instance, instance.close)

    async def close(self) -> None:
        """Close all instances."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for group, name in list(self._instances):
            await self.delete(group, name)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _sweep(self) -> None:
        now = time.monotonic()
        for (group, name), instance in list(self._instances.items()):
            if now - instance.used > IDLE_S and not instance.lock.locked():
                await self.delete(group, name)


BEGINNING: Final = OFFSET_BEGINNING
END: Final = OFFSET_END
