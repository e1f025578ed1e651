import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import org.apache.kafka.streams.processor.api.Record;

/** Records of topic event. */
final class Events {
    static final String TOPIC = "event";

    private Events() {}

    /** Returns an event; `about` tells it from others of the same fix. */
    static Record<String, byte[]> event(
            Fix fix, String type, String transition, long time, String about,
            ObjectNode attributes, long timestamp) {
        String name = String.join("\0", fix.device, type, transition, about, fix.id);
        UUID id = UUID.nameUUIDFromBytes(name.getBytes(StandardCharsets.UTF_8));
        ObjectNode event = Json.MAPPER.createObjectNode();
        event.put("id", id.toString());
        event.put("device", fix.device);
        event.put("user", Fix.userOf(fix.device));
        event.put("type", type);
        event.put("time", time);
        event.put("received", fix.received);
        event.put("source", "java");
        event.set("attributes", attributes.put("transition", transition).put("fix_id", fix.id));
        return new Record<>(fix.device, Json.bytes(event), timestamp);
    }
}
