"""The properties of a worker, by the names of Kafka Connect's documentation."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from consumers.connect.configuration.definitions import (
    NO_DEFAULT,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
)
from consumers.connect.configuration.exceptions import ConfigException, invalid_value
from consumers.connect.configuration.plugin_properties import with_prefix
from consumers.connect.configuration.validators import one_of, one_of_ignoring_case, optional
from consumers.connect.configuration.variables import (
    DirectoryProvider,
    EnvironmentProvider,
    FileProvider,
    Provider,
    ReadFile,
    Variables,
)
from consumers.connect.tasks.timing import Timing
from consumers.connect.worker.rest_security import (
    CREDENTIALS_FILE,
    EXTENSIONS,
    RestListener,
    RestSecurity,
    parse_listener,
    rest_security,
)
from waylog.config import ConfigError, check_bootstrap_servers

DEFAULT_PORT: Final = 8083
_DEFAULT_LISTENER: Final = f"http://127.0.0.1:{DEFAULT_PORT}"
OFFSET_FILE: Final = "offset.storage.file.filename"
OVERRIDE_POLICIES: Final = ("All", "None", "Principal")


def _listeners(name: str, value: Any) -> None:
    if not value:
        raise ConfigException(
            "Invalid value for listeners, at least one URL is expected, ex: "
            "http://localhost:8080,https://localhost:8443."
        )
    for each in value:
        parse_listener(each)


def _servers(name: str, value: Any) -> None:
    try:
        check_bootstrap_servers(",".join(value or ()))
    except ConfigError as error:
        raise invalid_value(name, value, "HOST:PORT,HOST:PORT... is expected") from error


def worker_key(
    name: str,
    type_: ConfigType,
    documentation: str,
    default: Any = NO_DEFAULT,
    validator: Callable[[str, Any], None] | None = None,
    importance: Importance = Importance.LOW,
) -> ConfigKey:
    """Return the definition of a property of workers."""
    return ConfigKey(
        name=name,
        type=type_,
        default=default,
        validator=validator,
        importance=importance,
        documentation=documentation,
    )


#: Of any worker.
WORKER_CONFIG: Final = ConfigDef(
    [
        worker_key(
            "bootstrap.servers",
            ConfigType.LIST,
            "Brokers of the Kafka cluster.",
            ["localhost:9092"],
            _servers,
            Importance.HIGH,
        ),
        worker_key(
            "key.converter",
            ConfigType.CLASS,
            "The converter of keys, for connectors that name none.",
            importance=Importance.HIGH,
        ),
        worker_key(
            "value.converter",
            ConfigType.CLASS,
            "The converter of values, for connectors that name none.",
            importance=Importance.HIGH,
        ),
        worker_key(
            "header.converter",
            ConfigType.CLASS,
            "The converter of headers, for connectors that name none.",
            "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        ),
        worker_key(
            "listeners",
            ConfigType.LIST,
            "Where the REST interface listens, http://HOST:PORT or https://HOST:PORT.",
            [_DEFAULT_LISTENER],
            _listeners,
        ),
        worker_key(
            "rest.advertised.host.name", ConfigType.STRING, "The host of this worker's id.", None
        ),
        worker_key("rest.advertised.port", ConfigType.INT, "The port of this worker's id.", None),
        worker_key(
            "rest.advertised.listener",
            ConfigType.STRING,
            "Whether other workers reach this one by http or https; without it by the first "
            "listener.",
            None,
            optional(one_of_ignoring_case("http", "https")),
        ),
        worker_key(
            EXTENSIONS,
            ConfigType.LIST,
            "BasicAuthSecurityRestExtension, if users of the REST interface have passwords.",
            [],
        ),
        worker_key(
            CREDENTIALS_FILE,
            ConfigType.STRING,
            "The properties file with the passwords of users.",
            None,
        ),
        worker_key(
            "access.control.allow.origin",
            ConfigType.STRING,
            "The origin of pages that may use the REST interface; * for any.",
            "",
        ),
        worker_key(
            "access.control.allow.methods",
            ConfigType.STRING,
            "The methods that such pages may use.",
            "",
        ),
        worker_key(
            "offset.flush.interval.ms",
            ConfigType.LONG,
            "Milliseconds between two commits of offsets.",
            60_000,
        ),
        worker_key(
            "offset.flush.timeout.ms",
            ConfigType.LONG,
            "The longest commit, in milliseconds.",
            5_000,
        ),
        worker_key(
            "task.shutdown.graceful.timeout.ms",
            ConfigType.LONG,
            "Milliseconds that all tasks together have to stop.",
            5_000,
        ),
        worker_key(
            "config.providers",
            ConfigType.LIST,
            "Names of what replaces variables of configurations.",
            [],
        ),
        worker_key(
            "connector.client.config.override.policy",
            ConfigType.STRING,
            "Which properties of Kafka clients connectors may set.",
            "All",
            one_of(*OVERRIDE_POLICIES),
        ),
        worker_key(
            "topic.creation.enable",
            ConfigType.BOOLEAN,
            "Whether topics are created as source connectors say.",
            True,
        ),
        worker_key(
            "topic.tracking.enable",
            ConfigType.BOOLEAN,
            "Whether the topics of connectors are noted.",
            True,
        ),
        worker_key(
            "topic.tracking.allow.reset",
            ConfigType.BOOLEAN,
            "Whether the noted topics may be forgotten.",
            True,
        ),
        worker_key(
            "erasures.enable",
            ConfigType.BOOLEAN,
            "Whether sinks leave out, and remove, what Waylog's topic erasure says is erased.",
            True,
        ),
        worker_key("plugin.path", ConfigType.LIST, "Ignored: plugins are Python packages.", None),
        worker_key(
            "plugin.discovery",
            ConfigType.STRING,
            "Ignored: plugins are found by entry points.",
            "hybrid_warn",
            one_of_ignoring_case("only_scan", "hybrid_warn", "hybrid_fail", "service_load"),
        ),
    ]
)
STANDALONE_CONFIG: Final = ConfigDef(
    [
        *WORKER_CONFIG.keys.values(),
        worker_key(
            OFFSET_FILE,
            ConfigType.STRING,
            "The file that keeps the offsets of source connectors.",
            importance=Importance.HIGH,
        ),
    ]
)
#: What else a worker's properties may be: those of clients, converters, providers and Java.
_PREFIXES: Final = (
    *("consumer.", "producer.", "admin.", "key.converter.", "value.converter."),
    *("header.converter.", "config.providers.", "ssl.", "sasl.", "security.", "metrics."),
    *("metric.reporters", "listeners.https.", "admin.listeners"),
    *("client.", "reconnect.backoff.", "retry.backoff.", "request.timeout.ms", "retries"),
    *("connections.max.idle.ms", "receive.buffer.bytes", "send.buffer.bytes"),
    *("metadata.max.age.ms", "response.http.headers.config", "auto.include.jmx.reporter"),
    *("internal.key.converter", "internal.value.converter"),
)
_FILE_PROVIDER: Final = "org.apache.kafka.common.config.provider.FileConfigProvider"
_DIRECTORY_PROVIDER: Final = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
_ENVIRONMENT_PROVIDER: Final = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the properties of a worker say."""

    bootstrap_servers: str
    listeners: tuple[RestListener, ...]
    timing: Timing
    stop_timeout_s: float
    #: All properties, with variables replaced: for clients and converters.
    properties: dict[str, str]
    offset_file: Path = Path()  # of a worker on its own
    advertised_host: str | None = None
    advertised_port: int | None = None
    allowed_origin: str = ""
    allowed_methods: str = ""
    creates_topics: bool = True
    tracks_topics: bool = True
    may_reset_topics: bool = True
    override_policy: str = "All"
    honours_erasures: bool = True
    rest_security: RestSecurity = RestSecurity()
    #: Index of the listener by which other workers reach this one.
    advertised_listener: int = 0

    @property
    def converters(self) -> dict[str, str]:
        """The converters of connectors that name none, by the names of the properties."""
        names = ("key.converter", "value.converter", "header.converter")
        default = {"header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter"}
        given = {each: self.properties[each] for each in names if each in self.properties}
        return default | given

    @property
    def advertised(self) -> RestListener:
        """The listener by which other workers reach this one."""
        return self.listeners[self.advertised_listener]


