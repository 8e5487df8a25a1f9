import java.util.concurrent.CompletableFuture;
import org.apache.kafka.coordinator.group.api.streams.StreamsGroupTopologyDescription;
import org.apache.kafka.coordinator.group.api.streams.StreamsTopologyDescriptionPermanentFailureException;
import org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin;

/** Keeps descriptions of topologies in memory, but takes none of groups called refused and deletes none of those called kept. */
public class Descriptions extends InMemoryTopologyDescriptionPlugin {
    @Override
    public CompletableFuture<Void> setTopology(String group, int epoch, StreamsGroupTopologyDescription description) {
        return group.contains("refused") ? failed("no room for " + group) : super.setTopology(group, epoch, description);
    }

    @Override
    public CompletableFuture<Void> deleteTopology(String group) {
        return group.contains("kept") ? failed("the description of " + group + " is kept") : super.deleteTopology(group);
    }

    static CompletableFuture<Void> failed(String why) {
        return CompletableFuture.failedFuture(new StreamsTopologyDescriptionPermanentFailureException(why));
    }
}
