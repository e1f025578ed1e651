"""The transaction coordinator of one broker (KIP-98, 360, 588, 890).

A step takes a request and the time; `take_effects()` returns its effects. A transition takes effect
when it is stored; requests that arrive in the meantime wait for it, where Kafka would make clients
retry. The monotonic clock measures transaction timeouts, so a jump of the wall clock aborts none.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from broker_core import errors
from broker_core.coordinator.effects import (
    Moment,
    Respond,
    StoreTransaction,
    Token,
    TransactionEffect,
    WriteMarkers,
)
from broker_core.coordinator.transaction import (
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION,
    PREPARED,
    Place,
    Producer,
    Transaction,
    TransactionSettings,
    TransactionState,
    decode_transaction,
    decode_transaction_key,
)
from broker_core.protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from broker_core.coordinator.effects import TransactionResponse

logger = logging.getLogger(__name__)

_Step = Callable[[Moment], None]

#: Most requests for one transactional id that may wait for a transition of it.
_WAITING_MAX: Final = 64


class TransactionCoordinator:
    """All transactional ids of one broker."""

    def __init__(
        self, settings: TransactionSettings, *, new_producer_id: Callable[[], int]
    ) -> None:
        self._settings = settings
        # Raises BrokerError if no producer id is available.
        self._new_producer_id = new_producer_id
        self._effects: list[TransactionEffect] = []
        self.transactions: dict[str, Transaction] = {}
        # Ids whose transition is being stored or whose markers are being written, with the
        # requests that wait for its end.
        self._busy: dict[str, deque[tuple[_Step, Token]]] = {}
        # Transactions whose markers are being written, by transactional id.
        self._marking: dict[str, WriteMarkers] = {}
        # (monotonic ms, id, start of the transaction): it times out unless it has ended.
        self._deadlines: list[tuple[int, str, int]] = []

    def take_effects(self) -> list[TransactionEffect]:
        """Return and clear the effects of the steps since the last call, in order."""
        effects = self._effects[:]
        self._effects.clear()
        return effects

    # -------------------------------------------------------------------------------------- steps

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        token: Token,
        now: Moment,
    ) -> None:
        """Handle InitProducerId: assign a new epoch, which fences the previous producer.

        `expected` has the id and epoch of a producer that continues after an error (KIP-360).
        """
        if not transactional_id:
            self._refuse(token, errors.InvalidRequest.code)
        elif not 0 < timeout_ms <= self._settings.timeout_max_ms:
            self._refuse(token, errors.InvalidTransactionTimeout.code)
        else:
            self._run(
                transactional_id,
                partial(self._init, transactional_id, timeout_ms, expected, token),
                token,
                now,
            )

    def _init(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        token: Token,
        now: Moment,
    ) -> None:
        present = self.transactions.get(transactional_id)
        if present is not None and not present.may_continue(expected):
            self._refuse(token, errors.ProducerFenced.code)
            return
        if present is not None and present.state is TransactionState.ONGOING:
            self._fence(present, now)
            self._run(
                transactional_id,
                partial(self._init_fenced, transactional_id, timeout_ms, expected, token),
                token,
                now,
            )
            return
        try:
            after = self._next_epoch(transactional_id, present, timeout_ms, expected, now)
        except errors.BrokerError as error:
            self._refuse(token, error.code)
            return
        self._store(
            after,
            [Respond(token, after.producer_response())],
        )

    def _init_fenced(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        token: Token,
        now: Moment,
    ) -> None:
        """Continue InitProducerId after it had to abort a transaction."""
        if self.transactions[transactional_id].state is TransactionState.ONGOING:
            self._refuse(token, errors.CoordinatorNotAvailable.code)
        elif expected is not None:
            self._refuse(token, errors.ConcurrentTransactions.code)
        else:
            self._init(transactional_id, timeout_ms, None, token, now)

    def _next_epoch(
        self,
        transactional_id: str,
        present: Transaction | None,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        now: Moment,
    ) -> Transaction:
        """Return the transactional id with its next epoch; raises BrokerError."""
        if present is None:
            return Transaction(
                transactional_id,
                self._new_producer_id(),
                timeout_ms,
                epoch=0,
                updated_ms=now.wall_ms,
            )
        empty = replace(
            present,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            started_ms=-1,
            updated_ms=now.wall_ms,
            version=0,
        )
        if present.is_exhausted and (expected is None or expected[1] == present.epoch):
            return replace(
                empty,
                producer_id=self._new_producer_id(),
                previous_producer_id=present.producer_id,
                epoch=0,
                last_epoch=-1 if expected is None else present.epoch,
            )
        if expected is None:
            return replace(empty, epoch=present.epoch + 1, last_epoch=-1)
        if expected[1] == present.epoch:
            return replace(empty, epoch=present.epoch + 1, last_epoch=present.epoch)
        if expected[1] == present.last_epoch:
            return empty  # the response to the same request was lost
        raise errors.ProducerFenced()

    def add_partitions(
        self, producer: Producer, places: Iterable[Place], token: Token, now: Moment
    ) -> None:
        """Handle AddPartitionsToTxn and AddOffsetsToTxn.

        For clients of version 2 of the transaction protocol, the broker calls it by itself.
        """
        self._run(
            producer.transactional_id, partial(self._add, producer, set(places), token), token, now
        )

    def _add(self, producer: Producer, places: set[Place], token: Token, now: Moment) -> None:
        found = self._find(producer)
        if isinstance(found, int):
            self._refuse(token, found)
            return
        is_ongoing = found.state is TransactionState.ONGOING
        done = Respond(token, {"error_code": errors.NONE})
        if is_ongoing and places <= found.partitions:
            self._effects.append(done)
            return
        after = replace(
            found,
            state=TransactionState.ONGOING,
            partitions=found.partitions | places,
            started_ms=found.started_ms if is_ongoing else now.wall_ms,
            updated_ms=now.wall_ms,
        )
        if not is_ongoing:
            self._await_end(after, now)
        self._store(after, [done])

    def verify(self, producer: Producer, place: Place) -> int:
        """Return an error code, NONE if a partition belongs to the producer's transaction."""
        found = self._find(producer)
        if isinstance(found, int):
            return found
        if found.state in PREPARED:
            return errors.ConcurrentTransactions.code
        if found.state is TransactionState.ONGOING and place in found.partitions:
            return errors.NONE
        return errors.TransactionAbortable.code

    def end_transaction(
        self, producer: Producer, committed: bool, version: int, token: Token, now: Moment
    ) -> None:
        """Handle EndTxn; `version` is the client's version of the transaction protocol (0 or 2).

        The response is sent when all partitions have their markers, so that the next transaction
        never has to wait.
        """
        self._run(
            producer.transactional_id,
            partial(self._end, producer, committed, version, token),
            token,
            now,
        )

    def _end(
        self, producer: Producer, committed: bool, version: int, token: Token, now: Moment
    ) -> None:
        found = self._find_ending(producer)
        if isinstance(found, int):
            self._refuse(token, found)
            return
        is_repeated = producer.epoch != found.epoch or producer.producer_id != found.producer_id
        if found.state is TransactionState.ONGOING:
            self._prepare(found, committed, version, [Respond(token, {})], now)
        elif found.state is _complete(committed) and (
            is_repeated or not found.has_epoch_per_transaction
        ):
            self._effects.append(Respond(token, found.producer_response()))
        elif not committed and not is_repeated and version >= EPOCH_PER_TRANSACTION:
            # The client does not know whether one of its requests began a transaction.
            self._prepare(found, committed, version, [Respond(token, {})], now)
        else:
            self._refuse(token, errors.InvalidTxnState.code)

    def _find_ending(self, producer: Producer) -> Transaction | int:
        """Find a transaction as `_find` does; a repeated EndTxn may have the previous epoch."""
        found = self.transactions.get(producer.transactional_id)
        if (
            found is not None
            and found.has_epoch_per_transaction
            and found.state in {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
        ):
            is_bumped = (
                producer.producer_id == found.producer_id and producer.epoch + 1 == found.epoch
            )
            is_rotated = (
                producer.producer_id == found.previous_producer_id
                and producer.epoch + 1 == found.last_epoch
                and found.epoch == 0
            )
            if is_bumped or is_rotated:
                return found
        return self._find(producer)

    def _prepare(
        self,
        found: Transaction,
        committed: bool,
        version: int,
        responses: list[Respond],
        now: Moment,
    ) -> None:
        epoch, next_producer_id = found.epoch, -1
        if version >= EPOCH_PER_TRANSACTION:
            epoch += 1
            if found.is_exhausted:
                try:
                    next_producer_id = self._new_producer_id()
                except errors.BrokerError as error:
                    self._effects += [
                        Respond(each.token, _refusal(error.code)) for each in responses
                    ]
                    return
        self._store(
            replace(
                found,
                state=TransactionState.PREPARE_COMMIT
                if committed
                else TransactionState.PREPARE_ABORT,
                epoch=epoch,
                last_epoch=found.epoch if epoch != found.epoch else found.last_epoch,
                next_producer_id=next_producer_id,
                updated_ms=now.wall_ms,
                version=version,
            ),
            responses,
        )

    def _fence(self, found: Transaction, now: Moment) -> None:
        """Abort the transaction of a silent producer, and fence that producer."""
        self._store(
            replace(
                found,
                state=TransactionState.PREPARE_ABORT,
                epoch=min(found.epoch + 1, EPOCH_MAX),
                last_epoch=-1,
                updated_ms=now.wall_ms,
                version=0,
            ),
            [],
        )

    def _find(self, producer: Producer) -> Transaction | int:
        """Return the producer's transaction, or an error code if the producer is not current."""
        if not producer.transactional_id:
            return errors.InvalidRequest.code
        found = self.transactions.get(producer.transactional_id)
        if found is None or found.producer_id != producer.producer_id:
            return errors.InvalidProducerIdMapping.code
        # The largest epoch fences: no client has been given it, though one may guess it.
        if found.epoch != producer.epoch or producer.epoch == EPOCH_MAX:
            return errors.ProducerFenced.code
        return found

    # -------------------------------------------------------------------------------- transitions

    def _run(self, transactional_id: str, step: _Step, token: Token, now: Moment) -> None:
        waiting = self._busy.get(transactional_id)
        if waiting is None:
            step(now)
        elif len(waiting) < _WAITING_MAX:
            waiting.append((step, token))
        else:
            self._refuse(token, errors.ConcurrentTransactions.code)

    def _go_on(self, transactional_id: str, now: Moment) -> None:
        waiting = self._busy.pop(transactional_id, None)
        while waiting:
            waiting.popleft()[0](now)
            if (again := self._busy.get(transactional_id)) is not None:
                again.extend(waiting)
                return

    def _store(self, after: Transaction, responses: list[Respond]) -> None:
        self._busy.setdefault(after.transactional_id, deque())
        self._effects.append(StoreTransaction(after.transactional_id, after, responses))

    def stored(self, effect: StoreTransaction, now: Moment) -> None:
        """Apply an effect whose new state is stored."""
        after = effect.transaction
        if after is None or not effect.is_awaited:
            return
        self.transactions[effect.transactional_id] = after
        if after.state in PREPARED:
            self._write_markers(after, effect.responses)
        else:
            self._effects += effect.responses
            self._go_on(effect.transactional_id, now)

    def store_failed(
        self,
        effect: StoreTransaction,
        now: Moment,
        code: int = errors.CoordinatorNotAvailable.code,
    ) -> None:
        """Answer with an error: the new state was not stored, and the old one remains valid."""
        if not effect.is_awaited:
            return
        self._effects += [Respond(each.token, _refusal(code)) for each in effect.responses]
        present = self.transactions.get(effect.transactional_id)
        if present is not None and present.state is TransactionState.ONGOING:
            self._await_end(present, now)
        self._go_on(effect.transactional_id, now)

    def _write_markers(self, transaction: Transaction, responses: list[Respond]) -> None:
        committed = transaction.state is TransactionState.PREPARE_COMMIT
        effect = WriteMarkers(transaction, committed, transaction.partitions, responses)
        self._marking[transaction.transactional_id] = effect
        self._effects.append(effect)

    def is_marking(self, effect: WriteMarkers) -> bool:
        """Tell whether this coordinator still has to write the markers of an effect."""
        return self._marking.get(effect.transaction.transactional_id) is effect

    def markers_written(self, effect: WriteMarkers, now: Moment) -> None:
        """End a transaction: all of its partitions have their markers."""
        before = effect.transaction
        if not self.is_marking(effect):
            return  # another broker coordinates it, or this one has loaded it again
        del self._marking[before.transactional_id]
        after = replace(
            before,
            state=_complete(effect.committed),
            partitions=frozenset(),
            updated_ms=now.wall_ms,
        )
        if before.next_producer_id >= 0:
            after = replace(
                after,
                producer_id=before.next_producer_id,
                previous_producer_id=before.producer_id,
                next_producer_id=-1,
                epoch=0,
                last_epoch=before.epoch,
            )
        self.transactions[after.transactional_id] = after
        # This record need not be awaited: without it the markers are written once more.
        self._effects.append(StoreTransaction(after.transactional_id, after, is_awaited=False))
        self._effects += [
            Respond(each.token, after.producer_response()) for each in effect.responses
        ]
        self._go_on(after.transactional_id, now)

    def _refuse(self, token: Token, code: int) -> None:
        self._effects.append(Respond(token, _refusal(code)))

    # --------------------------------------------------------------------------------------- time

    def next_deadline(self) -> int | None:
        """Return the monotonic ms at which `tick` should be called; None if nothing is due."""
        return self._deadlines[0][0] if self._deadlines else None

    def tick(self, now: Moment) -> None:
        """Abort transactions that have exceeded their client's timeout."""
        while self._deadlines and self._deadlines[0][0] <= now.monotonic_ms:
            _, transactional_id, started_ms = heapq.heappop(self._deadlines)
            found = self.transactions.get(transactional_id)
            if (
                found is not None
                and found.state is TransactionState.ONGOING
                and found.started_ms == started_ms
            ):
                if transactional_id in self._busy:
                    # A state is being stored, perhaps the end: check again a little later.
                    heapq.heappush(
                        self._deadlines, (now.monotonic_ms + 100, transactional_id, started_ms)
                    )
                    continue
                logger.info("transaction of %s timed out: aborted", transactional_id)
                self._fence(found, now)

    def _await_end(self, transaction: Transaction, now: Moment) -> None:
        heapq.heappush(
            self._deadlines,
            (
                now.monotonic_ms + transaction.timeout_ms,
                transaction.transactional_id,
                transaction.started_ms,
            ),
        )

    def expire_ids(self, now: Moment) -> None:
        """Forget ids that were inactive for `transactional.id.expiration.ms`."""
        limit = now.wall_ms - self._settings.id_expiration_ms
        for transactional_id, transaction in list(self.transactions.items()):
            if (
                transaction.updated_ms <= limit
                and transactional_id not in self._busy
                and transaction.state is not TransactionState.ONGOING
            ):
                del self.transactions[transactional_id]
                self._effects.append(StoreTransaction(transactional_id, None, is_awaited=False))

    # ------------------------------------------------------------------------ loading and unloading

    def adopt(self, transactions: dict[str, Transaction], now: Moment) -> None:
        """Take over a loaded partition of `__transaction_state`; write missing markers."""
        self.transactions.update(transactions)
        for transaction in transactions.values():
            if transaction.state in PREPARED:
                self._busy[transaction.transactional_id] = deque()
                self._write_markers(transaction, [])
            elif transaction.state is TransactionState.ONGOING:
                self._await_end(transaction, now)

    def unload(self, is_concerned: Callable[[str], bool]) -> None:
        """Drop ids that another broker coordinates now; waiting requests get NotCoordinator."""
        for transactional_id in [each for each in self._busy if is_concerned(each)]:
            for _, token in self._busy.pop(transactional_id):
                self._refuse(token, errors.NotCoordinator.code)
        for effect in [
            each
            for each in self._marking.values()
            if is_concerned(each.transaction.transactional_id)
        ]:
            del self._marking[effect.transaction.transactional_id]
            for each in effect.responses:
                self._refuse(each.token, errors.NotCoordinator.code)
        for transactional_id in [each for each in self.transactions if is_concerned(each)]:
            del self.transactions[transactional_id]


def load_transaction(transactions: dict[str, Transaction], key: bytes, value: bytes | None) -> None:
    """Apply one record of `__transaction_state`; call it in log order."""
    try:
        transactional_id = decode_transaction_key(key)
        if transactional_id is None:
            return
        if value is None:
            transactions.pop(transactional_id, None)
        else:
            transactions[transactional_id] = decode_transaction(transactional_id, value)
    except (RemoteProtocolError, IndexError) as error:
        logger.error("a record of __transaction_state is skipped: %s", error)


def _complete(committed: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT


def _refusal(code: int) -> TransactionResponse:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
