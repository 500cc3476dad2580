import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Collections;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.server.DynamicBrokerConfig$;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * What Apache Kafka's own classes declare and say. `settings` prints every setting of broker and topic;
 * `messages` reads cases (scope, then names and values in turn) and prints what became of each.
 */
public class KafkaSettings {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("settings")) {
            System.out.println(JSON.writeValueAsString(settings()));
        } else {
            ArrayNode results = JSON.createArrayNode();
            for (var words : JSON.readTree(System.in)) {
                Properties properties = new Properties();
                for (int i = 1; i < words.size(); i += 2) {
                    properties.put(words.get(i).asText(), words.get(i + 1).asText());
                }
                results.add(words.get(0).asText().equals("topic") ? ofTopic(properties) : ofBroker(properties));
            }
            System.out.println(JSON.writeValueAsString(results));
        }
    }

    private static ObjectNode settings() {
        ObjectNode result = JSON.createObjectNode();
        Map<String, String> modes = DynamicBrokerConfig$.MODULE$.dynamicConfigUpdateModes();
        ObjectNode broker = result.putObject("broker");
        declare(KafkaConfig.configDef(), broker);
        broker.fields().forEachRemaining(entry -> {
            ObjectNode setting = (ObjectNode) entry.getValue();
            setting.put("update_mode", modes.getOrDefault(entry.getKey(), "read-only"));
            setting.put("internal", KafkaConfig.configDef().configKeys().get(entry.getKey()).internalConfig);
        });
        declare(LogConfig.configDefCopy(), result.putObject("topic"));
        ObjectNode synonyms = result.putObject("topic_synonyms");
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((name, list) -> {
            ArrayNode names = synonyms.putArray(name);
            list.forEach(synonym -> names.add(synonym.name()));
        });
        return result;
    }

    private static void declare(ConfigDef definition, ObjectNode result) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            ObjectNode setting = result.putObject(key.name);
            String valid = key.validator == null ? "" : key.validator.toString();
            setting.put("type", key.type.name().toLowerCase(Locale.ROOT));
            setting.put("default", key.defaultValue == null ? null : ConfigDef.convertToString(key.defaultValue, key.type));
            setting.put("valid", valid.length() < 120 ? valid : "");
            setting.put("importance", key.importance.name().toLowerCase(Locale.ROOT));
        }
    }

    private static String ofBroker(Properties properties) {
        properties.putIfAbsent("zookeeper.connect", "x:1");
        try {
            KafkaConfig.fromProps(properties, false);
            return "OK";
        } catch (RuntimeException error) {
            return error.getMessage();
        }
    }

    private static String ofTopic(Properties properties) {
        try {
            LogConfig.validate(Collections.emptyMap(), properties, Collections.emptyMap(), false, true);
            return "OK";
        } catch (RuntimeException error) {
            return error.getMessage();
        }
    }
}
