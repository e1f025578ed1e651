"""`/v1/admin/topics`: topics, their records, leaders and replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Annotated, Final, TypeVar

import msgspec
from aiohttp import web

from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.responses import Refused, json_answer
from gateway.http.requests.services import Services
from gateway.http.routes.bodies import asked_of
from gateway.http.routes.operations.asking import (
    administrator,
    asked,
    audit,
    changed,
    is_topic_name,
    number_of,
    read,
    require_confirmed,
    topic_of,
)
from gateway.operations.brokers import elect, reassign
from gateway.operations.record_browser import (
    RECORDS_MAX,
    VALUE_BYTES,
    VALUE_BYTES_MAX,
    RecordQuestion,
)
from gateway.operations.topics import describe_topic, list_topics
from gateway.users.auth import Identity
from waylog.administration.answers import result_of
from waylog.administration.topics import alter_topic, create_topics, delete_topic, owner_of_topic

T = TypeVar("T")

_TOPICS: Final = "/v1/admin/topics"
_TOPIC: Final = f"{_TOPICS}/{{topic}}"
_NUMBER_MAX: Final = 2**31 - 1
_OFFSET_MAX: Final = 2**62
_TEXT_CHARACTERS_MAX: Final = 200
#: Of the platform's own topics: a day, and a GiB of each partition.
_RETENTION_MIN: Final = {"retention.ms": 86_400_000, "retention.bytes": 1 << 30}

_Partitions = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
_Replicas = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=_NUMBER_MAX)]


class _NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    confirm: str = ""
    partitions: _Partitions | None = None
    replication_factor: _Replicas | None = None
    settings: dict[str, str] = {}
    dry_run: bool = False


class _Changes(msgspec.Struct, forbid_unknown_fields=True):
    confirm: str = ""
    settings: dict[str, str] = {}
    defaults: list[str] = []
    partitions: _Partitions | None = None
    dry_run: bool = False


class _Election(msgspec.Struct, forbid_unknown_fields=True):
    confirm: str = ""
    partitions: list[_Number] | None = None
    unclean: bool = False


class _Reassignment(msgspec.Struct, forbid_unknown_fields=True):
    confirm: str = ""
    brokers: list[_Number] = []
    replicas: dict[_Number, list[_Number]] | None = None
    replication_factor: _Replicas | None = None
    cancel: bool = False
    dry_run: bool = False


class TopicRoutes:
    """The handlers of `/v1/admin/topics`."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._operations = services.operations
        self._access = services.operations.console.access
        self._ingest = ingest

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for administrators."""
        return [
            web.get(_TOPICS, self._list, allow_head=False),
            web.post(_TOPICS, self._create),
            web.get(_TOPIC, self._describe, allow_head=False),
            web.patch(_TOPIC, self._alter),
            web.delete(_TOPIC, self._delete),
            web.get(f"{_TOPIC}/records", self._records, allow_head=False),
            web.get(f"{_TOPIC}/records/{{partition}}/{{offset}}", self._value, allow_head=False),
            web.post(f"{_TOPIC}/elections", self._elect),
            web.post(f"{_TOPIC}/reassignments", self._reassign),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        identity = await administrator(request)
        after, text = request.query.get("after", ""), request.query.get("name", "")

        def question() -> object:
            return list_topics(
                self._access, self._operations.console.admin(), after=after, text=text
            )

        return json_answer(await asked(self._operations, identity, question))

    async def _describe(self, request: web.Request) -> web.Response:
        identity = await administrator(request)
        topic = topic_of(request)
        start = number_of(request, "start", 0, _NUMBER_MAX)

        def question() -> object:
            return describe_topic(self._access, self._operations.console.admin(), topic, start)

        return json_answer(await asked(self._operations, identity, question))

    async def _create(self, request: web.Request) -> web.Response:
        identity = await administrator(request)
        body = await asked_of(request, self._ingest, _NewTopic)
        if not is_topic_name(body.name):
            raise Refused(400, "a topic's name has letters, digits, . _ and -, 249 at most")
        _refuse_kafkas(body.name)
        if not body.dry_run:
            require_confirmed(body.confirm, body.name)

        def change() -> None:
            answers = create_topics(
                self._operations.console.admin(),
                [body.name],
                partitions=body.partitions,
                replication_factor=body.replication_factor or -1,
                settings=body.settings,
                is_dry=body.dry_run,
            )
            result_of(self._access, answers[body.name])

        await self._perhaps_changed(identity, body.dry_run, f"create topic {body.name}", change)
        return json_answer({"topic": body.name}, 200 if body.dry_run else 201)

    async def _alter(self, request: web.Request) -> web.Response:
        identity = await administrator(request)
        topic = topic_of(request)
        body = await asked_of(request, self._ingest, _Changes)
        _refuse_kafkas(topic)
        if body.partitions is not None and owner_of_topic(topic) == "platform":
            # The same device has to stay in the partition of the same number of each topic.
            raise Refused(409, f"the platform relies on the partitions of topic {topic}")
        if owner_of_topic(topic) == "platform":
            _refuse_forgetting(topic, body.settings, body.defaults)
        if not body.settings and not body.defaults and body.partitions is None:
            raise Refused(400, "nothing to change: settings, defaults or partitions")
        if not body.dry_run:
            require_confirmed(body.confirm, topic)
        words = [f"{name}={value}" for name, value in body.settings.items()]
        words += [f"{name} to its default" for name in body.defaults]
        words += [] if body.partitions is None else [f"{body.partitions} partitions"]

        def change() -> None:
            alter_topic(
                self._access,
                self._operations.console.admin(),
                topic,
                settings=body.settings,
                defaults=body.defaults,
                partitions=body.partitions,
                is_dry=body.dry_run,
            )

        what = f"change topic {topic}: {', '.join(words)}"
        await self._perhaps_changed(identity, body.dry_run, what, change)
        return json_answer({"topic": topic})

    async def _perhaps_changed(
        self, identity: Identity, is_dry: bool, what: str, change: Callable[[], T]
    ) -> T:
        """Change the log; a dry run is only a question."""
        if is_dry:
            return await asked(self._operations, identity, change)
        return await changed(self._operations, identity, what, change)

    async def _delete(self, request: web.Request) -> web.Response:
        identity = await administrator(request)
        topic = topic_of(request)
        _refuse_kafkas(topic)
        if owner_of_topic(topic) == "platform":
            raise Refused(409, f"topic {topic} is the platform's own, and is not deleted here")
        require_confirmed(request.query.get("confirm", ""), topic)

        def change() -> None:
            delete_topic(self._access, self._operations.console.admin(), topic)

        await changed(self._operations, identity, f"delete topic {topic}", change)
        return web.Response(status=204)

    async def _records(self, request: web.Request) -> web.Response:
        identity = await administrator(request)
        topic, query = topic_of(request), request.query
        limit = number_of(request, "limit", 50, RECORDS_MAX)
        start, key = query.get("from", "newest"), query.get("key", "")
        if max(len(start), len(key)) > _TEXT_CHARACTERS_MAX:
            raise Refused(400, f"from and key have {_TEXT_CHARACTERS_MAX} characters at most")
        partition = number_of(request, "partition", -1, _NUMBER_MAX)
        question = RecordQuestion(
            topic,
            None if partition < 0 else partition,
            start,
            max(1, limit),
            key,
            number_of(request, "bytes", VALUE_BYTES, VALUE_BYTES_MAX),
        )
        found = await read(
            self._operations, identity, partial(self._operations.records.find, question)
        )
        audit.info("%s has read records of topic %s", identity.user, topic)
        return json_answer(found)

    async def _value(self, request: web.Request) -> web.Response:
        identity = await administrator(request)
        topic = topic_of(request)
        numbers = [request.match_info[each] for each in ("partition", "offset")]
        if not all(each.isdecimal() and len(each) <= 18 for each in numbers):
            raise Refused(404, "there is no such record")
        partition, offset = map(int, numbers)
        reading = partial(self._operations.records.whole_value, topic, partition, offset)
        value = await read(self._operations, identity, reading)
        audit.info("%s has read record %s:%d:%d", identity.user, topic, partition, offset)
        return web.Response(
            body=value or b"",
            content_type="application/octet-stream",
            headers={"Content-Disposition": f'attachment; filename="{topic}-{partition}-{offset}"'},
        )

    async def _elect(self, request: web.Request) -> web.Response:
        identity = await administrator(request)
        topic = topic_of(request)
        body = await asked_of(request, self._ingest, _Election)
        if body.unclean and not body.partitions:
            raise Refused(400, "an unclean election gives up records: name the partitions")
        require_confirmed(body.confirm, topic)
        kind = "an unclean leader" if body.unclean else "preferred leaders"
        which = "" if body.partitions is None else f" in {_listed(body.partitions)}"
        change = partial(elect, self._access, topic, body.partitions, unclean=body.unclean)
        what = f"elect {kind} of topic {topic}{which}"
        return json_answer(await changed(self._operations, identity, what, change))

    async def _reassign(self, request: web.Request) -> web.Response:
        identity = await administrator(request)
        topic = topic_of(request)
        body = await asked_of(request, self._ingest, _Reassignment)
        ways = (bool(body.brokers), body.replicas is not None, body.cancel)
        if sum(ways) != 1:
            raise Refused(400, "say one of brokers, replicas and cancel")
        if not body.dry_run:
            require_confirmed(body.confirm, topic)
        change = partial(
            reassign,
            self._access,
            topic,
            brokers=body.brokers,
            replicas=body.replicas,
            replication_factor=body.replication_factor,
            cancel=body.cancel,
            is_dry=body.dry_run,
        )
        where = f"to brokers {_listed(body.brokers)}" if body.brokers else "to chosen brokers"
        what = f"cancel moves of topic {topic}" if body.cancel else f"move topic {topic} {where}"
        return json_answer(await self._perhaps_changed(identity, body.dry_run, what, change))


def _refuse_forgetting(topic: str, settings: Mapping[str, str], defaults: Iterable[str]) -> None:
    """Refuse settings with which the platform would soon forget what it has. Raises Refused."""
    if "cleanup.policy" in (*settings, *defaults):
        raise Refused(409, f"the platform relies on the cleanup.policy of topic {topic}")
    for name, least in _RETENTION_MIN.items():
        try:
            value = int(settings.get(name, "-1"))
        except ValueError:
            continue  # the log says what is wrong with it
        if 0 <= value < least:
            raise Refused(
                409,
                f"{name}={value} would soon delete what topic {topic} of the platform has: {least} "
                "at least, or -1 for no bound",
            )


def _refuse_kafkas(topic: str) -> None:
    if owner_of_topic(topic) == "kafka":
        raise Refused(409, f"topic {topic} is the log's own, and is not changed here")


def _listed(numbers: list[int]) -> str:
    more = ", ..." if len(numbers) > 20 else ""
    return ", ".join(map(str, numbers[:20])) + more
