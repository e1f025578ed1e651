"""A part of Confluent's REST proxy, version 2, for administrators: `/topics` and `/consumers`.

https://docs.confluent.io/platform/current/kafka-rest/api.html. Supports the embedded formats json
and binary. Errors have the proxy's form: `{"error_code": 40401, "message": ..}`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import web
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from gateway.bodies.parsing import READ_HERE_BYTES_MAX, ParsingFailed, ParsingUnavailable
from gateway.bodies.parts import Body
from gateway.bodies.rest_records import Produced, RecordsRefused, read_records, shown_records
from gateway.http.ingest.ingest import Ingest
from gateway.http.kafka_rest.rest_consumers import (
    BEGINNING,
    END,
    Instance,
    InstanceExists,
    RestConsumers,
    TooManyInstances,
    UnknownInstance,
)
from gateway.http.requests.authentication import known_user
from gateway.http.requests.responses import (
    COMMAND_BYTES_MAX,
    Refused,
    json_answer,
    raw_json_answer,
    unavailable,
)
from gateway.http.requests.services import Services
from gateway.users.admission import QuotaExceeded, SendingNotAllowed
from gateway.users.auth import Identity
from waylog.kafka.clients import consumer_config, producer_config
from waylog.kafka.errors import not_stored_text
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.kafka.topics import LOCATION
from waylog.malformed import MALFORMED

_TIMEOUT_S: Final = 10.0
_RECORDS_TIMEOUT_MS_MAX: Final = 30_000
#: Bytes of records in one response; a client asks again for more.
_RECORDS_BYTES_MAX: Final = 2 * 1024 * 1024
_MEDIA_TYPE: Final = "application/vnd.kafka.{}.v2+json"
_ANSWER_TYPE: Final = "application/vnd.kafka.v2+json"
_INSTANCE: Final = "/consumers/{group}/instances/{instance}"

_IDENTITY: Final = web.RequestKey("identity", Identity)

Handler = Callable[[web.Request], Awaitable[web.Response]]


class RestError(Exception):
    """An error with a code of the REST proxy: the HTTP status and two more digits."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Partition(msgspec.Struct):
    topic: str
    partition: int
    offset: int = BEGINNING


class _Partitions(msgspec.Struct):
    partitions: list[_Partition]


class _Offsets(msgspec.Struct):
    offsets: list[_Partition]


class _Topics(msgspec.Struct):
    topics: list[str]


class _NewInstance(msgspec.Struct):
    name: str | None = None
    format: str = "binary"
    reset: str = msgspec.field(default="latest", name="auto.offset.reset")
    commit: str | bool = msgspec.field(default=True, name="auto.commit.enable")


