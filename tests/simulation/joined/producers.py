"""Producers: idempotent ones that repeat until all is acknowledged, and transactional ones."""

from __future__ import annotations

import asyncio
from typing import Any

from broker_core import errors
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.definitions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from tests.simulation.joined.checker import Transaction
from tests.simulation.joined.client import AGAIN, Body, Client, Place

_IN_FLIGHT_MAX = 3
_PAUSE_S = 0.2
_RETRY_S = 0.08
_TRANSACTION_MS = 1500

#: Errors after which the transaction cannot go on, and a new producer epoch is needed.
_FENCED = frozenset(
    each.code
    for each in (
        errors.InvalidProducerEpoch,
        errors.ProducerFenced,
        errors.InvalidProducerIdMapping,
        errors.InvalidTxnState,
        errors.TransactionAbortable,
        errors.OutOfOrderSequenceNumber,
        errors.UnknownProducerId,
    )
)


def produce_body(
    place: Place, records: bytes | bytearray, transactional_id: str | None = None
) -> Body:
    """Return a Produce request with one batch."""
    return {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": 1000,
        "topic_data": [
            {
                "name": place[0],
                "topic_id": bytes(16),
                "partition_data": [{"index": place[1], "records": records}],
            }
        ],
    }


class Producer(Client):
    """Sends to one partition in order, with a bounded number of batches in flight."""

    place: Place = ("data", 0)

    async def run(self) -> None:
        """See Client."""
        producer_id = await self._producer_id()
        sequence = number = 0
        # A leader that does not know a producer takes any first sequence. One that begins to host
        # the partition between two requests would take the second without the first.
        in_flight_max = 1
        unknown: list[tuple[int, list[bytes], bytearray]] = []
        while unknown or not self.is_stopping:
            while not self.is_stopping and len(unknown) < self.world.random.randint(
                1, in_flight_max
            ):
                values = []
                for _ in range(self.world.random.randint(1, 3)):
                    values.append(b"%s/%d" % (self.name.encode(), number))
                    number += 1
                now_ms = self.machine.clock.now_ms()
                batch = build_batch(
                    [(now_ms, None, value, ()) for value in values],
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=sequence,
                )
                unknown.append((sequence, values, batch))
                sequence += len(values)
            leader = await self.leader(self.place)
            if leader is None:
                self.forget(self.place)
                await self.pause(_RETRY_S)
                continue
            answers = await asyncio.gather(
                *(
                    self.ask(leader, PRODUCE, 11, produce_body(self.place, batch))
                    for _, _, batch in unknown
                )
            )
            still = []
            for each, answer in zip(unknown, answers, strict=True):
                if not self._is_acknowledged(each[1], answer):
                    still.append(each)
            if still:
                self.world.faults["batch sent again"] += len(still)
                self.forget(self.place)
                await self.pause(_RETRY_S)
            else:
                in_flight_max = _IN_FLIGHT_MAX
            unknown = still
            await self.pause(_PAUSE_S)

    async def _producer_id(self) -> int:
        while True:
            answer = await self.ask(
                self.any_broker(),
                INIT_PRODUCER_ID,
                4,
                {
                    "transactional_id": None,
                    "transaction_timeout_ms": 0,
                    "producer_id": -1,
                    "producer_epoch": -1,
                },
            )
            if answer is not None and not answer["error_code"]:
                self.note(f"has producer id {answer['producer_id']}")
                self.checker.given_producer_id(answer["producer_id"])
                return int(answer["producer_id"])
            await self.pause(_RETRY_S)

    def _is_acknowledged(self, values: list[bytes], answer: Body | None) -> bool:
        if answer is None:
            return False
        result = answer["responses"][0]["partition_responses"][0]
        code = result["error_code"]
        if code == errors.NONE:
            self.checker.acknowledge(self.place, values, result["base_offset"])
            self.note(f"{values[0].decode()} +{len(values)} is at {result['base_offset']}")
            return True
        if code not in AGAIN and code != errors.OutOfOrderSequenceNumber.code:
            raise self.violated(f"a batch is refused with error {code}")
        return False


