"""Characters that stand in no name: MQTT clients end their connection when they read one."""

from __future__ import annotations

from typing import Final

#: U+0001..U+001F, U+007F..U+009F and U+0000, as part of a character class of `re`.
CONTROL_CHARACTERS: Final = "\\x00-\\x1f\\x7f-\\x9f"
#: What Unicode says will never be a character (section 23.7), likewise.
NONCHARACTERS: Final = "\\ufdd0-\\ufdef" + "".join(
    f"\\U{plane << 16 | low:08x}" for plane in range(17) for low in (0xFFFE, 0xFFFF)
)
#: What a name of a device cannot have: levels and wildcards of MQTT, and lone surrogates, which is
#: what bytes become that are no UTF-8.
FORBIDDEN_IN_NAMES: Final = rf" /+#\ud800-\udfff{CONTROL_CHARACTERS}{NONCHARACTERS}"
