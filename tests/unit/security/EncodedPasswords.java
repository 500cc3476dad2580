import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.security.PasswordEncoder;

/** Encodes and decodes, with Apache Kafka's own class, what the lines of standard input say. */
public class EncodedPasswords {
    public static void main(String[] arguments) throws Exception {
        Password secret = new Password(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            if (words[0].equals("decode")) {
                out.println(encoder(secret, null, words[1]).decode(words[2]).value());
            } else {
                out.println(encoder(secret, words[1], words[2]).encode(new Password(words[3])));
            }
        }
    }

    private static PasswordEncoder encoder(Password secret, String factory, String cipher) {
        return PasswordEncoder.encrypting(secret, factory, cipher, 128, 4096);
    }
}
