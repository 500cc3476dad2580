import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/** Round trips through listeners on Apache Kafka's own clients since 2.0 (see README.md). */
public class RoundTrips {
    static final long TIMEOUT_MS = 60000;
    static final String SECURITY = "org.apache.kafka.common.security.";

    public static void main(String[] args) throws Exception {
        for (String listener : Arrays.copyOfRange(args, 3, args.length)) {
            String[] words = listener.split(",", -1);
            String value;
            try {
                value = roundTrip(words[2], settings(args[0], args[1], args[2], words), words[0]);
            } catch (Exception failure) {
                value = failure.toString();
            }
            System.out.println(value);
        }
    }

    static Properties settings(String folder, String user, String password, String[] words) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[1]);
        settings.put("security.protocol", words[3]);
        if (words[3].endsWith("SSL")) {
            putStore(settings, "ssl.truststore", new File(folder, "authority.p12"));
        }
        if (!words[4].isEmpty()) {
            settings.put("sasl.mechanism", words[4]);
            putLogin(settings, words[4], folder, user, password);
        }
        if (!words[5].isEmpty()) {
            putStore(settings, "ssl.keystore", new File(folder, words[5].replace(".pem", ".p12")));
        }
        for (String kind : new String[] {"key", "value"}) {
            settings.put(kind + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            settings.put(kind + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        return settings;
    }

    static void putLogin(Properties settings, String mechanism, String folder, String user, String password) {
        String module;
        if (mechanism.equals("OAUTHBEARER")) {
            module = SECURITY + "oauthbearer.OAuthBearerLoginModule required";
            settings.put("sasl.login.callback.handler.class", TokenOfFile.class);
            TokenOfFile.file = new File(folder, "token");
        } else if (mechanism.equals("GSSAPI")) {
            module = String.format("com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
                + "keyTab=\"%s\" principal=\"%s\"", new File(folder, user + ".keytab"), user);
            settings.put("sasl.kerberos.service.name", "kafka");
            System.setProperty("java.security.krb5.conf", System.getenv("KRB5_CONFIG"));
        } else {
            String login = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
            module = String.format("%s%s required username=\"%s\" password=\"%s\"", SECURITY, login, user, password);
        }
        settings.put("sasl.jaas.config", module + ";");
    }

    static void putStore(Properties settings, String name, File file) {
        settings.put(name + ".type", "PKCS12");
        settings.put(name + ".location", file.getPath());
        settings.put(name + ".password", "changeit");
    }

    static String roundTrip(String topic, Properties settings, String value) throws Exception {
        RecordMetadata sent;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            sent = producer.send(new ProducerRecord<>(topic, value)).get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        }
        TopicPartition partition = new TopicPartition(topic, sent.partition());
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(Collections.singletonList(partition));
            consumer.seek(partition, sent.offset());
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(TIMEOUT_MS));
            return records.isEmpty() ? "nothing was read" : records.records(partition).get(0).value();
        }
    }

    /** Reads the token: clients before 3.1 have no handler that reads tokens from files. */
    public static class TokenOfFile implements AuthenticateCallbackHandler {
        static File file;

        @Override
        public void configure(Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> entries) {
        }

        @Override
        public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
            for (Callback callback : callbacks) {
                if (!(callback instanceof OAuthBearerTokenCallback)) {
                    throw new UnsupportedCallbackException(callback);
                }
                ((OAuthBearerTokenCallback) callback).token(new Token(new String(Files.readAllBytes(file.toPath()))));
            }
        }

        @Override
        public void close() {
        }
    }

    /** The broker decides about it; the client only has to know when to get another one. */
    static class Token implements OAuthBearerToken {
        private final String value;
        private final long startTimeMs = System.currentTimeMillis();

        Token(String value) {
            this.value = value;
        }

        @Override
        public String value() {
            return value;
        }

        @Override
        public Set<String> scope() {
            return Collections.emptySet();
        }

        @Override
        public long lifetimeMs() {
            return startTimeMs + 3600000;
        }

        @Override
        public String principalName() {
            return "token";
        }

        @Override
        public Long startTimeMs() {
            return startTimeMs;
        }
    }
}
