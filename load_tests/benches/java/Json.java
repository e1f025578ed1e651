import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** JSON in bytes, by Jackson. */
final class Json {
    static final ObjectMapper MAPPER =
            new ObjectMapper().configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);

    private Json() {}

    static byte[] bytes(Object value) {
        try {
            return MAPPER.writeValueAsBytes(value);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Returns null for bytes that are no such value. */
    static <T> T read(byte[] value, Class<T> type) {
        try {
            return MAPPER.readValue(value, type);
        } catch (IOException error) {
            return null;
        }
    }

    static <T> Serde<T> serde(Class<T> type) {
        return Serdes.serdeFrom(
                (topic, value) -> value == null ? null : bytes(value),
                (topic, value) -> value == null ? null : read(value, type));
    }
}
