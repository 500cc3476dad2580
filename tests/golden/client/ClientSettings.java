import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

/**
 * What Apache Kafka's own clients declare and say. `settings` prints every setting of producer, consumer and admin;
 * `messages` reads cases (client, then names and values in turn) and prints what became of each.
 */
public class ClientSettings {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("settings")) {
            ObjectNode result = JSON.createObjectNode();
            declare(ProducerConfig.configDef(), result.putObject("producer"));
            declare(ConsumerConfig.configDef(), result.putObject("consumer"));
            declare(AdminClientConfig.configDef(), result.putObject("admin"));
            System.out.println(JSON.writeValueAsString(result));
            return;
        }
        ArrayNode results = JSON.createArrayNode();
        for (var words : JSON.readTree(System.in)) {
            Map<String, Object> properties = new HashMap<>();
            for (int i = 1; i < words.size(); i += 2) {
                properties.put(words.get(i).asText(), words.get(i + 1).asText());
            }
            results.add(judge(words.get(0).asText(), properties));
        }
        System.out.println(JSON.writeValueAsString(results));
    }

    private static void declare(ConfigDef definition, ObjectNode result) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            ObjectNode setting = result.putObject(key.name);
            String valid = key.validator == null ? "" : key.validator.toString();
            setting.put("type", key.type.name().toLowerCase(Locale.ROOT));
            setting.put("default", key.hasDefault() && key.defaultValue != null
                ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
            setting.put("valid", valid);
            setting.put("importance", key.importance.name().toLowerCase(Locale.ROOT));
        }
    }

    private static String judge(String client, Map<String, Object> properties) {
        String prefix = "org.apache.kafka.common.serialization.ByteArray";
        try {
            if (client.equals("producer")) {
                properties.putIfAbsent("key.serializer", prefix + "Serializer");
                properties.putIfAbsent("value.serializer", prefix + "Serializer");
                new ProducerConfig(properties);
            } else if (client.equals("consumer")) {
                properties.putIfAbsent("key.deserializer", prefix + "Deserializer");
                properties.putIfAbsent("value.deserializer", prefix + "Deserializer");
                new ConsumerConfig(properties);
            } else {
                new AdminClientConfig(properties);
            }
            return "OK";
        } catch (RuntimeException error) {
            return error.getMessage();
        }
    }
}
