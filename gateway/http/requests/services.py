"""The parts of a process that the HTTP handlers work with."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.alerts.alert_sender import AlertSender
from gateway.alerts.alert_store import KEY_BYTES, AlertStore
from gateway.alerts.alerts import Alerts
from gateway.alerts.edited_places import EditedPlaces
from gateway.alerts.log_table import LogTable
from gateway.alerts.recent_events import RecentEvents
from gateway.bodies.parsing import Parsing
from gateway.exports.exports import Exports
from gateway.fixes.submit import Submitter
from gateway.forwardings.store import ForwardingStore
from gateway.friends.friend_filter import FriendFilter
from gateway.http.requests.device_endpoints import DeviceEndpoints
from gateway.imports.imports import Imports
from gateway.limits.addresses import Addresses, TrustedProxies
from gateway.limits.bounds import HttpLimits
from gateway.limits.failed_logins import FailedLogins
from gateway.limits.refusal_sampler import RefusalSampler
from gateway.limits.turn_clock import PartyTurns
from gateway.notices.notices import Notices
from gateway.observability.metrics import GatewayMetrics
from gateway.observability.metrics_access import MetricsAccess
from gateway.observability.readiness import Readiness
from gateway.operations.operations import Operations
from gateway.tracks.archive import Archive
from gateway.tracks.receipts import Receipts
from gateway.users.admission import Admission
from gateway.users.auth import Authenticator
from gateway.users.card_book import CardBook
from gateway.users.database import UserStore
from gateway.users.known_browsers import KnownBrowsers
from gateway.users.permissions import Permissions
from gateway.viewers.areas import AreaViews
from gateway.viewers.cursors import CURSORS_SECRET, CursorSeal
from gateway.viewers.viewers import Viewers
from gateway.views.address_view import AddressView
from gateway.views.location_view import LocationView
from gateway.views.pipeline import Pipeline
from gateway.views.places import Places
from gateway.web.tile_server import TileServer
from waylog.geofences.definition import decode_geofence
from waylog.history.place_edits import decode_place_edit
from waylog.kafka.topics import GEOFENCE_TOPIC, PLACE_EDIT_TOPIC
from waylog.network.connection_pool import ConnectionPool
from waylog.network.outbound.reachable_networks import ReachableNetworks
from waylog.network.served_hosts import ServedHosts
from waylog.network.shares import Shares
from waylog.observability.recent_lines import RecentLines
from waylog.observability.telemetry import now_ms
from waylog.process.file_limit import room_for_connections

if TYPE_CHECKING:
    from gateway.mqtt.listening.listener import MqttServer
from gateway.notices.web_push import WebPush
from gateway.observability.push_ledger import PushLedger
from gateway.views.waypoints_sent import WaypointsSent


def _no_alerts() -> Alerts:
    zones = LogTable("127.0.0.1:1", "gateway", GEOFENCE_TOPIC, None, decode_geofence)
    sender = AlertSender(ReachableNetworks())
    return Alerts(zones, AlertStore(None, bytes(KEY_BYTES)), sender, now_ms)


@dataclass
class Services:
    """The parts of one gateway process."""

    submitter: Submitter
    authenticator: Authenticator
    permissions: Permissions
    address_view: AddressView
    location_view: LocationView
    viewers: Viewers
    areas: AreaViews
    metrics: GatewayMetrics
    pipeline: Pipeline
    places: Places
    admission: Admission
    friend_filter: FriendFilter
    cards: CardBook
    users: UserStore
    notices: Notices
    bootstrap_servers: str
    geo_url: str | None = None
    #: The folder or URL of the history; None if there is none.
    history: str | None = None
    #: Properties of the schema registry by which administrators are shown values.
    schema_registry: Mapping[str, str] | None = None
    recent_lines: RecentLines = field(default_factory=RecentLines)
    client_id: str = "gateway"
    web_push: WebPush | None = None
    #: What users import; None where that is off.
    imports: Imports | None = None
    archive: Archive = field(default_factory=lambda: Archive(None, None))
    exports: Exports = field(default_factory=lambda: Exports(None, None))
    #: Counts what is sent to devices.
    pushes: PushLedger = field(default_factory=PushLedger)
    #: Tells where fixes are; by default there is no log to ask.
    receipts: Receipts = field(default_factory=lambda: Receipts("127.0.0.1:1"))
    #: Forwardings of users; by default there is no log that has any.
    forwardings: ForwardingStore = field(
        default_factory=lambda: ForwardingStore("127.0.0.1:1", "gateway")
    )
    #: Zones, and how users are told of events; by default there is no log that has any.
    alerts: Alerts = field(default_factory=_no_alerts)
    edited_places: EditedPlaces = field(
        default_factory=lambda: EditedPlaces(
            LogTable("127.0.0.1:1", "gateway", PLACE_EDIT_TOPIC, None, decode_place_edit)
        )
    )
    recent_events: RecentEvents = field(
        default_factory=lambda: RecentEvents("127.0.0.1:1", "gateway")
    )
    #: The names by which browsers may address this gateway.
    hosts: ServedHosts = field(default_factory=ServedHosts)
    #: Access to /metrics and /v1/pipeline, which show the state of the platform.
    metrics_access: MetricsAccess = field(default_factory=MetricsAccess)
    #: The addresses at which devices reach the platform, for the page's guide.
    device_endpoints: DeviceEndpoints = field(default_factory=DeviceEndpoints)
    limits: HttpLimits = field(default_factory=HttpLimits)
    readiness: Readiness = field(default_factory=Readiness)
    #: Proxies whose X-Forwarded-For or PROXY header is trusted.
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    #: Connections of those proxies begin with a PROXY header.
    proxy_protocol: bool = False
    #: Accepts MQTT over WebSocket; None if this process does not speak MQTT.
    mqtt: MqttServer | None = None
    #: Base maps of other servers.
    tile_servers: tuple[TileServer, ...] = ()
    #: Limits per address, shared with other listeners of the process; None if HTTP has its own.
    shared_addresses: Addresses | None = None
    #: Limit of connections over all listeners of the process.
    connections: ConnectionPool = field(
        default_factory=lambda: ConnectionPool(room_for_connections())
    )
    addresses: Addresses = field(init=False)
    #: Counts of wrong credentials, over all listeners and workers.
    failed_logins: FailedLogins = field(default_factory=FailedLogins)
    #: Bytes of large bodies being received: per user, and per address without credentials.
    bodies: Shares = field(init=False)
    bodies_of_strangers: Shares = field(init=False)
    #: Parses large bodies in a separate process.
    parsing: Parsing = field(default_factory=Parsing)
    #: Bytes that wait for the log, per user.
    under_way: Shares = field(init=False)
    #: Bytes of large answers that are being made or sent, per user.
    unread: Shares = field(init=False)
    #: Name of the session cookie. It differs between installations, because all ports of a host
    #: share their cookies.
    session_cookie: str = field(init=False)
    #: Browsers that have signed in before; wrong guesses by others do not lock them out.
    known_browsers: KnownBrowsers = field(init=False)
    #: The places last sent to a device in HTTP mode, by device.
    waypoints_sent: WaypointsSent = field(default_factory=WaypointsSent)
    #: Limits on the refusals kept in topic `error`, over all listeners of the process.
    refusals: RefusalSampler = field(default_factory=RefusalSampler)
    #: Addresses of clients from PROXY headers, by connection.
    remotes: dict[asyncio.BaseTransport | None, str] = field(default_factory=dict)
    #: Turns of the loop, given to users, or addresses, one after the other.
    turns: PartyTurns = field(default_factory=PartyTurns)

    #: What administrators see of the log, and change of it.
    operations: Operations = field(init=False)

    def __post_init__(self) -> None:
        self.operations = Operations(
            self.bootstrap_servers,
            self.client_id,
            self.location_view,
            self.address_view,
            self.metrics,
            self.readiness,
            geo_url=self.geo_url,
            history=self.history,
            schema_registry=self.schema_registry,
            recent_lines=self.recent_lines,
        )
        limits = self.limits
        shared = self.shared_addresses
        self.addresses = shared if shared is not None else Addresses(limits)
        each = limits.body_bytes_each_max
        self.bodies = Shares(limits.all_body_bytes_max, each)
        self.bodies_of_strangers = Shares(limits.all_body_bytes_max // 2, each)
        self.under_way = Shares(limits.under_way_bytes_max, limits.under_way_bytes_each_max)
        self.unread = Shares(limits.unread_bytes_max, limits.unread_bytes_each_max)
        self.cursor_seal = CursorSeal(self.users.rights.secret(CURSORS_SECRET))
        self.session_cookie = f"waylog-{self.users.rights.secret('session cookie', 4).hex()}"
        self.known_browsers = KnownBrowsers(self.users, f"{self.session_cookie}-known")

    @property
    def append_timeout_s(self) -> float:
        """Return the time that a request now waits for its append."""
        return self.readiness.append_timeout_s(self.limits.append_timeout_s)


SERVICES = web.AppKey("services", Services)
