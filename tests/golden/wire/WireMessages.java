import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;

/**
 * Encodes and decodes messages with the classes that Apache Kafka generates from its own definitions.
 *
 * Reads lines "name version hex json", separated by tabs: one message as bytes and as the JSON of Kafka's converters.
 * Answers each with "hex of the JSON, hex of the bytes once decoded, JSON of the bytes once decoded".
 */
public class WireMessages {
    private static final String PACKAGE = "org.apache.kafka.common.message.";
    private static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            out.println(answer(parts[0], Short.parseShort(parts[1]), parts[2], parts[3]));
        }
        out.flush();
    }

    private static String answer(String name, short version, String hex, String json) {
        try {
            String type = PACKAGE + (name.startsWith("ConsumerProtocol") ? name : name + "Data");
            Class<?> data = Class.forName(type);
            Class<?> converter = Class.forName(type + "JsonConverter");
            Message fromJson = (Message) converter.getMethod("read", JsonNode.class, short.class)
                .invoke(null, MAPPER.readTree(json), version);
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
            Message fromBytes = (Message) data.getConstructor(Readable.class, short.class)
                .newInstance(new ByteBufferAccessor(bytes), version);
            if (bytes.hasRemaining()) {
                return "error\t" + bytes.remaining() + " bytes were not read";
            }
            JsonNode back = (JsonNode) converter.getMethod("write", data, short.class, boolean.class)
                .invoke(null, fromBytes, version, false);
            return hexOf(fromJson, version) + "\t" + hexOf(fromBytes, version) + "\t" + MAPPER.writeValueAsString(back);
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            return "error\t" + cause.toString().replaceAll("\\s", " ");
        }
    }

    private static String hexOf(Message message, short version) {
        ByteBuffer buffer = MessageUtil.toByteBuffer(message, version);
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
