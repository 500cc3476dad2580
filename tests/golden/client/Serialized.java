import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;

/** Prints what Kafka's own serializers make: cases of (serializer, encoding or "", value as text, bytes in hex). */
public class Serialized {
    private static final ArrayNode CASES = new ObjectMapper().createArrayNode();

    private static <T> void add(Serializer<T> serializer, String encoding, String text, T value) {
        if (!encoding.isEmpty()) {
            serializer.configure(Map.of("serializer.encoding", encoding), false);
        }
        byte[] data = serializer.serialize("t", value);
        CASES.addArray().add(serializer.getClass().getSimpleName()).add(encoding).add(text)
            .add(data == null ? null : HexFormat.of().formatHex(data));
    }

    private static <T> void list(Serializer<T> inner, List<T> values) {
        byte[] data = new ListSerializer<>(inner).serialize("t", values);
        CASES.addArray().add("ListSerializer").add(inner.getClass().getSimpleName())
            .add(String.join(",", values.stream().map(v -> v == null ? "null" : v.toString()).toList()))
            .add(HexFormat.of().formatHex(data));
    }

    public static void main(String[] arguments) throws Exception {
        for (String text : List.of("", "abc", "Gr\u00fc\u00dfe", "\u65e5\u672c\u8a9e", "\ud83d\ude00 a")) {
            for (String encoding : List.of("", "UTF-8", "UTF-16", "UTF-16LE", "UTF-16BE", "UTF-32", "UTF-32LE")) {
                add(new StringSerializer(), encoding, text, text);
            }
        }
        for (String encoding : List.of("ISO-8859-1", "ISO8859_1", "windows-1252", "Cp1252")) {
            add(new StringSerializer(), encoding, "Gr\u00fc\u00dfe", "Gr\u00fc\u00dfe");
        }
        add(new StringSerializer(), "Shift_JIS", "\u65e5\u672c\u8a9e", "\u65e5\u672c\u8a9e");
        add(new StringSerializer(), "US-ASCII", "abc", "abc");
        for (short value : new short[] {0, 1, -1, Short.MIN_VALUE, Short.MAX_VALUE}) {
            add(new ShortSerializer(), "", "" + value, value);
        }
        for (int value : new int[] {0, 1, -1, 65536, Integer.MIN_VALUE, Integer.MAX_VALUE}) {
            add(new IntegerSerializer(), "", "" + value, value);
        }
        for (long value : new long[] {0, 1, -1, 1L << 40, Long.MIN_VALUE, Long.MAX_VALUE}) {
            add(new LongSerializer(), "", "" + value, value);
        }
        for (float value : new float[] {0f, -0f, 1.5f, 0.1f, Float.MAX_VALUE, Float.MIN_VALUE}) {
            add(new FloatSerializer(), "", "" + value, value);
        }
        for (double value : new double[] {0, 1.5, -0.1, Double.MAX_VALUE, Double.MIN_VALUE}) {
            add(new DoubleSerializer(), "", "" + value, value);
        }
        add(new DoubleSerializer(), "", "inf", Double.POSITIVE_INFINITY);
        add(new DoubleSerializer(), "", "nan", Double.NaN);
        add(new BooleanSerializer(), "", "true", true);
        add(new BooleanSerializer(), "", "false", false);
        UUID uuid = UUID.fromString("123e4567-e89b-12d3-a456-426614174000");
        add(new UUIDSerializer(), "", uuid.toString(), uuid);
        add(new UUIDSerializer(), "UTF-16", uuid.toString(), uuid);
        add(new ByteArraySerializer(), "", "abc", "abc".getBytes());
        add(new BytesSerializer(), "", "abc", new Bytes("abc".getBytes()));
        add(new ByteBufferSerializer(), "", "abc", ByteBuffer.wrap("abc".getBytes()));
        add(new VoidSerializer(), "", "null", null);
        add(new StringSerializer(), "", "null", null);
        add(new IntegerSerializer(), "", "null", null);
        add(new UUIDSerializer(), "", "null", null);
        list(new IntegerSerializer(), Arrays.asList(1, 2, 3));
        list(new IntegerSerializer(), Arrays.asList(1, null, 3, null));
        list(new StringSerializer(), Arrays.asList("a", "", null, "Gr\u00fc\u00dfe"));
        list(new UUIDSerializer(), Arrays.asList(uuid, null));
        list(new IntegerSerializer(), new ArrayList<>());
        list(new StringSerializer(), new ArrayList<>());
        System.out.println(JsonMapper.builder().enable(JsonWriteFeature.ESCAPE_NON_ASCII).build().writeValueAsString(CASES));
    }
}