def worker_settings(properties: Mapping[str, str], variables: Variables) -> WorkerSettings:
    """Return what the properties of a worker on its own say; raises ConfigException."""
    resolved = resolved_properties(properties, variables)
    parsed = STANDALONE_CONFIG.parse(resolved)
    name = parsed[OFFSET_FILE]
    if not name:
        raise invalid_value(OFFSET_FILE, name, "String must be non-empty")
    return settings_of(parsed, resolved, Path(name))


def resolved_properties(properties: Mapping[str, str], variables: Variables) -> dict[str, str]:
    """Return properties with variables replaced; raises ConfigException."""
    return {
        name: text
        for name, text in variables.resolve(properties).properties.items()
        if text is not None
    }


def settings_of(
    parsed: Mapping[str, Any], resolved: dict[str, str], offset_file: Path
) -> WorkerSettings:
    """Return what properties say that any worker has; raises ConfigException."""
    listeners = tuple(parse_listener(each) for each in parsed["listeners"])
    return WorkerSettings(
        bootstrap_servers=",".join(parsed["bootstrap.servers"]),
        listeners=listeners,
        rest_security=rest_security(resolved, listeners),
        advertised_listener=_advertised(parsed["rest.advertised.listener"], listeners),
        offset_file=offset_file,
        timing=Timing(
            flush_interval_s=parsed["offset.flush.interval.ms"] / 1000,
            flush_timeout_s=parsed["offset.flush.timeout.ms"] / 1000,
        ),
        stop_timeout_s=parsed["task.shutdown.graceful.timeout.ms"] / 1000,
        properties=resolved,
        advertised_host=parsed["rest.advertised.host.name"],
        advertised_port=parsed["rest.advertised.port"],
        allowed_origin=parsed["access.control.allow.origin"] or "",
        allowed_methods=parsed["access.control.allow.methods"] or "",
        creates_topics=parsed["topic.creation.enable"],
        tracks_topics=parsed["topic.tracking.enable"],
        may_reset_topics=parsed["topic.tracking.allow.reset"],
        override_policy=parsed["connector.client.config.override.policy"],
        honours_erasures=parsed["erasures.enable"],
    )


