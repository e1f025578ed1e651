import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Hands each fix that is newer than those before to `observe`, with its device's state.
 *
 * <p>Erased devices are not forgotten, and records that are no fixes are skipped: ours are kept in
 * topic error.
 */
abstract class Fixes<S extends Fixes.State> implements Processor<String, byte[], String, byte[]> {
    static final String LOCATION = "location";
    static final String STORE = "states";

    /** What is remembered of a device. */
    static class State {
        public long time;
    }

    ProcessorContext<String, byte[]> context;
    KeyValueStore<String, S> states;
    /** The newest time of the partition. */
    long streamTime;

    @Override
    public void init(ProcessorContext<String, byte[]> context) {
        this.context = context;
        this.states = context.getStateStore(STORE);
    }

    @Override
    public void process(Record<String, byte[]> record) {
        Fix fix = Json.read(record.value(), Fix.class);
        if (fix == null || fix.device == null) {
            return;
        }
        long time = fix.eventTime();
        S state = states.get(fix.device);
        if (state != null && time <= state.time) {
            return;
        }
        S found = observe(fix, time, state, record);
        if (found != null) {
            found.time = time;
            states.put(fix.device, found);
        } else if (state != null) {
            states.delete(fix.device);
        }
        streamTime = Math.max(streamTime, time);
    }

    /** Returns what to remember; `state` is null for a device that is new. */
    abstract S observe(Fix fix, long time, S state, Record<String, byte[]> record);

    void tell(
            Fix fix, String type, String transition, long time, String about,
            ObjectNode attributes, long timestamp) {
        context.forward(
                Events.event(fix, type, transition, time, about, attributes, timestamp),
                Events.TOPIC);
    }
}
