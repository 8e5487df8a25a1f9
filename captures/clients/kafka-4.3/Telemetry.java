import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** A broker plug-in that takes the clients' metrics and forgets them: without one, brokers ask for none. */
public class Telemetry implements MetricsReporter, ClientTelemetry {
    public ClientTelemetryReceiver clientReceiver() {
        return (AuthorizableRequestContext context, ClientTelemetryPayload payload) -> { };
    }

    public void configure(Map<String, ?> configs) { }

    public void init(List<KafkaMetric> metrics) { }

    public void metricChange(KafkaMetric metric) { }

    public void metricRemoval(KafkaMetric metric) { }

    public void close() { }
}
