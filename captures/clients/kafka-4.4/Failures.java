import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.utils.internals.AppInfoParser;

/** TLS handshakes that fail: one line of ATTEMPTS is one client, and what it says is noted. */
public class Failures {
    static Map<String, Object> settings(String[] attempt) {
        Map<String, Object> made = new HashMap<>();
        String folder = System.getenv("CERTIFICATES") + "/";
        made.put("bootstrap.servers", System.getenv("NAME") + ":" + attempt[2]);
        made.put("security.protocol", "SSL");
        made.put("enable.metrics.push", false);
        made.put("reconnect.backoff.ms", 9000);
        made.put("reconnect.backoff.max.ms", 9000);
        made.put("request.timeout.ms", 900);
        made.put("default.api.timeout.ms", 900);
        made.put("ssl.truststore.type", "PEM");
        made.put("ssl.truststore.location", folder + attempt[3] + ".pem");
        if (!attempt[1].equals("any")) {
            made.put("ssl.enabled.protocols", "TLSv" + attempt[1]);
            made.put("ssl.protocol", "TLSv" + attempt[1]);
        }
        if (!attempt[4].equals("-")) {
            made.put("ssl.keystore.type", "PEM");
            made.put("ssl.keystore.location", folder + attempt[4] + ".pem");
        }
        if (!attempt[5].equals("-"))
            made.put("ssl.cipher.suites", attempt[1].equals("1.3") ? "TLS_AES_128_GCM_SHA256" : "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256");
        return made;
    }

    static String attempt(String[] attempt) {
        try (Admin admin = Admin.create(settings(attempt))) {
            admin.describeCluster().clusterId().get(2, TimeUnit.SECONDS);
            return "ok";
        } catch (Exception failed) {
            List<String> words = new ArrayList<>();
            for (Throwable each = failed; each != null && words.size() < 8; each = each.getCause())
                words.add(each.getClass().getSimpleName() + ": " + each.getMessage());
            return String.join(" | ", words);
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<Map<String, Object>> notes = new ArrayList<>();
        String more = "no-suite 1.3 " + arguments[0] + " authority - 128";
        for (String line : (System.getenv("ATTEMPTS") + "\n" + more).split("\n")) {
            String[] attempt = line.split(" ");
            if (attempt[0].equals("own-certificate") || line.startsWith("trusted-1"))
                continue;
            double begin = System.currentTimeMillis() / 1e3;
            String says = attempt(attempt);
            Thread.sleep(250);
            notes.add(Map.of("case", attempt[0] + "-" + attempt[1], "begin", begin, "end", System.currentTimeMillis() / 1e3, "says", says));
        }
        Map<String, Object> told = new HashMap<>();
        told.put("client", "kafka-clients (Java)");
        told.put("version", AppInfoParser.getVersion());
        told.put("produced", List.of());
        told.put("consumed", Map.of());
        told.put("errors", List.of());
        told.put("notes", notes);
        new ObjectMapper().writeValue(new File(System.getenv("FACTS")), told);
    }
}
