/** The answers of the gateway's HTTP interface (/openapi.json), as far as the page reads them. */

/** The position of a device at one moment; SI units, degrees WGS84, ms since 1970 UTC. */
export interface Fix {
  id: string;
  device: string;
  user: string;
  lat: number;
  lon: number;
  time: number;
  received?: number;
  accuracy?: number | null;
  altitude?: number | null;
  speed?: number | null;
  course?: number | null;
  battery?: number | null;
  charging?: boolean | null;
  trigger?: string | null;
  source?: string | null;
}

/** Nominatim's keys of an address. */
export interface AddressParts {
  house_number?: string;
  road?: string;
  pedestrian?: string;
  footway?: string;
  path?: string;
  neighbourhood?: string;
  suburb?: string;
  city?: string;
  town?: string;
  village?: string;
  municipality?: string;
  hamlet?: string;
  county?: string;
  state?: string;
  postcode?: string;
  country?: string;
  country_code?: string;
}

/** The address of a device's newest resolved fix. */
export interface Address {
  device: string;
  time: number;
  display_name: string;
  address?: AddressParts;
  distance?: number | null;
  resolved?: number;
}

/** A row of GET /v1/devices. */
export interface DeviceRow {
  device: string;
  fix?: Fix | null;
  address?: Address | null;
}

/** A session of one's own; times in ms. */
export interface OwnSession {
  id: string;
  created: number;
  expires: number;
  agent: string;
  current: boolean;
}

export interface Passkey {
  id: string;
  name: string;
  rp_id: string;
  created: number;
  used: number | null;
}

/** GET /v1/account. */
export interface OwnAccount {
  user: string;
  password: boolean;
  second_factor: boolean;
  recovery_codes: number;
  passkeys: Passkey[];
  sessions: OwnSession[];
}

/** POST /v1/account/second-factor. */
export interface NewSecondFactor {
  secret: string;
  uri: string;
  qr_code: string;
}

export interface Friend {
  user: string;
  since: number;
  precision: Precision;
  metres: number | null;
  until: number | null;
}

/** What PUT /v1/friends/{user} takes; what is not named stays as it is. */
export interface ShowingTerms {
  precision?: Precision;
  metres?: number;
  until?: number | null;
}

/** A request that waits for an answer. */
export interface OpenRequest {
  user: string;
  time: number;
  until: number;
}

/** GET /v1/friends/requests. */
export interface FriendRequestLists {
  received: OpenRequest[];
  sent: OpenRequest[];
  blocked: string[];
}

/** GET /v1/friends. */
export interface Friends {
  shown_to: Friend[];
  seen: Friend[];
}

/** A user as administrators see it. */
export interface KnownUser {
  name: string;
  admin: boolean;
  created: number;
  devices: number;
  may_send: boolean;
  fixes_per_minute: number | null;
  devices_max: number | null;
  password: boolean;
  second_factor: boolean;
}

/** A link that signs a user in once. */
export interface Invitation {
  user: string;
  link: string;
  until: number;
}

export type Precision = "exact" | "metres" | "town";

/** What POST /v1/shares takes; without `from` and `to` the share is live. */
export interface ShareOffer {
  devices: string[];
  until: number;
  name?: string;
  from?: number;
  to?: number;
  precision?: Precision;
  metres?: number;
  hides_home?: boolean;
}

/** A share as its owner sees it; times in ms. */
export interface OwnShare {
  id: string;
  name: string;
  devices: string[];
  created: number;
  until: number;
  live: boolean;
  from: number | null;
  to: number | null;
  precision: Precision;
  metres: number | null;
  hides_home: boolean;
}

/** The answer to POST /v1/shares, which alone has the link. */
export interface NewShare extends OwnShare {
  url: string;
  qr_code: string;
}

/** GET /v1/shared: what the link of a share shows. */
export interface SharedView extends Omit<OwnShare, "id" | "created" | "devices"> {
  by: string;
  now: number;
  devices: DeviceRow[];
}

/** GET /v1/session. */
export interface Session {
  user: string | null;
  device: string | null;
  admin: boolean;
  open: boolean;
  oversees: boolean;
  /** another one once the user sees more or less of friends */
  sight: string;
}

/** GET /v1/entrances. */
export interface Entrances {
  mqtt_port?: number | null;
  mqtts_port?: number | null;
  demo_token?: string | null;
  command?: string | null;
}

/** A row of GET /v1/base-maps. */
export interface BaseMap {
  name: "map" | "satellite";
  url: string;
  kind: "raster" | "vector" | "tilejson";
  attribution: string;
}

/** A row of GET /v1/device-tokens; `newest` is when the newest token was made, ms. */
export interface DeviceTokens {
  device: string;
  tokens: number;
  newest: number;
}

export type AppName =
  "owntracks_mqtt" | "owntracks_http" | "overland" | "traccar" | "gpslogger" | "home_assistant" | "colota";

/** POST /v1/device-tokens: the token is in no other answer. */
export interface NewDeviceToken {
  device: string;
  token: string;
  setup: {
    app: AppName;
    link?: string;
    qr_code?: string;
    address?: string;
    file_name?: string;
    file?: string;
  };
}

/** Why a gateway refused what a device sent, and how often: of GET /v1/devices/{device}/receipts. */
export interface Refusal {
  reason: string;
  count: number;
}

/** GET /v1/devices/{device}/places. */
export interface Place {
  place_id: string;
  lat: number;
  lon: number;
  label: string | null;
  name: string | null;
  visits: number;
  dwell_s: number;
  address?: string | null;
  first?: number | null;
  last?: number | null;
  radius_m?: number | null;
  named_by?: string | null;
  confidence?: number | null;
  roles?: PlaceRole[] | null;
}

