"""One gateway process: assembles the parts, serves, and closes them."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gateway.alerts.alert_sender import AlertSender
from gateway.alerts.alert_store import ALERTS_SECRET, AlertStore
from gateway.alerts.alert_store import KEY_BYTES as ALERTS_KEY_BYTES
from gateway.alerts.alerts import Alerts
from gateway.alerts.edited_places import EditedPlaces
from gateway.alerts.former_zones import FormerZones
from gateway.alerts.log_table import LogTable
from gateway.alerts.notice_delivery import NoticeDelivery
from gateway.alerts.recent_events import RecentEvents
from gateway.alerts.smtp_settings import SmtpSettings
from gateway.bodies.parsing import Parsing
from gateway.exports.exports import Exports
from gateway.fixes.erasure_reader import Record, open_erasures
from gateway.fixes.known_fixes import KnownFixes, device_key, fix_key, use_secret
from gateway.fixes.siphash import KEY_BYTES
from gateway.fixes.submit import Submitter
from gateway.forwardings.former_users import FormerUsers
from gateway.forwardings.store import ForwardingStore
from gateway.friends.friend_events import FriendEventFilter
from gateway.friends.friend_filter import FRIEND_FILTER_SECRET, FriendFilter
from gateway.friends.friendship_topic import FriendshipTopic
from gateway.http.listener import HttpServer, start_http
from gateway.http.requests.device_endpoints import DeviceEndpoints
from gateway.http.requests.services import Services
from gateway.http.starting import StartingServer
from gateway.imports.import_store import ImportStore
from gateway.imports.imports import Imports
from gateway.imports.storing import Storing
from gateway.limits.addresses import Addresses, TrustedProxies
from gateway.limits.bounds import IMPORT_BYTES_MAX, HttpLimits
from gateway.limits.error_bytes import ERROR_BYTES_PER_MINUTE
from gateway.limits.failed_logins import open_failed_logins
from gateway.limits.refusal_sampler import RefusalSampler
from gateway.mqtt.listening.options import MqttOptions, within_machine
from gateway.mqtt.listening.scram import mechanisms_over
from gateway.mqtt.workers.membership import (
    DeduplicatingSubmitter,
    LocalChannel,
    about_fixes,
    join,
)
from gateway.mqtt.workers.worker_hub import WorkerHub
from gateway.notices.arrivals import Arrival
from gateway.notices.event_notices import EventNotices
from gateway.notices.event_teller import EventTeller
from gateway.notices.notices import Notices, event_of
from gateway.notices.push import Pusher
from gateway.notices.web_push import WebPush
from gateway.observability.history_metrics import register_history
from gateway.observability.metrics import GatewayMetrics
from gateway.observability.metrics_access import MetricsAccess
from gateway.observability.push_ledger import PushLedger
from gateway.observability.readiness import (
    WATCH_S,
    Readiness,
    history_trouble,
    reader_trouble,
    storage_trouble,
)
from gateway.process.lifecycle import Started, serve_until_stopped
from gateway.tracks.archive import Archive
from gateway.tracks.receipts import Receipts
from gateway.users.admission import DEVICES_PER_USER, Admission, open_admission
from gateway.users.auth import Authenticator
from gateway.users.card_book import CardBook
from gateway.users.database import UserStore
from gateway.users.permissions import Permissions
from gateway.viewers.area_ticks import show_areas
from gateway.viewers.areas import AreaViews
from gateway.viewers.viewers import Viewers
from gateway.views.address_view import AddressView
from gateway.views.location_view import LocationView
from gateway.views.pipeline import GroupLag, Pipeline
from gateway.views.places import START_S, Places
from gateway.views.snapshots.view_keeper import ViewKeeper
from gateway.web.tile_server import TileServer
from waylog.config import Endpoint
from waylog.geofences.definition import decode_geofence
from waylog.history.erasures import Erasures
from waylog.history.place_edits import decode_place_edit
from waylog.kafka.append_watch import AppendWatch
from waylog.kafka.batch_producer import BatchProducer
from waylog.kafka.topics import EVENT, GEOFENCE_TOPIC, LOCATION, PLACE_EDIT_TOPIC
from waylog.network.connection_pool import ConnectionPool
from waylog.network.listeners import listener_of
from waylog.network.outbound.reachable_networks import ReachableNetworks
from waylog.network.peer_parties import ClientIdentifier
from waylog.network.served_hosts import ServedHosts
from waylog.observability.recent_lines import RecentLines
from waylog.observability.telemetry import KafkaTelemetry, now_ms
from waylog.process.background import PeriodicTask, spawn
from waylog.process.file_limit import room_for_connections
from waylog.process.garbage_collection import tune_garbage_collector
from waylog.process.machine_lock import MachineLock
from waylog.sealing.sealing import LogProducer, check_writer_has_key, sealed_if_configured

if TYPE_CHECKING:
    from gateway.alerts.email_sender import EmailSender
    from gateway.mqtt.listening.listener import MqttServer

logger = logging.getLogger(__name__)

#: Ids of fixes that are remembered, 16 to 32 bytes each. At 20,000 fixes a second they cover at
#: least 50 s of repeats; after a reconnection storm of 100,000 phones the last repeat came in half
#: that time.
_KNOWN_FIXES_MAX: Final = 2_000_000
#: The name of the secret for the hash that makes the keys of fixes.
_KEYS_SECRET: Final = "fix keys"  # noqa: S105


@dataclass(frozen=True)
class GatewaySettings:
    """The settings of `waylog gateway`."""

    bootstrap_servers: str
    http: Endpoint
    mqtt: Endpoint | None
    users: Path
    open_mode: bool = False
    places: str | None = None
    history: str | None = None
    geo_url: str | None = None
    #: Properties of the schema registry by which administrators are shown values.
    schema_registry: Mapping[str, str] | None = None
    hosts: tuple[str, ...] = ()
    metrics_access: MetricsAccess = field(default_factory=MetricsAccess)
    demo_token: Path | None = None
    share_ports: bool = False
    client_id: str = "gateway"
    resolver_group: str = "resolver"
    dead_letters: tuple[str, ...] = ()
    view_tail_records: int = 50_000
    #: Folder in which last positions and ids of fixes survive a restart; None to keep nothing.
    views: Path | None = None
    append_timeout_s: float = HttpLimits.append_timeout_s
    trusted_proxies: tuple[str, ...] = ()
    proxy_protocol: bool = False
    push_contact: str | None = None
    #: Different devices that a user without a limit of its own may send for.
    devices_per_user: int = DEVICES_PER_USER
    #: Bytes that a user may have kept in topic `error` per minute.
    error_bytes_per_user: int = ERROR_BYTES_PER_MINUTE
    viewers_per_user: int = HttpLimits.viewers_per_user_max
    viewers_per_address: int = HttpLimits.viewers_per_address_max
    share_days_max: int = HttpLimits.share_days_max
    mqtt_options: MqttOptions = field(default_factory=MqttOptions)
    #: Socket for workers that only speak MQTT; None if there are none.
    relay: Path | None = None
    #: Networks beside the internet whose servers users may have told of events.
    alert_networks: tuple[str, ...] = ()
    #: None: no e-mail is sent.
    smtp: SmtpSettings | None = None
    #: Bytes of the files that a user may upload at a time; 0: no imports.
    import_bytes_max: int = IMPORT_BYTES_MAX
    #: Base maps of other servers that the page offers.
    tile_servers: tuple[TileServer, ...] = ()


async def serve(settings: GatewaySettings) -> int:
    """Run until SIGTERM or SIGINT (0), or until the log can never be appended to again (1)."""

    async def start(telemetry: KafkaTelemetry, stack: AsyncExitStack) -> Started:
        gateway = _Gateway(settings, telemetry, stack, asyncio.get_running_loop())
        await gateway.start()
        users = "everybody" if settings.open_mode else settings.users
        where = f"http={gateway.http_endpoint} mqtt={gateway.mqtt_endpoint} users={users}"
        return Started(gateway.producer, where)

    return await serve_until_stopped(settings.bootstrap_servers, settings.client_id, start)


class _Gateway:
    """The parts of the process, in the order of their dependencies."""

    def __init__(
        self,
        settings: GatewaySettings,
        telemetry: KafkaTelemetry,
        stack: AsyncExitStack,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._settings = settings
        self._stack = stack
        self._loop = loop
        self.http_endpoint: Endpoint | None = None
        self.mqtt_endpoint: Endpoint | None = None
        self.mqtt: MqttServer | None = None
        self._recent_lines = RecentLines()
        logging.getLogger().addHandler(self._recent_lines)
        stack.callback(logging.getLogger().removeHandler, self._recent_lines)
        self.parsing = Parsing()
        self.metrics = GatewayMetrics()
        store = self.users = UserStore(settings.users)
        stack.callback(store.close)
        self.permissions = Permissions(store, open_mode=settings.open_mode)
        self.admission = (
            # In open mode identities are not verified, so nothing is counted.
            Admission.in_memory()
            if settings.open_mode
            else open_admission(
                settings.users, store, settings.devices_per_user, settings.error_bytes_per_user
            )
        )
        stack.callback(self.admission.close)
        self._limits = HttpLimits(
            append_timeout_s=settings.append_timeout_s, share_days_max=settings.share_days_max
        )
        #: Limits per address over HTTP and MQTT together.
        self.addresses = Addresses(self._limits)
        parties = ClientIdentifier().open()
        stack.callback(parties.close)
        self.connections = ConnectionPool(room_for_connections(), parties.of)
        self._proxies = TrustedProxies(settings.trusted_proxies)
        self.failed_logins = open_failed_logins(settings.users, store, self._limits)
        stack.callback(self.failed_logins.close)
        self.refusals = RefusalSampler()
        self.authenticator = Authenticator(
            store, open_mode=settings.open_mode, failed_logins=self.failed_logins
        )
        stack.callback(self.authenticator.close)
        self.producer: LogProducer = sealed_if_configured(
            BatchProducer(settings.bootstrap_servers, settings.client_id, loop),
            settings.bootstrap_servers,
            loop,
        )
        stack.push_async_callback(self.producer.close)
        # Before the first key is computed: keys in the snapshot must be valid in the next process.
        use_secret(store.rights.secret(_KEYS_SECRET, KEY_BYTES))
        self.readiness = Readiness()
        #: Why the views cannot be read so far, asked for while the gateway starts.
        self._views_trouble: Callable[[], str | None] = lambda: None
        #: What the start waits for.
        self._waits_for = f"waits for the log at {settings.bootstrap_servers}"
        watch = AppendWatch(
            settings.bootstrap_servers,
            settings.client_id,
            loop,
            [LOCATION, EVENT],
            lambda: self.producer.acknowledged_at,
        )
        stack.push_async_callback(watch.close)
        watch.start()
        self.readiness.add("appending", lambda: self.producer.trouble or watch.trouble)
        self.readiness.add("storage", storage_trouble(settings.users.parent))
        if settings.history is not None and "://" not in settings.history:
            self.readiness.add_other("history", history_trouble(Path(settings.history)))
            register_history(self.metrics, Path(settings.history))
        known_fixes = KnownFixes(_KNOWN_FIXES_MAX)
        self.location_view = LocationView(known_fixes)
        self.address_view = AddressView()
        self.pusher = Pusher()
        self.address_view.on_address(self.pusher.address_changed)
        self.places = Places(settings.places)
        self.friend_filter = FriendFilter(
            self.places, store.rights.secret(FRIEND_FILTER_SECRET), self.location_view.tracks
        )
        self.places.on_change(self.friend_filter.homes_changed)
        self.viewers = Viewers(
            (self.location_view, self.address_view),
            self.metrics,
            self.permissions,
            FriendEventFilter(self.friend_filter),
            of_user_max=settings.viewers_per_user,
            of_address_max=settings.viewers_per_address,
        )
        self.areas = AreaViews(self.location_view, self.friend_filter)
        self.permissions.subscribe(lambda _: self.authenticator.recheck())
        self.permissions.subscribe(self.viewers.rights_changed)
        self.location_view.watch(self.viewers)
        self.address_view.watch(self.viewers)
        #: The channel by which other workers reach this process.
        self.channel: LocalChannel | None = None
        self.worker_hub: WorkerHub | None = None
        if settings.relay is None:
            self.submitter = Submitter(
                self.producer,
                telemetry,
                loop,
                known_fixes=known_fixes,
                metrics=self.metrics,
                error_bytes=self.admission.error_bytes,
            )
        else:
            self.worker_hub = WorkerHub(loop.call_later, self._is_known, self._newest_time)
            self.channel = LocalChannel(self.worker_hub)
            self.submitter = DeduplicatingSubmitter(
                self.producer,
                telemetry,
                loop,
                known_fixes=known_fixes,
                metrics=self.metrics,
                error_bytes=self.admission.error_bytes,
                is_stored=about_fixes(self.channel, "known"),
            )
        self.archive = Archive(settings.history, settings.places)
        stack.push_async_callback(self.archive.close)
        self.imports = self._open_imports() if settings.import_bytes_max else None
        self.pushes = PushLedger()
        telling = spawn(self.pushes.run(telemetry), "counting pushes", endless=True)
        stack.callback(telling.cancel)
        self.receipts = Receipts(
            settings.bootstrap_servers,
            settings.history,
            settings.resolver_group,
            settings.dead_letters,
        )
        stack.push_async_callback(self.receipts.close)
        once = MachineLock(settings.users.with_name(f"{settings.users.name}.notices"))
        stack.callback(once.close)
        self.friendship_topic = FriendshipTopic(
            settings.bootstrap_servers,
            settings.client_id,
            store.rights,
            self.producer,
            once,
        )
        self.permissions.subscribe(self.friendship_topic.rights_changed)
        self.forwardings = ForwardingStore(settings.bootstrap_servers, settings.client_id)
        stack.push_async_callback(asyncio.to_thread, self.forwardings.close)
        self.former_users = FormerUsers(self.forwardings, store, once)
        self.permissions.subscribe(self.former_users.rights_changed)
        log = (settings.bootstrap_servers, settings.client_id)
        zones = LogTable(*log, GEOFENCE_TOPIC, self.producer, decode_geofence)
        edits = LogTable(*log, PLACE_EDIT_TOPIC, self.producer, decode_place_edit)
        self.edited_places = EditedPlaces(edits)
        self.recent_events = RecentEvents(*log)
        self._erased = Erasures()
        alert_store = AlertStore(
            settings.users.with_name(f"{settings.users.name}.alerts"),
            store.rights.secret(ALERTS_SECRET, ALERTS_KEY_BYTES),
        )
        stack.callback(alert_store.close)
        networks = ReachableNetworks(settings.alert_networks, _own_ports(settings))
        sender = AlertSender(networks, _email_sender(settings.smtp))
        self.alerts = Alerts(zones, alert_store, sender, now_ms)
        self.former_zones = FormerZones(zones, alert_store, store, once)
        self.permissions.subscribe(self.former_zones.rights_changed)
        for part in (zones, edits, sender, self.recent_events):
            stack.push_async_callback(part.close)
        self.notices = Notices(self.places, self.location_view, once)
        self.notices.tell(self.pusher.arrived)
        self.notices.tell_once(self._record_arrival)
        self.web_push = WebPush(store, settings.push_contact)
        stack.push_async_callback(self.web_push.close)
        delivery = NoticeDelivery(
            self.alerts, self.web_push, self.pusher, self.notices, self.metrics
        )
        stack.push_async_callback(delivery.close)
        self.notices.tell_once(delivery.arrived)
        self.address_view.on_address(self.notices.address_changed)
        self.event_notices = EventNotices(self.friend_filter, self.permissions.rights_of, now_ms)
        self.event_teller = EventTeller(
            settings.bootstrap_servers,
            settings.client_id,
            store.notices,
            self.event_notices,
            once,
            delivery.deliver,
            now_ms,
        )
        lag = GroupLag(settings.bootstrap_servers, settings.client_id, settings.resolver_group)
        self.pipeline = Pipeline(self.location_view, self.address_view, self.metrics, lag)
        stack.push_async_callback(self.pipeline.close)

    def _open_imports(self) -> Imports:
        settings = self._settings
        folder = settings.users.with_name(f"{settings.users.name}.imports")
        imports = Imports(
            ImportStore(folder, settings.import_bytes_max),
            Storing(self.submitter, self.admission),
            bootstrap_servers=settings.bootstrap_servers,
            locations=self.location_view,
            archive=self.archive,
            permissions=self.permissions,
            users=self.users,
        )
        self._stack.push_async_callback(imports.close)
        self.permissions.subscribe(imports.rights_changed)
        return imports

    async def start(self) -> None:
        """Serve once the views have loaded their snapshot and the records after it.

        Before that a repeated fix could not be distinguished from a new one, so over HTTP only
        probes are answered.
        """
        starting = await self._listen_early()
        # Friends are shown no positions before homes are loaded.
        looking = spawn(self.places.look_up(), "looking for places")
        self._stack.callback(looking.cancel)
        settings = self._settings
        self.erasures = await self._stack.enter_async_context(
            open_erasures(settings.bootstrap_servers, settings.client_id, self._waits)
        )
        self._waits_for = "reads what the log has"
        await asyncio.to_thread(check_writer_has_key, settings.bootstrap_servers)
        self.erasures.subscribe(self.submitter.on_erasures)
        self.erasures.subscribe(self.recent_events.on_erasures)
        self.erasures.subscribe(self._uncount_erased)
        keeper = self.keeper = ViewKeeper(
            self._settings.bootstrap_servers,
            self._settings.client_id,
            self.location_view,
            self.address_view,
            folder=self._settings.views,
            tail=self._settings.view_tail_records,
        )
        self._stack.push_async_callback(keeper.close)
        self._views_trouble = lambda: keeper.trouble
        await keeper.start()
        for topic, reader in keeper.live.items():
            self.readiness.add(topic, reader_trouble(reader))
        looking_after = PeriodicTask("readiness").spawn(WATCH_S, self.readiness.look)
        self._stack.callback(looking_after.cancel)
        logger.info(
            "views have caught up: %d devices, %d fixes known",
            len(self.location_view),
            len(self.location_view.known_fixes),
        )
        tune_garbage_collector()
        await asyncio.wait({looking}, timeout=START_S)
        self._register_gauges()
        if not self._settings.open_mode:
            self._beside(self.permissions.watch(), "looking for changed rights")
            self._beside(self.friendship_topic.run(), "writing friendships")
            self._beside(self.former_users.run(), "ending forwardings")
            self._beside(self.former_zones.run(), "ending zones")
            self._beside(self.event_teller.run(), "telling of events")
        if self.imports is not None:
            self._beside(self.imports.tidy(), "removing abandoned imports")
        self._beside(self.places.watch(), "looking for new places")
        self._beside(self.viewers.tell_withheld(), "telling friends what was withheld")
        self._stack.callback(show_areas(self.areas).cancel)
        await self._start_mqtt()
        server = await self._start_http(starting)
        self.http_endpoint = server.endpoint
        self._stack.push_async_callback(server.close)

    def _beside(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._stack.callback(spawn(work, name).cancel)

    def _waits(self, why: str) -> None:
        self._waits_for = f"waits for the log at {self._settings.bootstrap_servers}: {why}"

    def _start_state(self) -> str:
        trouble = self._views_trouble()
        return self._waits_for if trouble is None else f"waits for the log: {trouble}"

    async def _listen_early(self) -> StartingServer | None:
        """Answer probes over HTTP during the start, if no other gateway does that at the port.

        One that shares the port and serves already would lose a part of its clients to the short
        answers of this one; the kernel spreads connections over all that listen.
        """
        settings = self._settings
        if settings.share_ports and listener_of(settings.http.port) is not None:
            return None
        starting = StartingServer(
            lambda: {"start": self._start_state()} | self.readiness.problems(),
            lambda address: settings.proxy_protocol and address in self._proxies,
        )
        starting.start(settings.http, reuse_port=settings.share_ports)
        self._stack.push_async_callback(starting.close)
        return starting

    async def _start_http(self, starting: StartingServer | None) -> HttpServer:
        settings = self._settings
        services = Services(
            submitter=self.submitter,
            authenticator=self.authenticator,
            permissions=self.permissions,
            address_view=self.address_view,
            location_view=self.location_view,
            viewers=self.viewers,
            areas=self.areas,
            metrics=self.metrics,
            pipeline=self.pipeline,
            places=self.places,
            friend_filter=self.friend_filter,
            notices=self.notices,
            web_push=self.web_push,
            archive=self.archive,
            imports=self.imports,
            exports=Exports(settings.history, settings.places),
            receipts=self.receipts,
            forwardings=self.forwardings,
            alerts=self.alerts,
            edited_places=self.edited_places,
            recent_events=self.recent_events,
            pushes=self.pushes,
            admission=self.admission,
            cards=CardBook(self.users),
            users=self.users,
            bootstrap_servers=settings.bootstrap_servers,
            geo_url=settings.geo_url,
            history=settings.history,
            schema_registry=settings.schema_registry,
            recent_lines=self._recent_lines,
            client_id=settings.client_id,
            hosts=ServedHosts(settings.http.host, settings.hosts),
            metrics_access=settings.metrics_access,
            device_endpoints=self._device_endpoints(),
            readiness=self.readiness,
            limits=self._limits,
            proxies=self._proxies,
            shared_addresses=self.addresses,
            connections=self.connections,
            failed_logins=self.failed_logins,
            refusals=self.refusals,
            proxy_protocol=settings.proxy_protocol,
            tile_servers=settings.tile_servers,
            mqtt=self.mqtt,
            parsing=self.parsing,
        )
        return await start_http(
            settings.http,
            services,
            settings.client_id,
            reuse_port=settings.share_ports,
            starting=starting,
        )

    def _device_endpoints(self) -> DeviceEndpoints:
        tls, demo = self._settings.mqtt_options.tls, self._settings.demo_token
        program = Path(sys.executable).with_name("waylog")
        return DeviceEndpoints(
            command=str(program) if program.exists() else None,
            mqtt_port=None if self.mqtt_endpoint is None else self.mqtt_endpoint.port,
            mqtts_port=None if tls is None else tls.port,
            demo_token=None if demo is None else str(demo.absolute()),
        )

    async def _start_mqtt(self) -> None:
        if self._settings.mqtt is None:
            return
        from gateway.mqtt.journal.kafka_journal import ensure_mapped_topics, open_journal
        from gateway.mqtt.listening.certificates import listen_with_tls
        from gateway.mqtt.listening.listener import start_mqtt
        from gateway.mqtt.workers.relay import Relay
        from gateway.notices.waypoint_source import WaypointSource

        options = self._settings.mqtt_options
        await ensure_mapped_topics(self._settings.bootstrap_servers, options.mapping)
        journal = await self._stack.enter_async_context(
            open_journal(
                self._settings.bootstrap_servers,
                self._settings.client_id,
                self.producer,
                self.erasures,
                shared=self._settings.share_ports,
                seat=options.seat,
            )
        )
        server = self.mqtt = await start_mqtt(
            self._settings.mqtt,
            submitter=self.submitter,
            authenticator=self.authenticator,
            address_view=self.address_view,
            location_view=self.location_view,
            pusher=self.pusher,
            settings=within_machine(options.settings),
            journal=journal,
            mapping=options.mapping,
            mechanisms=mechanisms_over(self.users, open_mode=self._settings.open_mode),
            admission=self.admission,
            addresses=self.addresses,
            connections=self.connections,
            failed_logins=self.failed_logins,
            refusals=self.refusals,
            proxies=self._proxies if self._settings.proxy_protocol else None,
            permissions=self.permissions,
            telling=FriendEventFilter(self.friend_filter),
            parsing=self.parsing,
            reuse_port=self._settings.share_ports,
        )
        server.channel.count_in(self.pushes)
        self.mqtt_endpoint = server.endpoint
        self.metrics.mqtt = server.counters
        for name, documentation in server.GAUGES.items():
            self.metrics.gauge(f"mqtt_{name}", documentation, partial(server.gauge, name))
        waypoints = WaypointSource(
            server.router, self.places, self.location_view, self._loop.time, server.wake
        )
        server.router.sources.append(waypoints)
        self.places.on_change(waypoints.changed)
        self.places.on_change(server.homes_changed)
        self.permissions.subscribe(server.rights_changed)
        self._stack.push_async_callback(server.close)
        if self._settings.relay is not None and self.worker_hub is not None and self.channel:
            neighbours = join(server, journal, self.channel, self.submitter)
            self.channel.on_frame = neighbours.on_frame
            neighbours.opened()
            relay = Relay(server.channel, self.address_view, self.worker_hub)
            self.pusher.register(relay)
            self._stack.push_async_callback(relay.close)
            await relay.start(self._settings.relay)
        await listen_with_tls(server, options, self._stack, reuse_port=self._settings.share_ports)

    def _uncount_erased(self, records: Sequence[Record]) -> None:
        """Let erased devices not count among those of their users; takes topic `erasure`."""
        for record in records:
            erasure = self._erased.take(record.value())
            if erasure is not None:
                self.admission.forget(erasure.device)

    def _record_arrival(self, arrival: Arrival) -> None:
        self.submitter.submit_event(event_of(arrival, now_ms()))

    def _is_known(self, device: str, fix_id: str) -> bool:
        return fix_key(device, fix_id) in self.location_view.known_fixes

    def _newest_time(self, device: str) -> int | None:
        times = self.location_view.known_fixes.times
        return None if times is None else times.time_of(device_key(device))

    def _register_gauges(self) -> None:
        gauge = self.metrics.gauge
        gauge("in_flight", "Fixes that wait for the log.", lambda: self.submitter.in_flight)
        gauge("viewers", "Live viewers.", lambda: len(self.viewers))
        gauge("devices", "Devices known.", lambda: len(self.location_view))
        gauge(
            "events_outdated",
            "Events since the start that were too old to tell anybody.",
            lambda: self.event_notices.outdated,
        )
        gauge("known_fixes", "Ids remembered.", lambda: len(self.location_view.known_fixes))
        gauge(
            "view_unread_records",
            "Records of before the start that are still to be read.",
            lambda: self.keeper.unread,
        )
        for view in (self.location_view, self.address_view):
            gauge(
                f"{view.topic}_view_delay_seconds",
                f"Age of the newest record of topic {view.topic} when it was taken.",
                lambda view=view: view.delay_ms / 1000,  # type: ignore[misc]
            )
            gauge(
                f"{view.topic}_view_records",
                f"Records of topic {view.topic} taken.",
                lambda view=view: view.records,  # type: ignore[misc]
            )


def _email_sender(settings: SmtpSettings | None) -> EmailSender | None:
    if settings is None:
        return None
    # Imported where an operator has e-mail sent: others do without its memory.
    from gateway.alerts.email_sender import EmailSender

    return EmailSender(settings)


def _own_ports(settings: GatewaySettings) -> set[int]:
    """Return ports of the platform, which nobody's alerts reach."""
    ports = {settings.http.port} | ({settings.mqtt.port} if settings.mqtt is not None else set())
    return ports | {
        int(port)
        for each in settings.bootstrap_servers.split(",")
        if (port := each.rpartition(":")[2]).isdecimal()
    }
