"""SipHash for Python; Cython code that needs speed imports it from the .pxd."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

KEY_BYTES = 16


def hash_of(bytes key, bytes text, int word_rounds=1, int last_rounds=3):
    """Return the hash as an unsigned 64-bit integer; raises ValueError for a wrong key length."""
    if PyBytes_GET_SIZE(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes")
    cdef SipKey words = sip_key(PyBytes_AS_STRING(key))
    return siphash(
        &words, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), word_rounds, last_rounds
    )
