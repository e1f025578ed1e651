"""From a PUBLISH to the log: the format of each topic, and the records to append.

`owntracks/<user>/<device>` and topics below it carry OwnTracks' JSON, except those by which clients
talk to each other (`cmd`, `info`); `devices/<user>/<device>/position` carries our own JSON. A rule
(`gateway.mqtt.publishing.mapping`) may map other topics to the log. All others are plain MQTT
between clients and do not touch the log.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Final, cast

from gateway.bodies.parsing import Parsing, ParsingFailed, let_go, over_mqtt
from gateway.fixes.fix_route import FORM_OTHER, FORM_OWNTRACKS, FORM_POSITION
from gateway.fixes.receipts import together
from gateway.formats import Context, Parsed, owntracks, positions
from gateway.formats.values import DEVICE_CHARACTERS_MAX, known_device, without_tokens
from gateway.mqtt.interfaces import Completion, Identity, Parse, Submitter
from gateway.mqtt.packets.packets import Properties, ReasonCode
from gateway.mqtt.publishing.mapping import TopicRule, headers_of
from gateway.mqtt.publishing.topic_route import TopicRoute
from gateway.mqtt.rights.acl import AccessRules, rights_of
from gateway.users.admission import Admission, SendingNotAllowed
from waylog.kafka.topics import LOCATION
from waylog.messages import Rejected

logger = logging.getLogger(__name__)

SOURCE: Final = "mqtt"

#: Last levels below `owntracks/<user>/<device>/` of messages to clients, not to the platform.
_BETWEEN_CLIENTS: Final = frozenset({"cmd", "info"})


#: Records that one step appends.
_SUBMITTED_A_STEP: Final = 50

#: The reason code of the acknowledgement, and the appends that have to be done before it.
Submission = tuple[int, list[Completion]]


class Ingest:
    """Parses publishes and passes the result to the submitter. `clock_ms` returns Unix time."""

    def __init__(
        self,
        submitter: Submitter,
        rules: AccessRules,
        clock_ms: Callable[[], int],
        counters: Counter[str],
        mapping: Sequence[TopicRule] = (),
        admission: Admission | None = None,
    ) -> None:
        self.submitter = submitter
        self._admission = Admission.in_memory() if admission is None else admission
        self._rules = rules
        self._clock_ms = clock_ms
        self._counters = counters
        self._mapping = mapping

    def route(self, identity: Identity, topic: str) -> TopicRoute:
        """Return the route of a topic: its parser, format and rights, reused for later messages."""
        allowed = self._rules.may_publish(identity, topic)
        levels = topic.split("/")
        parse: Parse | None = None
        form = FORM_OTHER
        if levels[0] == "owntracks" and len(levels) in {3, 4}:
            if levels[-1] not in _BETWEEN_CLIENTS or len(levels) == 3:
                parse, form = owntracks.parse, FORM_OWNTRACKS
        elif levels[0] == "devices" and len(levels) == 4 and levels[3] == "position":
            parse, form = positions.parse, FORM_POSITION
        if parse is None or not levels[1] or not levels[2]:
            return self._mapped(identity, topic, allowed)
        if max(len(levels[1]), len(levels[2])) > DEVICE_CHARACTERS_MAX:
            form = FORM_OTHER
        device = f"{levels[1]}/{levels[2]}"
        return self._route_of_device(identity, topic, allowed, parse, device, form)

    def _route_of_device(
        self,
        identity: Identity,
        topic: str,
        allowed: bool,
        parse: Parse,
        device: str,
        form: int,
        rule: TopicRule | None = None,
    ) -> TopicRoute:
        """Return a route for fixes.

        Messages of metered users, and of devices that are not counted yet, get a route that takes
        them through `submit`, which counts or rejects them. The latter's is for one message.
        """
        admission = self._admission
        metered = admission.is_metered(identity)
        route = TopicRoute(topic, allowed, parse, device, form, rule, metered)
        if route.is_quick and allowed and not admission.knows_device(identity, device):
            route = TopicRoute(topic, allowed, parse, device, FORM_OTHER, rule, metered, True)
        return route

    def _mapped(self, identity: Identity, topic: str, allowed: bool) -> TopicRoute:
        """Return the route by an operator's rule; without one a message goes to clients only."""
        rule = next((each for each in self._mapping if each.matches(topic)), None)
        if rule is None:
            return TopicRoute(topic, allowed, None)
        if rule.log_topic != LOCATION:
            return TopicRoute(topic, allowed, None, rule=rule)
        name = rule.key_of(identity.user, topic)
        user, _, device = name.partition("/")
        # Users may not publish positions of others' devices, whatever a rule makes of a topic.
        allowed = allowed and (user == identity.user or identity.admin)
        allowed = allowed and identity.device in {None, device, name}
        if not user or not device or "/" in device:
            return TopicRoute(topic, False, None)
        short = max(len(user), len(device)) <= DEVICE_CHARACTERS_MAX
        form = FORM_POSITION if short else FORM_OTHER
        return self._route_of_device(identity, topic, allowed, positions.parse, name, form, rule)

    def submit(
        self,
        identity: Identity,
        route: TopicRoute,
        payload: bytes,
        properties: Properties | None = None,
        *,
        retain: bool = False,
    ) -> Submission:
        """Append a message; return its reason code and the appends to wait for.

        If one of the appends fails, the message must not be acknowledged at all. The code is
        NO_MATCHING_SUBSCRIBERS for messages that are recorded but not passed on to other clients.
        Raises QuotaExceeded, and then nothing is stored.
        """
        if not route.allowed:
            return self._not_allowed("no right to publish to this topic", identity, route, payload)
        if route.parse is None:
            if route.rule is None:
                # The journal stores it; all others pass on to clients and cost nothing.
                if retain:
                    self._admission.take_message(identity, len(route.topic) + len(payload))
                return ReasonCode.SUCCESS, []
            return self._submit_mapped(identity, route, route.rule, payload, properties)
        try:
            parsed = route.parse(payload, self._context(identity, route))
        except Exception:
            logger.exception("the parser of %s failed", route.topic.split("/", 1)[0])
            return self._not_parsed(identity, route, payload)
        steps = self._submit_parsed(identity, route, payload, parsed)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return cast(Submission, done.value)

    def _submit_mapped(
        self,
        identity: Identity,
        route: TopicRoute,
        rule: TopicRule,
        payload: bytes,
        properties: Properties | None,
    ) -> Submission:
        """Append a message as it is to the topic that a rule names, and return as `submit` does."""
        key = rule.key_of(identity.user, route.topic).encode()
        headers = headers_of(identity.user, route.topic, properties)
        size = len(key) + len(payload) + sum(len(name) + len(value) for name, value in headers)
        try:
            self._admission.take_message(identity, size)
        except SendingNotAllowed as error:
            return self._not_allowed(str(error), identity, route, payload)
        return ReasonCode.SUCCESS, [
            self.submitter.submit_message(rule.log_topic, key, payload, headers)
        ]

    async def submit_in_steps(
        self, identity: Identity, route: TopicRoute, payload: bytes, parsing: Parsing
    ) -> Submission:
        """Do what `submit` does, but parse in another process; raises ParsingUnavailable, too."""
        assert route.parse is not None
        name = over_mqtt(owntracks.SOURCE if route.parse is owntracks.parse else positions.SOURCE)
        try:
            context = self._context(identity, route)
            parsed = await parsing.parse(name, payload, context, identity.user)
        except ParsingFailed as error:
            logger.error("the parser of %s failed: %s", route.topic.split("/", 1)[0], error)
            return self._not_parsed(identity, route, payload)
        steps = self._submit_parsed(identity, route, payload, parsed)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                await let_go(parsed)
                return cast(Submission, done.value)
            await asyncio.sleep(0)

    def _context(self, identity: Identity, route: TopicRoute) -> Context:
        return Context(
            user=route.user,
            device=route.device,
            received=self._clock_ms(),
            topic=route.topic,
            encryption_key=rights_of(identity).encryption_key,
        )

    def _not_allowed(
        self, reason: str, identity: Identity, route: TopicRoute, payload: bytes
    ) -> Submission:
        self._counters["publishes_not_allowed"] += 1
        self._admission.take_refused(identity)
        rejected = self._rejected(reason, identity, route, payload)
        return ReasonCode.NOT_AUTHORIZED, [self.submitter.submit_rejected(rejected)]

    def _not_parsed(self, identity: Identity, route: TopicRoute, payload: bytes) -> Submission:
        # An error in a parser must not make a phone repeat one message for ever.
        self._admission.take_refused(identity)
        rejected = self._rejected("the parser failed", identity, route, payload)
        return ReasonCode.NO_MATCHING_SUBSCRIBERS, [self.submitter.submit_rejected(rejected)]

    def _submit_parsed(
        self,
        identity: Identity,
        route: TopicRoute,
        payload: bytes,
        parsed: Parsed,
    ) -> Generator[None, None, Submission]:
        """Append the results of a parser in short steps, and return what `submit` returns."""
        if parsed.refused is not None:
            refused = self._rejected(parsed.refused, identity, route, payload)
            parsed.rejected.append(refused)
            parsed.rejected_at.append(0)
        before = len(parsed.fixes)
        try:
            yield from self._admission.admit_in_steps(identity, parsed)
        except SendingNotAllowed as error:
            return self._not_allowed(str(error), identity, route, payload)
        beyond = before - len(parsed.fixes)
        submitter = self.submitter
        rejections = parsed.rejected
        # A user who may publish for others pays for what is kept of it. An administrator's
        # messages, as those of another cluster, count for the user that they name.
        payer = None if identity.admin else identity.user
        if rejections:
            self._counters["publishes_rejected"] += 1
        appended = itertools.chain(
            map(submitter.submit_location, parsed.fixes),
            map(submitter.event_receipt, parsed.events),
            (submitter.rejected_receipt(each, sender=payer) for each in rejections),
        )
        completions: list[Completion] = []
        # One completion for each step: ten thousand separate callbacks take long.
        while step := list(itertools.islice(appended, _SUBMITTED_A_STEP)):
            if len(step) < _SUBMITTED_A_STEP:
                completions += step
                break
            completions.append(together(step))
            yield
        # We cannot read encrypted payloads, but friends who have the key can.
        stored = bool(parsed.fixes or parsed.events)
        if rejections and not stored and b'"encrypted"' not in payload:
            if beyond:
                return ReasonCode.QUOTA_EXCEEDED, completions
            return ReasonCode.NO_MATCHING_SUBSCRIBERS, completions
        return ReasonCode.SUCCESS, completions

    def keep_refused(
        self, identity: Identity, route: TopicRoute, payload: bytes, reason: str
    ) -> Completion:
        """Record a message that is not accepted in topic `error`, with the reason."""
        self._counters["publishes_rejected"] += 1
        return self.submitter.submit_rejected(self._rejected(reason, identity, route, payload))

    def refused_connect(
        self, username: str | None, client_id: str, reason: str, address: str
    ) -> None:
        """Record a refused CONNECT from an address in topic `error`, without credentials."""
        user = None if username is None else without_tokens(username.encode()).decode()
        rejected = Rejected(
            reason=reason,
            source=SOURCE,
            time=self._clock_ms(),
            raw=without_tokens(client_id.encode()),
            user=user,
        )
        said = self.submitter.submit_rejected(rejected, stranger=address)
        said.add_done_callback(_retrieve)

    def _rejected(
        self, reason: str, identity: Identity, route: TopicRoute, payload: bytes
    ) -> Rejected:
        return Rejected(
            reason=reason,
            source=SOURCE,
            time=self._clock_ms(),
            raw=payload,
            # Not of a device that the client has no right to send for.
            device=known_device(self._context(identity, route)) if route.allowed else None,
            user=identity.user,
            headers={"topic": route.topic},
        )


def _retrieve(future: asyncio.Future[None]) -> None:
    """Retrieve the exception of a future without a reader, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()
