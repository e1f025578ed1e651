"""An operator who creates, deletes, moves and configures topics while everything else goes on."""

from __future__ import annotations

from broker_core import errors
from broker_core.protocol.definitions import (
    ALTER_PARTITION_REASSIGNMENTS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
)
from tests.simulation.joined.client import Client

PARTITIONS = 2


class Admin(Client):
    """Creates the topic that all others use, then does whatever the seed selects."""

    topic = "data"

    async def run(self) -> None:
        """See Client."""
        while not await self._create(self.topic, PARTITIONS):
            await self.pause(0.1)
        number = 0
        while not self.is_stopping:
            await self.pause(0.6)
            match self.world.random.randrange(5):
                case 0:
                    number += 1
                    await self._create(f"scratch-{number}", 1)
                case 1 if number:
                    await self._delete(f"scratch-{self.world.random.randint(1, number)}")
                case 2:
                    await self._elect()
                case 3:
                    await self._move()
                case 4:
                    await self._configure()
        # A decision at the end shows that the cluster can make one.
        while not await self._create("last", 1):
            await self.pause(0.1)
        await self._cancel_moves()

    async def _create(self, name: str, partitions: int) -> bool:
        answer = await self.ask(
            self.any_broker(),
            CREATE_TOPICS,
            7,
            {
                "topics": [
                    {
                        "name": name,
                        "num_partitions": partitions,
                        "replication_factor": -1,
                        "assignments": [],
                        "configs": [],
                    }
                ],
                "timeout_ms": 1000,
                "validate_only": False,
            },
        )
        if answer is None:
            return False
        code = answer["topics"][0]["error_code"]
        self.note(f"create {name}: {code}")
        return code in {errors.NONE, errors.TopicAlreadyExists.code}

    async def _delete(self, name: str) -> None:
        topic = {"name": name, "topic_id": bytes(16)}
        answer = await self.ask(
            self.any_broker(), DELETE_TOPICS, 6, {"topics": [topic], "timeout_ms": 1000}
        )
        if answer is not None:
            self.note(f"delete {name}: {answer['responses'][0]['error_code']}")

    async def _elect(self) -> None:
        partitions = list(range(PARTITIONS))
        answer = await self.ask(
            self.any_broker(),
            ELECT_LEADERS,
            2,
            {
                "election_type": 0,
                "topic_partitions": [{"topic": self.topic, "partitions": partitions}],
                "timeout_ms": 1000,
            },
        )
        if answer is not None:
            self.note("elect preferred leaders")

    async def _move(self) -> None:
        chance = self.world.random
        topic = chance.choice([self.topic, self.topic, "__consumer_offsets", "__transaction_state"])
        index = chance.randrange(PARTITIONS) if topic == self.topic else 0
        replicas = chance.sample(sorted(self.brokers), min(len(self.brokers), 3))
        await self._reassign(topic, index, replicas)

    async def _reassign(self, topic: str, index: int, replicas: list[int] | None) -> bool:
        answer = await self.ask(
            self.any_broker(),
            ALTER_PARTITION_REASSIGNMENTS,
            1,
            {
                "timeout_ms": 1000,
                "allow_replication_factor_change": False,
                "topics": [
                    {
                        "name": topic,
                        "partitions": [{"partition_index": index, "replicas": replicas}],
                    }
                ],
            },
        )
        if answer is None or answer["error_code"]:
            return False
        code = answer["responses"][0]["partitions"][0]["error_code"] if answer["responses"] else 0
        self.note(f"move {topic}-{index} to {replicas}: {code}")
        return True

    async def _cancel_moves(self) -> None:
        """Cancel reassignments that may have waited for a broker for a long time."""
        for index in range(PARTITIONS):
            while not await self._reassign(self.topic, index, None):
                await self.pause(0.1)

    async def _configure(self) -> None:
        value = str(self.world.random.choice((2_000, 4_000, 1_000_000)))
        resource = {
            "resource_type": 2,
            "resource_name": self.topic,
            "configs": [{"name": "segment.bytes", "config_operation": 0, "value": value}],
        }
        answer = await self.ask(
            self.any_broker(),
            INCREMENTAL_ALTER_CONFIGS,
            1,
            {"resources": [resource], "validate_only": False},
        )
        if answer is not None:
            self.note(f"segment.bytes={value}: {answer['responses'][0]['error_code']}")