class KafkaRest:
    """The handlers of the REST proxy's interface."""

    def __init__(self, services: Services, ingest: Ingest, client_id: str) -> None:
        self._services = services
        self._ingest = ingest
        self._client_id = client_id
        self._consumers = RestConsumers(services.bootstrap_servers, client_id)
        self._producer: LibrdkafkaProducer | None = None
        self._asking: Consumer | None = None

    def routes(self) -> list[web.RouteDef]:
        """Return all routes; each is for administrators only."""

        def get(path: str, handler: Handler) -> web.RouteDef:
            return web.get(path, self._for_admins(handler), allow_head=False)

        def post(path: str, handler: Handler) -> web.RouteDef:
            return web.post(path, self._for_admins(handler))

        def delete(path: str, handler: Handler) -> web.RouteDef:
            return web.delete(path, self._for_admins(handler))

        return [
            get("/topics", self._topics),
            get("/topics/{topic}", self._topic),
            post("/topics/{topic}", self._produce),
            get("/topics/{topic}/partitions", self._partitions),
            get("/topics/{topic}/partitions/{partition}", self._partition),
            post("/topics/{topic}/partitions/{partition}", self._produce),
            get("/topics/{topic}/partitions/{partition}/offsets", self._partition_offsets),
            get("/brokers", self._brokers),
            post("/consumers/{group}", self._create),
            delete(_INSTANCE, self._delete),
            post(f"{_INSTANCE}/subscription", self._subscribe),
            get(f"{_INSTANCE}/subscription", self._subscription),
            delete(f"{_INSTANCE}/subscription", self._unsubscribe),
            post(f"{_INSTANCE}/assignments", self._assign),
            get(f"{_INSTANCE}/assignments", self._assignments),
            post(f"{_INSTANCE}/positions", self._seek),
            post(f"{_INSTANCE}/positions/beginning", self._seek_beginning),
            post(f"{_INSTANCE}/positions/end", self._seek_end),
            get(f"{_INSTANCE}/records", self._records),
            post(f"{_INSTANCE}/offsets", self._commit),
            get(f"{_INSTANCE}/offsets", self._committed),
        ]

    async def close(self) -> None:
        """Close all consumers."""
        await self._consumers.close()
        if self._asking is not None:
            await asyncio.to_thread(self._asking.close)

    def _for_admins(self, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            identity = await known_user(
                request, "the log itself is for administrators: Basic or Bearer"
            )
            if not identity.admin:
                raise Refused(403, "the log itself is for administrators (waylog user add --admin)")
            request[_IDENTITY] = identity
            try:
                return await handler(request)
            except (RestError, RecordsRefused) as error:
                return _error(error.code, str(error))
            except UnknownInstance:
                return _error(40403, "Consumer instance not found.")
            except MALFORMED as error:
                return _error(42201, f"the body is not understood: {error}")
            except KafkaException as error:
                return _kafka_error(error)

        return handle

    # --- topics ---------------------------------------------------------------------------------

    def _ask(self) -> Consumer:
        if self._asking is None:
            name = f"{self._client_id}-rest-ask"
            self._asking = Consumer(consumer_config(self._services.bootstrap_servers, name, name))
        return self._asking

    async def _metadata(self) -> Any:
        return await asyncio.to_thread(lambda: self._ask().list_topics(timeout=_TIMEOUT_S))

    async def _described(self, request: web.Request) -> Any:
        topics = (await self._metadata()).topics
        topic = topics.get(request.match_info["topic"])
        if topic is None:
            raise RestError(40401, "Topic not found.")
        return topic

    async def _topics(self, _: web.Request) -> web.Response:
        return _answer(sorted((await self._metadata()).topics))

    async def _topic(self, request: web.Request) -> web.Response:
        topic = await self._described(request)
        partitions = [_partition_of(each) for _, each in sorted(topic.partitions.items())]
        return _answer({"name": topic.topic, "configs": {}, "partitions": partitions})

    async def _partitions(self, request: web.Request) -> web.Response:
        topic = await self._described(request)
        return _answer([_partition_of(each) for _, each in sorted(topic.partitions.items())])

    async def _partition(self, request: web.Request) -> web.Response:
        topic = await self._described(request)
        partition = topic.partitions.get(_number(request.match_info["partition"]))
        if partition is None:
            raise RestError(40402, "Partition not found.")
        return _answer(_partition_of(partition))

    async def _partition_offsets(self, request: web.Request) -> web.Response:
        topic = await self._described(request)
        number = _number(request.match_info["partition"])
        if number not in topic.partitions:
            raise RestError(40402, "Partition not found.")
        low, high = await asyncio.to_thread(
            lambda: self._ask().get_watermark_offsets(
                TopicPartition(topic.topic, number), timeout=_TIMEOUT_S
            )
        )
        return _answer({"beginning_offset": low, "end_offset": high})

    async def _brokers(self, _: web.Request) -> web.Response:
        return _answer({"brokers": sorted((await self._metadata()).brokers)})

    async def _produce(self, request: web.Request) -> web.Response:
        format_ = _format_of(request.content_type)
        identity = request[_IDENTITY]
        body = await self._ingest.receive_body(request, identity)
        records = await self._read(body, format_, identity.user)
        await self._described(request)
        topic = request.match_info["topic"]
        in_path = request.match_info.get("partition")
        if topic == LOCATION:
            self._admit(identity, len(records))
        partition = None if in_path is None else _number(in_path)
        offsets = await asyncio.to_thread(self._append, topic, records, partition)
        answer = raw_json_answer(offsets)
        answer.content_type = _ANSWER_TYPE
        return answer

    async def _read(self, body: Body, format_: str, user: str) -> list[Produced]:
        if len(body) <= READ_HERE_BYTES_MAX:
            return read_records(bytes(body), format_)
        try:
            return await self._services.parsing.records(body, format_, user)
        except ParsingUnavailable as error:
            raise unavailable(str(error)) from error
        except ParsingFailed as error:
            raise RestError(50003, f"the body could not be read: {error}") from error

    def _admit(self, identity: Identity, fixes: int) -> None:
        try:
            self._services.admission.take(identity, fixes)
        except QuotaExceeded as error:
            raise Refused(429, str(error), {"Retry-After": error.retry_after}) from error
        except SendingNotAllowed as error:
            raise Refused(403, str(error)) from error

    def _append(self, topic: str, records: list[Produced], in_path: int | None) -> bytes:
        """Append records and return the encoded response. Blocks, so it runs in a thread."""
        producer = self._producer
        if producer is None:
            producer = self._producer = LibrdkafkaProducer(
                producer_config(
                    self._services.bootstrap_servers, f"{self._client_id}-rest", linger_ms=5
                )
            )
        results: list[dict[str, Any]] = [
            {"partition": None, "offset": None, "error_code": 2, "error": "not acknowledged"}
            for _ in records
        ]

        def delivered(index: int, error: KafkaError | None, message: Message) -> None:
            results[index] = {
                "partition": message.partition(),
                "offset": message.offset() if error is None else None,
                "error_code": None if error is None else 2 if error.retriable() else 1,
                "error": None if error is None else error.str(),
            }

        for index, (key, value, in_record) in enumerate(records):
            partition = in_record if in_path is None else in_path
            try:
                producer.produce(
                    topic,
                    value,
                    key,
                    -1 if partition is None else partition,
                    on_delivery=partial(delivered, index),
                )
            except KafkaException as error:
                self._producer = None  # it takes no more records
                raise unavailable(not_stored_text(error, topic)) from error
        try:
            producer.flush(_TIMEOUT_S)
        except KafkaException as error:
            self._producer = None
            raise unavailable(not_stored_text(error, topic)) from error
        return msgspec.json.encode(
            {"key_schema_id": None, "value_schema_id": None, "offsets": results}
        )

    # --- consumers ------------------------------------------------------------------------------

    def _instance(self, request: web.Request) -> Instance:
        return self._consumers.instance(request.match_info["group"], request.match_info["instance"])

    async def _decoded(self, request: web.Request, type_: Any) -> Any:
        return msgspec.json.decode(await self._command(request), type=type_)

    async def _command(self, request: web.Request) -> bytes:
        """Read a body that holds no records, only names, partitions or offsets."""
        return await self._ingest.read_body(request, request[_IDENTITY], COMMAND_BYTES_MAX)

    async def _create(self, request: web.Request) -> web.Response:
        body = await self._command(request)
        asked = msgspec.json.decode(body or b"{}", type=_NewInstance)
        if asked.format not in ("json", "binary"):
            raise RestError(42204, "format is json or binary")
        if asked.reset not in ("earliest", "latest"):
            raise RestError(42205, "auto.offset.reset is earliest or latest")
        group = request.match_info["group"]
        commits = str(asked.commit).lower() == "true"
        try:
            instance = await self._consumers.create(
                *(group, asked.name, asked.format),
                {
                    "auto.offset.reset": asked.reset,
                    "enable.auto.commit": "true" if commits else "false",
                },
                request[_IDENTITY].user,
            )
        except InstanceExists:
            raise RestError(40902, "Consumer instance already exists.") from None
        except TooManyInstances:
            raise RestError(50301, "too many consumer instances; delete one") from None
        uri = f"{request.url.origin()}/consumers/{group}/instances/{instance.name}"
        return _answer({"instance_id": instance.name, "base_uri": uri})

    async def _delete(self, request: web.Request) -> web.Response:
        await self._consumers.delete(request.match_info["group"], request.match_info["instance"])
        return web.Response(status=204)

    async def _subscribe(self, request: web.Request) -> web.Response:
        instance = self._instance(request)
        topics = (await self._decoded(request, _Topics)).topics
        await self._consumers.run(instance, instance.subscribe, topics)
        return web.Response(status=204)

    async def _subscription(self, request: web.Request) -> web.Response:
        return _answer({"topics": self._instance(request).topics})

    async def _unsubscribe(self, request: web.Request) -> web.Response:
        instance = self._instance(request)
        await self._consumers.run(instance, instance.subscribe, [])
        return web.Response(status=204)

    async def _assign(self, request: web.Request) -> web.Response:
        instance = self._instance(request)
        asked = await self._decoded(request, _Partitions)
        partitions = [TopicPartition(each.topic, each.partition) for each in asked.partitions]
        await self._consumers.run(instance, instance.assign, partitions)
        return web.Response(status=204)

    async def _assignments(self, request: web.Request) -> web.Response:
        instance = self._instance(request)
        assigned = await self._consumers.run(instance, instance.consumer.assignment)
        return _answer({"partitions": [_named(each) for each in assigned]})

    async def _seek(self, request: web.Request) -> web.Response:
        asked = await self._decoded(request, _Offsets)
        return await self._seek_to(
            request, [TopicPartition(e.topic, e.partition, e.offset) for e in asked.offsets]
        )

    async def _seek_beginning(self, request: web.Request) -> web.Response:
        asked = await self._decoded(request, _Partitions)
        return await self._seek_to(
            request, [TopicPartition(e.topic, e.partition, BEGINNING) for e in asked.partitions]
        )

    async def _seek_end(self, request: web.Request) -> web.Response:
        asked = await self._decoded(request, _Partitions)
        return await self._seek_to(
            request, [TopicPartition(e.topic, e.partition, END) for e in asked.partitions]
        )

    async def _seek_to(
        self, request: web.Request, partitions: list[TopicPartition]
    ) -> web.Response:
        instance = self._instance(request)
        await self._consumers.run(instance, instance.seek, partitions)
        return web.Response(status=204)

    async def _records(self, request: web.Request) -> web.Response:
        instance = self._instance(request)
        timeout_ms = min(_number(request.query.get("timeout", "1000")), _RECORDS_TIMEOUT_MS_MAX)
        bytes_max = _number(request.query.get("max_bytes", str(_RECORDS_BYTES_MAX)))
        bytes_max = min(bytes_max, _RECORDS_BYTES_MAX)

        def read() -> bytes:
            messages = instance.records(timeout_ms / 1000, bytes_max)
            return shown_records(messages, instance.format)

        return web.Response(
            body=await self._consumers.run(instance, read),
            content_type=_MEDIA_TYPE.format(instance.format),
        )

    async def _commit(self, request: web.Request) -> web.Response:
        instance = self._instance(request)
        body = await self._command(request)
        offsets = None
        if body.strip() not in (b"", b"{}"):
            # REST clients send the offset of the last record they processed; Kafka commits the next
            # offset.
            offsets = [
                TopicPartition(each.topic, each.partition, each.offset + 1)
                for each in msgspec.json.decode(body, type=_Offsets).offsets
            ]
        await self._consumers.run(instance, instance.commit, offsets)
        return web.Response(status=200)

    async def _committed(self, request: web.Request) -> web.Response:
        instance = self._instance(request)
        asked = await self._decoded(request, _Partitions)
        partitions = [TopicPartition(each.topic, each.partition) for each in asked.partitions]
        committed = await self._consumers.run(
            instance, lambda: instance.consumer.committed(partitions, timeout=_TIMEOUT_S)
        )
        return _answer(
            {
                "offsets": [
                    _named(each) | {"offset": each.offset - 1, "metadata": each.metadata or ""}
                    for each in committed
                    if each.offset >= 0
                ]
            }
        )


def _answer(value: Any) -> web.Response:
    answer = json_answer(value)
    answer.content_type = _ANSWER_TYPE
    return answer


def _error(code: int, message: str) -> web.Response:
    return json_answer({"error_code": code, "message": message}, code // 100)


def _kafka_error(error: KafkaException) -> web.Response:
    kafka: KafkaError = error.args[0]
    if kafka.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return _error(40401, "Topic not found.")
    if kafka.retriable() or kafka.code() in (
        *(KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT),
    ):
        return _error(50302, f"the log does not answer: {kafka.str()}")
    return _error(50002, kafka.str())


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise RestError(42203, f"{text[:60]!r} is not a number")
    return int(text)


def _named(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}


def _partition_of(partition: Any) -> dict[str, Any]:
    return {
        "partition": partition.id,
        "leader": partition.leader,
        "replicas": [
            {
                "broker": replica,
                "leader": replica == partition.leader,
                "in_sync": replica in partition.isrs,
            }
            for replica in partition.replicas
        ],
    }


def _format_of(content_type: str) -> str:
    for format_ in ("json", "binary"):
        if content_type == _MEDIA_TYPE.format(format_):
            return format_
    raise RestError(
        41501, f"Content-Type is {_MEDIA_TYPE.format('json')} or {_MEDIA_TYPE.format('binary')}"
    )
