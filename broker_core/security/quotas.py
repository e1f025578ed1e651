"""Client quotas: how much a user or a client id may send, fetch and request (KIP-13, KIP-546).

There is no I/O here: amounts and times are arguments, throttle times in ms are results.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from broker_core.errors import InvalidRequest

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterClientQuotasRequestEntity,
        AlterClientQuotasRequestOp,
        DescribeClientQuotasRequestComponent,
    )

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

_CLIENT_QUOTAS: Final = frozenset(
    {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE}
)
_WHOLE: Final = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE})
#: Most users and clients whose rates are kept; the oldest entry is dropped first.
_RATES_MAX: Final = 10_000
#: Limit of the memory that a client with the right to alter the cluster can occupy.
ENTITIES_MAX: Final = 10_000

#: Sorted (type, name) pairs; the name None is the default for all without their own quota.
Entity = tuple[tuple[str, str | None], ...]

_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2


class Rate:
    """An amount per second over the last windows, measured as by Kafka's `Rate`."""

    __slots__ = ("_samples", "_window_s", "_windows")

    def __init__(self, windows: int, window_s: float) -> None:
        self._windows = windows
        self._window_s = window_s
        # [start in s, amount] of each window.
        self._samples: deque[list[float]] = deque()

    def record(self, amount: float, now_s: float) -> None:
        """Add an amount."""
        samples = self._samples
        if not samples or now_s - samples[-1][0] >= self._window_s:
            samples.append([now_s, 0.0])
        samples[-1][1] += amount
        self._forget(now_s)

    def _forget(self, now_s: float) -> None:
        oldest = now_s - self._windows * self._window_s
        while self._samples and self._samples[0][0] <= oldest:
            self._samples.popleft()

    def excess_ms(self, limit: float, now_s: float) -> int:
        """Return how many ms to wait until the rate is at the limit again."""
        self._forget(now_s)
        if not self._samples:
            return 0
        # In an interval that has just begun, any burst would look like a high rate.
        elapsed_s = max(now_s - self._samples[0][0], (self._windows - 1) * self._window_s)
        elapsed_s = max(elapsed_s, self._window_s)
        rate = sum(amount for _, amount in self._samples) / elapsed_s
        if rate <= limit:
            return 0
        return math.ceil((rate - limit) / limit * elapsed_s * 1000)


def _limits_an_ip(entity: Entity) -> bool:
    return entity[0][0] == IP


