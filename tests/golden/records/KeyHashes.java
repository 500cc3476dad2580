import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import org.apache.kafka.common.utils.Utils;

/** Prints the murmur2 hash of N keys, of no byte to 64: the first bytes of the SHA-512 of "key-0", "key-1" and so on. */
public class KeyHashes {
    public static void main(String[] arguments) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-512");
        StringBuilder told = new StringBuilder();
        for (int number = 0; number < Integer.parseInt(arguments[0]); number++) {
            byte[] key = digest.digest(("key-" + number).getBytes(StandardCharsets.UTF_8));
            told.append(Utils.murmur2(Arrays.copyOf(key, number % 65))).append('\n');
        }
        System.out.print(told);
    }
}
