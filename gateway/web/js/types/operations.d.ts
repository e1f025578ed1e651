// The answers of /v1/admin that the view of operations reads.

export interface Disk {
  path: string;
  log_bytes: number;
  total_bytes: number;
  usable_bytes: number;
  trouble: string;
}

export interface Broker {
  id: number;
  address: string | null;
  rack: string | null;
  answers: boolean;
  is_controller: boolean;
  leads: number;
  replicas: number;
  in_sync: number;
  disks: Disk[];
}

export interface QuorumMember {
  id: number;
  role: "active" | "voter" | "observer";
  end_offset: number;
  behind: number;
  seen_ms_ago: number | null;
}

export interface Cluster {
  cluster_id: string;
  brokers: Broker[];
  epoch: number | null;
  quorum: QuorumMember[];
  partitions: number | null;
  under_replicated: number;
  behind: { topic: string; partition: number; leader: number; replicas: number[]; in_sync: number[] }[];
  moving: { topic: string; partition: number; replicas: number[]; adding: number[]; removing: number[] }[];
  unknown: string[];
}

export interface Overview {
  time: number;
  uptime_s: number;
  devices: number;
  records_in_per_second: number | null;
  records_out_per_second: number | null;
  topics: { topic: string; per_second: number }[];
  stages: { name: string; per_second: number | null; p50_ms: number | null; p99_ms: number | null }[];
  groups: { group: string; state: string; topics: string[]; lag: number; per_second: number | null }[];
  cluster: Cluster | null;
  parts: { name: string; healthy: boolean | null; detail: string }[];
  history_written: number | null;
  unknown: string[];
}

export interface LogLine {
  number: number;
  time: number;
  level: string;
  logger: string;
  message: string;
  exception: string;
}

export type Owner = "platform" | "kafka" | "other";

export interface TopicList {
  topics: { name: string; owner: Owner; partitions: number; replicas: number; under_replicated: number; bytes: number | null }[];
  total: number;
  next: string | null;
}

export interface Setting {
  name: string;
  value: string | null;
  source: "topic" | "broker" | "default";
  sensitive: boolean;
  read_only: boolean;
}

export interface Topic {
  name: string;
  owner: Owner;
  partitions: number;
  rows: { partition: number; leader: number; replicas: number[]; in_sync: number[]; first: number | null; end: number | null; bytes: number | null }[];
  next: number | null;
  settings: Setting[];
}

export interface NewTopic {
  name: string;
  confirm: string;
  partitions?: number;
  replication_factor?: number;
  settings?: Record<string, string>;
}

export interface TopicChanges {
  confirm: string;
  settings?: Record<string, string>;
  defaults?: string[];
  partitions?: number;
}

export interface Reassignment {
  confirm?: string;
  brokers?: number[];
  cancel?: boolean;
  dry_run?: boolean;
}

export interface Election {
  partition: number;
  reason: string;
}

export interface Move {
  partition: number;
  before: number[];
  after: number[] | null;
  refused: string;
}

/** A key or a value; what is its default is left out. */
export interface Value {
  kind: "null" | "json" | "text" | "schema" | "bytes" | "sealed";
  bytes?: number;
  text?: string;
  cut?: boolean;
  note?: string;
}

export interface LogRecord {
  partition: number;
  offset: number;
  time: number;
  key: Value;
  value: Value;
  headers: [string, string][];
}

export interface Records {
  records: LogRecord[];
  partitions: { partition: number; next: number; end: number }[];
  read: number;
  ended: "" | "time" | "bytes" | "records";
}

export interface GroupRow {
  group: string;
  type: string;
  state: string;
  members: number | null;
}

export interface Group {
  group: string;
  state: string;
  assignor: string;
  coordinator: string;
  members: { id: string; client: string; host: string; reads: Record<string, number[]> }[];
  places: { topic: string; partition: number; committed: number; end: number | null; lag: number | null }[];
  partitions: number;
  lag: number;
}

export interface NewOffset {
  topic: string;
  partition: number;
  before: number | null;
  after: number;
}

export interface Refused {
  place: string;
  time: number;
  source: string;
  reason: string;
  device: string | null;
  origin: string | null;
  value: Value;
  whole: boolean;
}

export interface RefusedList {
  records: Refused[];
  before: number | null;
}

export interface RefusedBytes {
  record: Refused;
  base64: string | null;
}

export interface Retried {
  place: string;
  to: string | null;
  left_out: string | null;
  refused: string | null;
}
