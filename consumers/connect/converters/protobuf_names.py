"""Names by which Confluent's ProtobufConverter marks what one side has no word for."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

NAMESPACE: Final = "io.confluent.connect.protobuf"
#: Parameters of Connect's schemas: the name of an enum, its values' numbers, a field's number, a
#: type of numbers that Connect does not have, a wrapper within a oneof.
ENUM: Final = f"{NAMESPACE}.Enum"
TAG: Final = f"{NAMESPACE}.Tag"
TYPE: Final = f"{NAMESPACE}.Type"
WRAPPER: Final = f"{NAMESPACE}.Wrapper"
#: The name of a struct that stands for a oneof.
UNION: Final = f"{NAMESPACE}.Union"
#: Of structs and maps without a name, with a number behind it.
DEFAULT: Final = "ConnectDefault"
ENTRY: Final = "Entry"
#: What an option of fields (confluent/meta.proto) tells of small integers and decimals.
CONNECT_TYPE: Final = "connect.type"
SCALE: Final = "scale"
PRECISION: Final = "precision"
#: A decimal's digits, in a parameter of its schema.
CONNECT_PRECISION: Final = "connect.decimal.precision"

#: Messages that stand for logical types, with the files that have them.
DECIMAL: Final = "confluent.type.Decimal"
DATE: Final = "google.type.Date"
TIME: Final = "google.type.TimeOfDay"
TIMESTAMP: Final = "google.protobuf.Timestamp"
FILES: Final = {
    DECIMAL: "confluent/type/decimal.proto",
    DATE: "google/type/date.proto",
    TIME: "google/type/timeofday.proto",
    TIMESTAMP: "google/protobuf/timestamp.proto",
}
META_FILE: Final = "confluent/meta.proto"
WRAPPERS_FILE: Final = "google/protobuf/wrappers.proto"


class ProtobufOptions(NamedTuple):
    """What the converter's properties say about schemas."""

    #: Names of structs and enums have their packages.
    full_names: bool = False
    #: What cannot be a name is made one.
    scrub_names: bool = False
    int_for_enums: bool = False
    #: Fields that may be null have the label `optional`.
    optional_for_nullables: bool = False
    #: Fields of proto2 that are not set are null.
    optional_for_proto2: bool = True
    #: Numbers and texts that may be null are messages (google/protobuf/wrappers.proto).
    wrapper_for_nullables: bool = False
    #: Such a message as a whole record is a number or text.
    wrapper_for_raw_primitives: bool = True
    #: Names of oneofs have a number behind them.
    index_for_unions: bool = True
    #: Fields of a oneof are fields of the struct around it.
    flatten_unions: bool = False
    #: Null is written as such, not as the default of its schema.
    ignore_default: bool = False

    @classmethod
    def of(cls, settings: Any) -> ProtobufOptions:
        """Return the options of a converter's settings."""
        return cls(*(settings[name] for name in PROPERTIES))


#: The properties, in the order of ProtobufOptions, with what they say.
PROPERTIES: Final = {
    "enhanced.protobuf.schema.support": "Whether names of schemas have their packages.",
    "scrub.invalid.names": "Whether what cannot be a name is made one, or else refused.",
    "int.for.enums": "Whether values of enums are integers, or else texts.",
    "optional.for.nullables": "Whether fields that may be null have the label optional.",
    "optional.for.proto2": "Whether fields of proto2 that are not set are null.",
    "wrapper.for.nullables": "Whether numbers and texts that may be null are wrapper messages.",
    "wrapper.for.raw.primitives": "Whether a record that is a wrapper message is its value.",
    "generate.index.for.unions": "Whether names of oneofs have a number behind them.",
    "flatten.unions": "Whether the fields of a oneof are fields of the struct around it.",
    "ignore.default.for.nullables": "Whether null is written although its schema has a default.",
}
