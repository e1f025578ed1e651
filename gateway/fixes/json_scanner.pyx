"""A scanner of plain JSON: ASCII, no escapes, no exponents, nothing nested except short lists.

All functions take text that ends with a zero byte, which does not occur in JSON, and return NULL
for what they do not parse: a complete parser decides about that.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, object overflow) except? -1

# 10^0 to 10^22 are exact, and so is an integer of 15 digits: their quotient is the nearest double.
cdef double[23] POWERS_OF_TEN = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
]


cdef const char* object_start(const char* position) noexcept:
    """Return the position of the first member's name, or of the closing brace."""
    position = skip_space(position)
    if position[0] != b"{":
        return NULL
    return skip_space(position + 1)


cdef bint at_end(bytes payload, const char* position) noexcept:
    """Return whether only white space follows."""
    return skip_space(position) == PyBytes_AS_STRING(payload) + PyBytes_GET_SIZE(payload)


cdef inline bint is_digit(char character) noexcept:
    return 48 <= character <= 57


cdef bint is_alphanumeric(const Text* text) noexcept:
    cdef Py_ssize_t index
    cdef char each
    for index in range(text.size):
        each = text.start[index]
        if not (is_digit(each) or 65 <= each <= 90 or 97 <= each <= 122):
            return False
    return True


cdef const char* read_string(const char* position, Text* text) noexcept:
    """Parse a string of visible ASCII without quotes and backslashes; spaces only inside."""
    if position[0] != b'"':
        return NULL
    position += 1
    text.start = position
    while 32 <= position[0] < 127 and position[0] != b'"' and position[0] != b"\\":
        position += 1
    if position[0] != b'"':
        return NULL
    text.size = position - text.start
    if text.size and (text.start[0] == b" " or position[-1] == b" "):
        return NULL
    return position + 1


cdef const char* read_number(const char* position, Value* value) except? NULL:
    """Parse a number of at most 17 digits."""
    cdef uint64_t digits = 0
    cdef int count = 0, decimals = 0
    cdef bint negative = position[0] == b"-"
    value.text.start = position
    if negative:
        position += 1
    if position[0] == b"0" and is_digit(position[1]):
        return NULL
    while is_digit(position[0]):
        digits = 10 * digits + (position[0] - 48)
        count += 1
        position += 1
        if count > 17:
            return NULL
    if not count:
        return NULL
    value.whole = position[0] != b"."
    if value.whole:
        if negative and not digits:
            return NULL  # -0: as an integer it has no sign, as a float it has one
    else:
        position += 1
        while is_digit(position[0]):
            digits = 10 * digits + (position[0] - 48)
            decimals += 1
            position += 1
            if count + decimals > 17:
                return NULL
        if not decimals:
            return NULL
    if position[0] == b"e" or position[0] == b"E":
        return NULL
    value.text.size = position - value.text.start
    if count + decimals <= 15:
        value.number = <double> digits / POWERS_OF_TEN[decimals]
        if negative:
            value.number = -value.number
    else:
        value.number = PyOS_string_to_double(value.text.start, &end_of_number, None)
    value.kind = b"0"
    return position


cdef char* end_of_number  # output of PyOS_string_to_double; not used, as the end is known


cdef const char* read_list(const char* position, Value* value) except? NULL:
    """Parse a list of strings and numbers."""
    cdef Value item
    value.text.start = position
    position = skip_space(position + 1)
    if position[0] == b"]":
        position += 1
    else:
        while True:
            if position[0] == b'"':
                position = read_string(position, &item.text)
            else:
                position = read_number(position, &item)
            if position is NULL:
                return NULL
            position = skip_space(position)
            if position[0] == b"]":
                position += 1
                break
            if position[0] != b",":
                return NULL
            position = skip_space(position + 1)
    value.text.size = position - value.text.start
    value.kind = b"["
    return position


cdef const char* read_member(const char* position, Text* name, Value* value) except? NULL:
    """Parse a member and the comma after it; return the next member's name or the closing brace."""
    position = read_string(position, name)
    if position is NULL:
        return NULL
    position = skip_space(position)
    if position[0] != b":":
        return NULL
    position = skip_space(position + 1)
    value.kind = position[0]
    value.number = 0
    value.whole = False
    if position[0] == b'"':
        position = read_string(position, &value.text)
    elif position[0] == b"-" or is_digit(position[0]):
        position = read_number(position, value)
    elif position[0] == b"[":
        position = read_list(position, value)
    else:
        value.text.start = position
        if stands_here(position, b"true", 4):
            position += 4
        elif stands_here(position, b"null", 4):
            position += 4
        elif stands_here(position, b"false", 5):
            position += 5
        else:
            return NULL
        value.text.size = position - value.text.start
    if position is NULL:
        return NULL
    position = skip_space(position)
    if position[0] == b"}":
        return position
    if position[0] != b",":
        return NULL
    position = skip_space(position + 1)
    return position if position[0] == b'"' else NULL


cdef bint stands_here(const char* position, const char* word, int size) noexcept:
    """Return whether a word is here; stops at the first difference, before the end of the text."""
    cdef int index
    for index in range(size):
        if position[index] != word[index]:
            return False
    return True
