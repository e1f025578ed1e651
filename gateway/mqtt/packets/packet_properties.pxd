from gateway.mqtt.packets.packet_fields cimport Reader


cdef enum:
    # In place of a packet type: the properties of a will.
    WILL = 0


cdef dict read_properties(Reader* reader, int packet_type)
cdef bytes encode_properties(dict properties)