class TransactionalProducer(Client):
    """Writes to all partitions in transactions, commits some, aborts some, and is replaced."""

    topic = "data"
    group = "copies"
    id = "tx"

    async def run(self) -> None:
        """See Client."""
        count = 0
        while not self.is_stopping:
            count += 1
            zombie = await self._life(f"{self.name}.{count}")
            if zombie is not None:
                # The former process does not know that it was replaced.
                background = asyncio.ensure_future(zombie.go_on())
                background.add_done_callback(self._zombie_ended)
        # Initialising the transactional id again aborts any transaction that is still open.
        while await self._init() is None:
            await self.pause(_RETRY_S)

    def _zombie_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.world.errors.append(str(error))

    async def _init(self) -> Session | None:
        body = {
            "transactional_id": self.id,
            "transaction_timeout_ms": _TRANSACTION_MS,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = await self.ask_coordinator(self.id, 1, INIT_PRODUCER_ID, 4, body)
        if answer is None or answer["error_code"]:
            return None
        session = Session(self, answer["producer_id"], answer["producer_epoch"])
        self.note(f"has producer id {session.producer_id} epoch {session.epoch}")
        return session

    async def _life(self, name: str) -> Session | None:
        session = await self._init()
        if session is None:
            await self.pause(_RETRY_S)
            return None
        number = 0
        while not self.is_stopping:
            number += 1
            if not await session.transact(f"{name}.{number}"):
                return None
            if self.world.random.random() < 0.1:
                return session
            await self.pause(_PAUSE_S)
        return None


class Session:
    """A transactional producer with one producer id and epoch."""

    def __init__(self, client: TransactionalProducer, producer_id: int, epoch: int) -> None:
        self._client = client
        self.producer_id = producer_id
        self.epoch = epoch
        #: The number of this producer among those with the same transactional id.
        self.number = client.checker.fence(client.id)
        self._sequences: dict[Place, int] = {}
        # Clients before KIP-890 add partitions to the transaction themselves.
        self._is_new = client.world.random.random() < 0.5

    async def go_on(self) -> None:
        """Go on as a zombie."""
        for number in range(3):
            if not await self.transact(f"{self._client.name}.zombie{self.epoch}.{number}"):
                return

    async def transact(self, name: str) -> bool:
        """Run one transaction; return whether another may follow."""
        client, chance = self._client, self._client.world.random
        transaction = Transaction(f"transaction {name}", self.number)
        client.checker.transactions.append(transaction)
        await client.refresh(client.topic)
        indexes = client.partitions(client.topic)
        if not indexes:
            await client.pause(_RETRY_S)
            return True
        places = [(client.topic, each) for each in chance.sample(indexes, min(2, len(indexes)))]
        is_good = self._is_new or await self._add(places)
        for number, place in enumerate([*places, places[0]]):
            if is_good:
                value = f"{name}#{number}".encode()
                is_good = await self._produce(transaction, place, value)
        if is_good and chance.random() < 0.3:
            is_good = await self._commit_offset(transaction)
        commits = is_good and chance.random() < 0.7
        return await self._end(transaction, commits=commits) and is_good

    async def _add(self, places: list[Place]) -> bool:
        client = self._client
        body = {
            "v3_and_below_transactional_id": client.id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [
                {"name": client.topic, "partitions": [index for _, index in places]}
            ],
        }
        return await self._persist(
            ADD_PARTITIONS_TO_TXN,
            3,
            body,
            lambda answer: max(
                each["partition_error_code"]
                for topic in answer["results_by_topic_v3_and_below"]
                for each in topic["results_by_partition"]
            ),
        )

    async def _persist(self, api: Any, version: int, body: Body, code_of: Any) -> bool:
        """Ask the coordinator until it has done it; return False if it never will."""
        client = self._client
        for _ in range(12):
            answer = await client.ask_coordinator(client.id, 1, api, version, body)
            code = None if answer is None else code_of(answer)
            if code == errors.NONE:
                return True
            if code is not None and code in AGAIN:
                client.lost_coordinator(client.id, 1)
            elif code is not None and code != errors.ConcurrentTransactions.code:
                if code not in _FENCED:
                    raise client.violated(f"{api.name} is refused with {code}")
                return False
            await client.pause(_RETRY_S)
        return False

    async def _produce(self, transaction: Transaction, place: Place, value: bytes) -> bool:
        client = self._client
        sequence = self._sequences.get(place, 0)
        transaction.values[value] = place
        batch = build_batch(
            [(client.machine.clock.now_ms(), None, value, ())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        for _ in range(12):
            leader = await client.leader(place)
            answer = None
            fenced = client.checker.is_fenced(client.id, self.number)
            if leader is not None:
                body = produce_body(place, batch, client.id)
                answer = await client.ask(leader, PRODUCE, 12 if self._is_new else 11, body)
            result = None
            if answer is not None:
                result = answer["responses"][0]["partition_responses"][0]
                if result["error_code"] == errors.NONE:
                    if fenced:
                        raise client.violated(f"{value!r} of a fenced producer is acknowledged")
                    self._sequences[place] = sequence + 1
                    client.checker.acknowledge(place, [value], result["base_offset"])
                    return True
                code = result["error_code"]
                if code in _FENCED:
                    return False
                if code not in AGAIN and code != errors.ConcurrentTransactions.code:
                    raise client.violated(f"a transactional batch is refused with {code}")
            client.forget(place)
            await client.pause(_RETRY_S)
        return False

    async def _commit_offset(self, transaction: Transaction) -> bool:
        client = self._client
        offset = transaction.offset = client.checker.next_copied()
        body = {
            "transactional_id": client.id,
            "group_id": client.group,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [
                {
                    "name": client.topic,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": offset,
                            "committed_leader_epoch": -1,
                            "committed_metadata": transaction.name,
                        }
                    ],
                }
            ],
        }
        if not self._is_new and not await self._add_offsets():
            return False
        for _ in range(12):
            answer = await client.ask_coordinator(
                client.group, 0, TXN_OFFSET_COMMIT, 5 if self._is_new else 3, body
            )
            code = None if answer is None else answer["topics"][0]["partitions"][0]["error_code"]
            if code == errors.NONE:
                return True
            if code in _FENCED:
                return False
            if code is not None and code not in AGAIN | {errors.ConcurrentTransactions.code}:
                raise client.violated(f"TxnOffsetCommit is refused with {code}")
            client.lost_coordinator(client.group, 0)
            await client.pause(_RETRY_S)
        return False

    async def _add_offsets(self) -> bool:
        client = self._client
        body = {
            "transactional_id": client.id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "group_id": client.group,
        }
        return await self._persist(ADD_OFFSETS_TO_TXN, 3, body, lambda answer: answer["error_code"])

    async def _end(self, transaction: Transaction, *, commits: bool) -> bool:
        client = self._client
        body = {
            "transactional_id": client.id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "committed": commits,
        }
        transaction.outcome = "unknown"
        for _ in range(12):
            fenced = client.checker.is_fenced(client.id, self.number)
            answer = await client.ask_coordinator(
                client.id, 1, END_TXN, 5 if self._is_new else 3, body
            )
            code = None if answer is None else answer["error_code"]
            if code == errors.NONE:
                assert answer is not None
                if fenced:
                    raise client.violated(f"{transaction.name} of a fenced producer is ended")
                transaction.outcome = "committed" if commits else "aborted"
                client.note(f"{transaction.name} is {transaction.outcome}")
                if self._is_new:
                    self._next_epoch(answer)
                return True
            if code is not None and code in _FENCED:
                client.note(f"{transaction.name} cannot be ended: {code}")
                return False
            if code is not None and code not in AGAIN | {errors.ConcurrentTransactions.code}:
                raise client.violated(f"EndTxn is refused with {code}")
            await client.pause(_RETRY_S)
        return False

    def _next_epoch(self, answer: Body) -> None:
        if (answer["producer_id"], answer["producer_epoch"]) != (self.producer_id, self.epoch):
            self.producer_id = answer["producer_id"]
            self.epoch = answer["producer_epoch"]
            self._sequences.clear()
