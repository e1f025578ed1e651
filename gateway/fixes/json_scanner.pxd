from libc.string cimport memchr, memcmp


cdef struct Text:
    const char* start  # NULL: not there
    Py_ssize_t size


cdef struct Value:
    Text text        # of a string without its quotes
    double number    # of a number
    char kind        # '"', '0' number, 't', 'f', 'n', '[' a list of strings and numbers
    bint whole       # a number without fraction


cdef inline const char* skip_space(const char* position) noexcept:
    # The zero byte after the text ends the loop.
    while (
        position[0] == b" " or position[0] == b"\n" or position[0] == b"\r"
        or position[0] == b"\t"
    ):
        position += 1
    return position


cdef inline bint is_named(const Text* text, const char* name, Py_ssize_t size) noexcept:
    return text.size == size and memcmp(text.start, name, size) == 0


cdef inline bint is_same(const Text* text, const Text* other) noexcept:
    return is_named(text, other.start, other.size)


cdef inline bint has_space(const Text* text) noexcept:
    return memchr(text.start, b" ", text.size) != NULL


cdef const char* object_start(const char* position) noexcept


cdef const char* read_member(const char* position, Text* name, Value* value) except? NULL


cdef bint at_end(bytes payload, const char* position) noexcept


cdef bint is_alphanumeric(const Text* text) noexcept


cdef bint stands_here(const char* position, const char* word, int size) noexcept
