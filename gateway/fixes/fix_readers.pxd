from gateway.fixes.fix_record cimport FixFields


cdef const char* read_position(const char* start, FixFields* fields) except? NULL


cdef const char* read_location(const char* start, FixFields* fields) except? NULL