def _advertised(scheme: str | None, listeners: Sequence[RestListener]) -> int:
    """Return which listener other workers use; raises ConfigException."""
    if scheme is None:
        return 0
    for index, each in enumerate(listeners):
        if each.scheme == scheme.lower():
            return index
    raise invalid_value("rest.advertised.listener", scheme, "there is no such listener")


def unknown_properties(
    properties: Mapping[str, str], config: ConfigDef = STANDALONE_CONFIG
) -> list[str]:
    """Return a sentence about each property that nothing reads."""
    known = config.keys
    sentences = []
    for name in properties:
        if name in known or name.startswith(_PREFIXES):
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        meant = f"; did you mean {near[0]}?" if near else ""
        sentences.append(f"property {name} is unknown and is ignored{meant}")
    return sentences


def make_variables(
    properties: Mapping[str, str], read: ReadFile, environment: Mapping[str, str]
) -> Variables:
    """Return what replaces variables, as `config.providers` says (KIP-297, KIP-993).

    Raises ConfigException for providers that are not those which Kafka ships.
    """
    parsed = WORKER_CONFIG.keys["config.providers"]
    names = ConfigDef([parsed]).parse(properties)[parsed.name]
    providers: dict[str, Provider] = {}
    for name in names:
        prefix = f"config.providers.{name}."
        own = with_prefix(properties, prefix)
        class_name = own.get("class", "")
        parameters = with_prefix(own, "param.")
        allowed = parameters.get("allowed.paths")
        simple = class_name.rpartition(".")[2]
        if simple in (_FILE_PROVIDER.rpartition(".")[2], "File"):
            providers[name] = FileProvider(read, _path_check(allowed))
        elif simple in (_DIRECTORY_PROVIDER.rpartition(".")[2], "Directory"):
            providers[name] = DirectoryProvider(read, _path_check(allowed))
        elif simple in (_ENVIRONMENT_PROVIDER.rpartition(".")[2], "EnvVar"):
            pattern = parameters.get("allowlist.pattern", ".*")
            providers[name] = EnvironmentProvider(environment, pattern)
        else:
            raise invalid_value(
                f"{prefix}class",
                class_name or None,
                "one of FileConfigProvider, DirectoryConfigProvider, EnvVarConfigProvider is "
                "expected",
            )
    return Variables(providers)


def _path_check(allowed: str | None) -> Callable[[str], bool]:
    """Return whether paths are below those that are allowed; any is if none is named."""
    if not allowed:
        return lambda _path: True
    roots = [Path(each.strip()).resolve() for each in re.split(r"\s*,\s*", allowed) if each.strip()]
    return lambda path: any(Path(path).resolve().is_relative_to(root) for root in roots)