/** What a place is and was: home or work between two times, in ms; null if it still is. */
export interface PlaceRole {
  label: string;
  since: number;
  until: number | null;
  confidence: number;
}

/** GET /v1/devices/{device}/place-edits. */
export interface PlaceEdit {
  device: string;
  place_id: string;
  lat: number;
  lon: number;
  time: number;
  name?: string | null;
  label?: string | null;
  merged_into?: string | null;
  deleted?: boolean;
  known_as?: string | null;
}

/** A geometry of GeoJSON: Point, LineString, Polygon or MultiPolygon. */
export interface ZoneGeometry {
  type: string;
  coordinates: any[];
}

/** What POST and PUT of /v1/geofences take; metres, seconds. Without devices or channels: all. */
export interface ZoneBody {
  name: string;
  geometry: ZoneGeometry;
  radius?: number;
  width?: number;
  devices?: string[] | null;
  alerts: ("enter" | "leave" | "dwell")[];
  dwell?: number;
  minimum?: number;
  channels?: string[] | null;
  always?: boolean;
}

/** GET /v1/geofences. */
export interface Zone extends ZoneBody {
  id: string;
}

/** GET /v1/events; `alert`: the viewer is to be told in the page. */
export interface ZoneEvent {
  id: string;
  device: string;
  kind: "enter" | "leave" | "dwell" | "silence" | "speeding";
  time: number;
  zone: string | null;
  name: string | null;
  lat: number | null;
  lon: number | null;
  alert: boolean;
}

/** GET /v1/alert-channels: without what may be a secret. */
export interface AlertChannel {
  id: string;
  name: string;
  kind: string;
  server: string;
  has_token?: boolean;
  has_signing_secret?: boolean;
  unconfirmed?: boolean;
  told?: number;
  error?: string;
}

/** /v1/alert-settings. */
export interface AlertSettings {
  quiet?: { from: string; until: string; time_zone: string } | null;
  language?: string;
}

/** GET /v1/devices/{device}/visits. */
export interface Visit {
  place_id: string | null;
  arrival: number;
  departure: number;
}

/** GET /search and a found point of POST /reverse/batch, as Nominatim's jsonv2 has them. */
export interface GeocodedPlace {
  lat: string | number;
  lon: string | number;
  display_name: string;
  boundingbox?: (string | number)[];
  address?: AddressParts;
  timezone?: string;
  error?: unknown;
}

/** GET /v1/devices/{device}/track?format=geojson: one feature, or none. */
export interface TrackFeature {
  type: "Feature";
  geometry: { type: "LineString" | "Point"; coordinates: number[][] | number[] };
  properties: { times?: number[]; speed?: (number | null)[] | number | null; time?: number };
}

export interface Track {
  type: "FeatureCollection";
  features: TrackFeature[];
}

/** GET /v1/pipeline: figures, in objects that other versions may nest otherwise. */
export type Pipeline = Record<string, unknown>;

/** The device was at a place; times are ms since 1970 UTC. */
export interface Stay {
  kind: "stay";
  start: number;
  end: number;
  lat: number;
  lon: number;
  fixes: number;
  silent_s: number;
}

/** The device moved; `coordinates` (longitude, latitude) have a time each. */
export interface Trip {
  kind: "trip";
  start: number;
  end: number;
  ended: boolean;
  distance_m: number;
  moving_s: number;
  fastest: number;
  coordinates: [number, number][];
  times: number[];
}

/** Nothing is known; `coordinates` are where the device was before and after. */
export interface Gap {
  kind: "gap";
  start: number;
  end: number;
  distance_m: number;
  coordinates: [number, number][];
}

export type TimelineItem = Stay | Trip | Gap;

/** GET /v1/devices/{device}/timeline. */
export interface Timeline {
  items: TimelineItem[];
  tolerance_m: number;
}

/** GET /v1/devices/{device}/days. */
export interface Days {
  time_zone: string;
  days: { date: string; fixes: number }[];
}

/** One of `levels` of GET /v1/devices/{device}/battery. */
export interface BatteryLevel {
  time: number;
  battery: number; // percent
}

/** A day, week, month or year of GET /v1/devices/{device}/statistics. */
export interface Total {
  date: string;
  days: number;
  fixes: number;
  trips: number;
  distance_m: number;
  moving_s: number;
  fastest: number;
  unseen_m: number;
  visited: [number, number][];
}

export type Span = "day" | "week" | "month" | "year";

export interface Statistics {
  time_zone: string;
  by: Span;
  totals: Total[];
}

export type ImportState = "uploading" | "waiting" | "reading" | "storing" | "done" | "failed" | "interrupted";

/** A file of an import; `received` bytes of it have been uploaded. */
export interface ImportedFile {
  name: string;
  bytes: number;
  received: number;
  fixes: number;
  skipped: Record<string, number>;
  damage: string[];
}

/** GET /v1/imports. */
export interface OwnImport {
  id: string;
  device: string;
  created: number;
  state: ImportState;
  reason: string | null;
  files: ImportedFile[];
  read_bytes: number;
  of_bytes: number | null;
  found: number;
  stored: number;
  refused: Record<string, number>;
  from: number | null;
  to: number | null;
  finished: number | null;
  undoable: boolean;
  undo_refusal: string | null;
}

export type ForwardingState = "new" | "live" | "behind" | "failing" | "paused";

/** GET /v1/forwardings: without secrets. */
export interface OwnForwarding {
  id: string;
  name: string;
  kind: string;
  url: string;
  devices: string[] | null;
  state: ForwardingState;
  paused_by: string | null;
  paused_by_administrator: { reason: string; time: number } | null;
  forwarded: number | null;
  error: string | null;
  refused: number;
  refusal: string | null;
  missed: number;
}
