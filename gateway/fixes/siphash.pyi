from typing import Final

KEY_BYTES: Final = 16

def hash_of(key: bytes, text: bytes, word_rounds: int = 1, last_rounds: int = 3) -> int:
    """The hash as an unsigned integer of 64 bits. Raises ValueError for a key of another length."""
