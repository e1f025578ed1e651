"""Reads the text of a .proto file, syntax proto2 and proto3, into its descriptor.

Names of types stay as they are written: protobuf's own pool resolves them, and checks what the
grammar does not (waylog/serialization/protobuf_schema.py).
https://protobuf.dev/reference/protobuf/proto3-spec/
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    OneofDescriptorProto,
    ServiceDescriptorProto,
    UninterpretedOption,
)
from google.protobuf.message import Message

from waylog.malformed import MALFORMED
from waylog.serialization.protobuf_tokens import Token, integer, tokens_of, unquoted
from waylog.serialization.serializer import SerializationError

#: Messages within messages, and levels of options.
NESTING_MAX: Final = 32
_FIELD_MAX: Final = (1 << 29) - 1
_ENUM_MAX: Final = (1 << 31) - 1

SCALARS: Final = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
        *("bytes", "uint32", "sfixed32", "sfixed64", "sint32", "sint64"),
    )
}
_LABELS: Final = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}


def parse_proto(source: str, name: str) -> FileDescriptorProto:
    """Return the descriptor of a file; raises SerializationError, with the line of a mistake."""
    try:
        return _Parser(tokens_of(source)).file(name)
    except SerializationError:
        raise
    except (*MALFORMED, TypeError) as error:  # a number or name that a descriptor cannot have
        raise SerializationError(f"no schema of Protobuf: {str(error)[:200]}") from error


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens: Final = tokens
        self._position = 0
        self._is_proto3 = False

    # ---- tokens ----

    @property
    def _token(self) -> Token:
        return self._tokens[self._position]

    def _ahead(self, count: int) -> Token:
        """Return a later token, the last one beyond the end."""
        return self._tokens[min(self._position + count, len(self._tokens) - 1)]

    def _next(self) -> Token:
        token = self._token
        if token.kind != "end":
            self._position += 1
        return token

    def _error(self, expected: str, token: Token | None = None) -> SerializationError:
        found = token or self._token
        return SerializationError(
            f"line {found.line}: {expected} is expected, not {found.text[:40]!r}"
            if found.kind != "end"
            else f"line {found.line}: the text ends where {expected} is expected"
        )

    def _is(self, *texts: str) -> bool:
        return self._token.text in texts and self._token.kind != "text"

    def _take(self, text: str) -> bool:
        if self._is(text):
            self._position += 1
            return True
        return False

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise self._error(repr(text))

    def _name(self) -> str:
        if self._token.kind != "name":
            raise self._error("a name")
        return self._next().text

    def _full_name(self) -> str:
        """Return a name with dots, which may begin with one."""
        parts = ["" if self._take(".") else self._name()]
        if parts == [""]:
            parts.append(self._name())
        while self._take("."):
            parts.append(self._name())
        return ".".join(parts)

    def _text(self) -> bytes:
        if self._token.kind != "text":
            raise self._error("a text in quotation marks")
        parts = []
        while self._token.kind == "text":
            parts.append(unquoted(self._next()))
        return b"".join(parts)

    def _integer(self, most: int) -> int:
        sign = -1 if self._take("-") else 1
        token = self._next()
        try:
            number = sign * integer(token.text) if token.kind == "number" else None
        except ValueError:
            number = None
        if number is None or not -most - 1 <= number <= most:
            raise self._error("a whole number within bounds", token)
        return number

    # ---- files ----

    def file(self, name: str) -> FileDescriptorProto:
        file = FileDescriptorProto(name=name)
        if self._take("syntax"):
            self._need("=")
            syntax = self._text()
            if syntax not in (b"proto2", b"proto3"):
                raise SerializationError(f"syntax {syntax[:40]!r}: proto2 or proto3 is expected")
            self._is_proto3 = syntax == b"proto3"
            if self._is_proto3:
                file.syntax = "proto3"
            self._need(";")
        while self._token.kind != "end":
            self._statement(file)
        return file

    def _statement(self, file: FileDescriptorProto) -> None:
        if self._take(";"):
            return
        word = self._name()
        if word == "import":
            kind = self._name() if self._is("public", "weak") else None
            if kind == "public":
                file.public_dependency.append(len(file.dependency))
            elif kind == "weak":
                file.weak_dependency.append(len(file.dependency))
            file.dependency.append(self._text().decode())
            self._need(";")
        elif word == "package":
            file.package = self._full_name()
            self._need(";")
        elif word == "option":
            self._option(file.options)
            self._need(";")
        elif word == "message":
            self._message(file.message_type.add(), 1)
        elif word == "enum":
            self._enum(file.enum_type.add())
        elif word == "service":
            self._service(file.service.add())
        elif word == "extend":
            self._extend(file.extension, file.message_type, 1)
        else:
            raise self._error("message, enum, service, import, package, option or extend",
                              self._tokens[self._position - 1])  # fmt: skip

    # ---- messages ----

    def _message(self, message: DescriptorProto, level: int, *, named: bool = True) -> None:
        if level > NESTING_MAX:
            raise SerializationError(f"messages are nested more than {NESTING_MAX} levels deep")
        if named:
            message.name = self._name()
        self._need("{")
        optional: list[FieldDescriptorProto] = []
        while not self._take("}"):
            self._member(message, optional, level)
        for field in optional:
            # What distinguishes an absent field from one with its default, as protoc writes it.
            names = {each.name for each in message.oneof_decl}
            own = f"_{field.name}"
            while own in names:
                own = f"X{own}"
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=own)

    def _member(
        self, message: DescriptorProto, optional: list[FieldDescriptorProto], level: int
    ) -> None:
        if self._take(";"):
            return
        is_word = self._ahead(1).kind == "name"
        if self._is("message") and is_word and self._starts_block():
            self._next()
            self._message(message.nested_type.add(), level + 1)
        elif self._is("enum") and is_word and self._starts_block():
            self._next()
            self._enum(message.enum_type.add())
        elif self._is("oneof") and is_word and self._starts_block():
            self._next()
            self._oneof(message, level)
        elif self._is("extend") and not self._is_field_of("extend"):
            self._next()
            self._extend(message.extension, message.nested_type, level + 1)
        elif self._is("option") and not self._is_field_of("option"):
            self._next()
            self._option(message.options)
            self._need(";")
        elif self._is("extensions") and self._ahead(1).kind == "number":
            self._next()
            self._extensions(message)
        elif self._is("reserved") and self._ahead(1).kind in ("number", "text"):
            self._next()
            self._reserved(message)
        else:
            field = message.field.add()
            label = self._label()
            self._field(field, message.nested_type, level, label)
            if label == "optional" and self._is_proto3:
                field.proto3_optional = True
                optional.append(field)

    def _starts_block(self) -> bool:
        return self._ahead(2).text == "{"

    def _is_field_of(self, word: str) -> bool:
        """Tell whether a keyword is the type of a field here: `option name = 1;`."""
        return word == "extend" and self._ahead(1).kind == "name" and self._ahead(2).text == "="

    def _label(self) -> str | None:
        if self._is(*_LABELS) and self._ahead(1).kind in ("name", "sign"):
            following = self._ahead(1).text
            if following not in ("=", "{"):
                return self._next().text
        return None

    def _field(
        self, field: FieldDescriptorProto, nested: Any, level: int, label: str | None
    ) -> None:
        field.label = _LABELS[label or "optional"]
        if self._is("map") and self._ahead(1).text == "<":
            self._map(field, nested)
        elif self._is("group") and self._ahead(2).text == "=":
            self._group(field, nested, level)
            return
        else:
            self._type(field)
            field.name = self._name()
        self._need("=")
        field.number = self._integer(_FIELD_MAX)
        self._field_options(field)
        self._need(";")

    def _type(self, field: FieldDescriptorProto) -> None:
        name = self._full_name()
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            field.type_name = name

    def _map(self, field: FieldDescriptorProto, nested: Any) -> None:
        self._next()
        self._need("<")
        entry = DescriptorProto()
        entry.options.map_entry = True
        key = entry.field.add(name="key", number=1, label=FieldDescriptorProto.LABEL_OPTIONAL)
        self._type(key)
        self._need(",")
        value = entry.field.add(name="value", number=2, label=FieldDescriptorProto.LABEL_OPTIONAL)
        self._type(value)
        self._need(">")
        field.name = self._name()
        words = (part[:1].upper() + part[1:] for part in field.name.split("_"))
        entry.name = f"{''.join(words)}Entry"
        field.label = FieldDescriptorProto.LABEL_REPEATED
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = entry.name
        nested.add().CopyFrom(entry)

    def _group(self, field: FieldDescriptorProto, nested: Any, level: int) -> None:
        self._next()
        name = self._name()
        field.name, field.type_name = name.lower(), name
        field.type = FieldDescriptorProto.TYPE_GROUP
        self._need("=")
        field.number = self._integer(_FIELD_MAX)
        self._field_options(field)
        group = nested.add(name=name)
        self._message(group, level + 1, named=False)

    def _oneof(self, message: DescriptorProto, level: int) -> None:
        oneof: OneofDescriptorProto = message.oneof_decl.add(name=self._name())
        index = len(message.oneof_decl) - 1
        self._need("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            if self._is("option") and self._ahead(2).text != "=":
                self._next()
                self._option(oneof.options)
                self._need(";")
                continue
            field = message.field.add(oneof_index=index)
            self._field(field, message.nested_type, level, None)

    def _extend(self, fields: Any, nested: Any, level: int) -> None:
        extendee = self._full_name()
        self._need("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            field = fields.add(extendee=extendee)
            label = self._label()
            self._field(field, nested, level, label)
            if label == "optional" and self._is_proto3:
                field.proto3_optional = True

    def _ranges(self, most: int) -> list[tuple[int, int]]:
        """Return pairs of first and last number."""
        found = []
        while True:
            first = last = self._integer(most)
            if self._take("to"):
                last = most if self._take("max") else self._integer(most)
            found.append((first, last))
            if not self._take(","):
                return found

    def _extensions(self, message: DescriptorProto) -> None:
        for first, last in self._ranges(_FIELD_MAX):
            message.extension_range.add(start=first, end=last + 1)
        if self._take("["):
            options = descriptor_pb2.ExtensionRangeOptions()
            self._options(options)
            for each in message.extension_range:
                each.options.CopyFrom(options)
        self._need(";")

    def _reserved(self, of: DescriptorProto | EnumDescriptorProto) -> None:
        if self._token.kind == "text":
            of.reserved_name.append(self._text().decode())
            while self._take(","):
                of.reserved_name.append(self._text().decode())
        else:
            is_enum = isinstance(of, EnumDescriptorProto)
            for first, last in self._ranges(_ENUM_MAX if is_enum else _FIELD_MAX):
                # The end of a message's range is exclusive, that of an enum's is not.
                of.reserved_range.add(start=first, end=last if is_enum else last + 1)
        self._need(";")

    # ---- enums and services ----

    def _enum(self, enum: EnumDescriptorProto) -> None:
        enum.name = self._name()
        self._need("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            following = self._ahead(1)
            if self._is("option") and following.text != "=":
                self._next()
                self._option(enum.options)
                self._need(";")
            elif self._is("reserved") and following.text != "=":
                self._next()
                self._reserved(enum)
            else:
                value = enum.value.add(name=self._name())
                self._need("=")
                value.number = self._integer(_ENUM_MAX)
                if self._take("["):
                    self._options(value.options)
                self._need(";")

    def _service(self, service: ServiceDescriptorProto) -> None:
        service.name = self._name()
        self._need("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            word = self._name()
            if word == "option":
                self._option(service.options)
                self._need(";")
                continue
            if word != "rpc":
                raise self._error("rpc or option", self._tokens[self._position - 1])
            method = service.method.add(name=self._name())
            method.client_streaming, method.input_type = self._message_of_call()
            self._need("returns")
            method.server_streaming, method.output_type = self._message_of_call()
            if self._take("{"):
                while not self._take("}"):
                    if not self._take(";"):
                        self._need("option")
                        self._option(method.options)
                        self._need(";")
            else:
                self._need(";")

    def _message_of_call(self) -> tuple[bool, str]:
        self._need("(")
        streaming = self._is("stream") and self._ahead(1).text != ")"
        if streaming:
            self._next()
        name = self._full_name()
        self._need(")")
        return streaming, name

    # ---- options ----

    def _field_options(self, field: FieldDescriptorProto) -> None:
        if not self._take("["):
            return
        while True:
            if self._is("default") and self._ahead(1).text == "=":
                self._next()
                self._need("=")
                field.default_value = self._default(field)
            elif self._is("json_name") and self._ahead(1).text == "=":
                self._next()
                self._need("=")
                field.json_name = self._text().decode()
            else:
                self._option(field.options)
            if not self._take(","):
                break
        self._need("]")

    def _default(self, field: FieldDescriptorProto) -> str:
        if self._token.kind == "text":
            text = self._text()
            if field.type == FieldDescriptorProto.TYPE_BYTES:
                return "".join(
                    chr(each) if 32 <= each < 127 and each not in b"\\\"'" else f"\\{each:03o}"
                    for each in text
                )
            return text.decode()
        sign = "-" if self._take("-") else ""
        token = self._next()
        if token.kind == "name":
            return sign + token.text
        if token.kind != "number":
            raise self._error("a value", token)
        if field.type in (FieldDescriptorProto.TYPE_DOUBLE, FieldDescriptorProto.TYPE_FLOAT):
            number = token.text if token.text[:2].lower() == "0x" else token.text.rstrip("fF")
            value = float(integer(number) if number[:2].lower() == "0x" else float(number))
            return sign + (str(int(value)) if value.is_integer() and value < 1e15 else repr(value))
        return sign + str(integer(token.text))

    def _options(self, options: Message) -> None:
        """Read what follows a bracket."""
        while True:
            self._option(options)
            if not self._take(","):
                break
        self._need("]")

    def _option(self, options: Any) -> None:
        """Set a standard option; one of somebody else is kept as protoc's parser keeps it."""
        name: list[tuple[str, bool]] = []
        while True:
            if self._take("("):
                name.append((self._full_name(), True))
                self._need(")")
            else:
                name.append((self._name(), False))
            if not self._take("."):
                break
        self._need("=")
        field = options.DESCRIPTOR.fields_by_name.get(name[0][0])
        own = UninterpretedOption()
        for part, is_extension in name:
            own.name.add(name_part=part, is_extension=is_extension)
        kind = self._value(own)
        is_standard = len(name) == 1 and not name[0][1] and field is not None
        if not is_standard or field.is_repeated or field.message_type is not None:
            options.uninterpreted_option.append(own)
            return
        setattr(options, field.name, _standard_value(field, own, kind))

    def _value(self, own: UninterpretedOption) -> str:
        """Read the value of an option; return the member that holds it."""
        if self._token.kind == "text":
            own.string_value = self._text()
            return "string_value"
        if self._is("{"):
            own.aggregate_value = self._aggregate()
            return "aggregate_value"
        is_negative = self._take("-")
        if not is_negative:
            self._take("+")
        token = self._next()
        if token.kind == "name":
            if is_negative:
                own.double_value = -float(token.text)
                return "double_value"
            own.identifier_value = token.text
            return "identifier_value"
        if token.kind != "number":
            raise self._error("a value", token)
        try:
            number = integer(token.text)
        except ValueError:
            own.double_value = float(token.text.rstrip("fF")) * (-1 if is_negative else 1)
            return "double_value"
        if is_negative:
            own.negative_int_value = -number
            return "negative_int_value"
        own.positive_int_value = number
        return "positive_int_value"

    def _aggregate(self) -> str:
        self._need("{")
        parts: list[str] = []
        depth = 1
        while True:
            token = self._next()
            if token.kind == "end":
                raise self._error("'}'", token)
            depth += (token.text == "{") - (token.text == "}") if token.kind == "sign" else 0
            if depth > NESTING_MAX:
                raise SerializationError(f"an option has more than {NESTING_MAX} levels")
            if not depth:
                return " ".join(parts)
            parts.append(token.text)


def _standard_value(field: Any, own: UninterpretedOption, kind: str) -> Any:
    """Return what an option of descriptor.proto is set to; raises SerializationError."""
    value = getattr(own, kind)
    if field.enum_type is not None and kind == "identifier_value":
        known = field.enum_type.values_by_name.get(value)
        if known is not None:
            return known.number
    elif field.type == field.TYPE_BOOL and value in ("true", "false"):
        return value == "true"
    elif field.type == field.TYPE_STRING and kind == "string_value":
        return value.decode()
    raise SerializationError(f"option {field.name} has no value {str(value)[:40]!r}")