class ClientQuotas:
    """The quotas, and the measured rates of those that have one."""

    def __init__(self, windows: int = 11, window_s: float = 1.0) -> None:
        self._windows = windows
        self._window_s = window_s
        self._quotas: dict[Entity, dict[str, float]] = {}
        # Those of addresses; all others are of users and client ids.
        self._ips = 0
        self._rates: OrderedDict[tuple[str, Entity], Rate] = OrderedDict()
        #: True if there is a quota for any user or client id.
        self.active = False
        #: True if there is a connection rate limit for any address.
        self.limits_ips = False

    # ------------------------------------------------------------------------------------ settings

    def describe(
        self, components: Sequence[DescribeClientQuotasRequestComponent], strict: bool
    ) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        """Yield the quotas that DescribeClientQuotas asks for; raises InvalidRequest."""
        types = [each["entity_type"] for each in components]
        if len(set(types)) < len(types):
            raise InvalidRequest("an entity type is there twice")
        for each in components:
            if each["entity_type"] not in {USER, CLIENT_ID, IP}:
                raise InvalidRequest(f"Custom entity type '{each['entity_type']}' not supported")
            if each["match_type"] not in {_EXACT, _DEFAULT, _SPECIFIED}:
                raise InvalidRequest(f"Unknown match type {each['match_type']}")
        if IP in types and len(types) > 1:
            raise InvalidRequest("Invalid entity filter component combination")
        return self._matching(components, strict)

    def _matching(
        self, components: Sequence[DescribeClientQuotasRequestComponent], strict: bool
    ) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        for entity, values in self._quotas.items():
            names = dict(entity)
            if strict and len(names) != len(components):
                continue
            if all(
                each["entity_type"] in names and _fits(each, names[each["entity_type"]])
                for each in components
            ):
                yield entity, values

    def check(
        self,
        entity: Sequence[AlterClientQuotasRequestEntity],
        operations: Sequence[AlterClientQuotasRequestOp],
    ) -> Entity:
        """Check whether a change is valid and return its entity; raises InvalidRequest."""
        names = {each["entity_type"]: each["entity_name"] for each in entity}
        types = set(names)
        if len(names) < len(entity) or not types:
            raise InvalidRequest("Invalid client quota entity")
        if types - {USER, CLIENT_ID, IP} or (IP in types and len(types) > 1):
            raise InvalidRequest(f"Invalid client quota entity: {', '.join(sorted(types))}")
        if "" in names.values():
            raise InvalidRequest("Invalid empty client quota entity name")
        allowed = _CLIENT_QUOTAS
        if IP in types:
            allowed = frozenset({CONNECTION_CREATION_RATE})
            if names[IP] is not None:
                _check_address(names[IP])
        for each in operations:
            key, value = each["key"], each["value"]
            if key not in allowed:
                raise InvalidRequest(f"Invalid configuration key {key}")
            if each["remove"]:
                continue
            if not value > 0 or math.isinf(value):
                raise InvalidRequest(f"Quota {key} must be greater than 0")
            if key in _WHOLE and value != int(value):
                raise InvalidRequest(f"Configuration {key} must be a Long value")
        found = tuple(sorted(names.items()))
        if found not in self._quotas and len(self._quotas) >= ENTITIES_MAX:
            raise InvalidRequest(f"this broker keeps quotas of at most {ENTITIES_MAX} entities")
        return found

    def alter(self, entity: Entity, operations: Sequence[AlterClientQuotasRequestOp]) -> None:
        """Make a change that `check` has accepted."""
        former = len(self._quotas)
        values = self._quotas.setdefault(entity, {})
        for each in operations:
            if each["remove"]:
                values.pop(each["key"], None)
            else:
                values[each["key"]] = each["value"]
        if not values:
            del self._quotas[entity]
        if _limits_an_ip(entity):
            self._ips += len(self._quotas) - former
        self._changed()

    def _changed(self) -> None:
        self.limits_ips = self._ips > 0
        self.active = len(self._quotas) > self._ips
        self._rates.clear()

    def to_stored(self) -> list[Any]:
        """Return the quotas as JSON values."""
        return [[list(map(list, entity)), values] for entity, values in self._quotas.items()]

    def load(self, stored: list[Any]) -> None:
        """Replace the quotas by what `to_stored` returned."""
        self._quotas = {
            tuple((kind, name) for kind, name in entity): dict(values) for entity, values in stored
        }
        self._ips = sum(map(_limits_an_ip, self._quotas))
        self._changed()

    # ---------------------------------------------------------------------------------------- use

    def charge(self, key: str, user: str, client_id: str, amount: float, now_s: float) -> int:
        """Count an amount against a quota; return the throttle time in ms."""
        found = self._quota(key, user, client_id)
        if found is None:
            return 0
        limit, whose = found
        rate = self._rates.get((key, whose))
        if rate is None:
            if len(self._rates) >= _RATES_MAX:
                self._rates.popitem(last=False)
            rate = self._rates[key, whose] = Rate(self._windows, self._window_s)
        rate.record(amount, now_s)
        return rate.excess_ms(limit, now_s)

    def _quota(self, key: str, user: str, client_id: str) -> tuple[float, Entity] | None:
        """Return (limit, entity that shares it) of the most specific quota, in Kafka's order."""
        both: Entity = ((CLIENT_ID, client_id), (USER, user))
        of_user: Entity = ((USER, user),)
        of_client: Entity = ((CLIENT_ID, client_id),)
        for entity, whose in (
            (both, both),
            (((CLIENT_ID, None), (USER, user)), both),
            (of_user, of_user),
            (((CLIENT_ID, client_id), (USER, None)), both),
            (((CLIENT_ID, None), (USER, None)), both),
            (((USER, None),), of_user),
            (of_client, of_client),
            (((CLIENT_ID, None),), of_client),
        ):
            limit = self._quotas.get(entity, {}).get(key)
            if limit is not None:
                return limit, whose
        return None

    def connection_rate(self, address: str) -> float | None:
        """Return an address's limit of new connections per second; None if it has none."""
        for name in (address, None):
            values = self._quotas.get(((IP, name),))
            if values:
                return values[CONNECTION_CREATION_RATE]
        return None


def _fits(component: DescribeClientQuotasRequestComponent, name: str | None) -> bool:
    kind = component["match_type"]
    if kind == _EXACT:
        return name is not None and name == component["match"]
    return name is None if kind == _DEFAULT else True


def _check_address(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise InvalidRequest(f"{text} is not an IP address") from None
