import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import kafka.security.authorizer.AclAuthorizer;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/** Apache Kafka's AclAuthorizer, told by lines of fields apart by tabs; the argument is `zookeeper.connect`. */
public class Acls {
    static AclAuthorizer authorizer;

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder decided = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t");
            switch (fields[0]) {
                case "configure":
                    configure(arguments[0] + fields[2], fields[1]);
                    break;
                case "add":
                    List<AclBinding> added = new ArrayList<>();
                    for (int at = 1; at < fields.length; at += 7) {
                        added.add(binding(fields, at));
                    }
                    authorizer.createAcls(context("User:root", "127.0.0.1"), added).forEach(result -> check(result));
                    break;
                case "remove":
                    AclBindingFilter filter = binding(fields, 1).toFilter();
                    authorizer.deleteAcls(context("User:root", "127.0.0.1"), List.of(filter)).forEach(Acls::check);
                    break;
                case "clear":
                    authorizer.deleteAcls(context("User:root", "127.0.0.1"), List.of(AclBindingFilter.ANY))
                        .forEach(Acls::check);
                    break;
                case "ask":
                    Action action = new Action(AclOperation.valueOf(fields[3]), new ResourcePattern(
                        ResourceType.valueOf(fields[4]), fields[5], PatternType.LITERAL), 1, true, true);
                    decided.append(digit(authorizer.authorize(context(fields[1], fields[2]), List.of(action)).get(0)));
                    break;
                default:
                    decided.append(digit(authorizer.authorizeByResourceType(context(fields[1], fields[2]),
                        AclOperation.valueOf(fields[3]), ResourceType.valueOf(fields[4]))));
            }
        }
        authorizer.close();
        System.out.println(decided);
    }

    static void configure(String zookeeper, String everyone) {
        if (authorizer != null) {
            authorizer.close();
        }
        authorizer = new AclAuthorizer();
        Map<String, String> settings = new HashMap<>();
        settings.put("zookeeper.connect", zookeeper);
        settings.put("super.users", "User:root;User:CN=a,O=b");
        settings.put("allow.everyone.if.no.acl.found", everyone);
        authorizer.configure(settings);
    }

    static <R> void check(java.util.concurrent.CompletionStage<R> result) {
        result.toCompletableFuture().join();
    }

    static AclBinding binding(String[] fields, int at) {
        return new AclBinding(
            new ResourcePattern(ResourceType.valueOf(fields[at]), fields[at + 1], PatternType.valueOf(fields[at + 2])),
            new AccessControlEntry(fields[at + 3], fields[at + 4], AclOperation.valueOf(fields[at + 5]),
                AclPermissionType.valueOf(fields[at + 6])));
    }

    static RequestContext context(String principal, String host) throws Exception {
        return new RequestContext(new RequestHeader(ApiKeys.METADATA, (short) 12, "c", 1), "1",
            InetAddress.getByName(host), SecurityUtils.parseKafkaPrincipal(principal), new ListenerName("PLAINTEXT"),
            SecurityProtocol.PLAINTEXT, ClientInformation.EMPTY, false);
    }

    static String digit(AuthorizationResult result) {
        return result == AuthorizationResult.ALLOWED ? "1" : "0";
    }
}
