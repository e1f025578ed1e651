cpdef bytes encode_puback(int packet_id)
cpdef bytes encode_publish(
    int version, str topic, bytes payload, int qos, bint retain, bint dup, int packet_id,
    dict properties=*,
)
