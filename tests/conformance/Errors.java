import org.apache.kafka.common.errors.RetriableException;

/** Prints what a release says of its error codes, a line each: code, name, whether it is retriable. */
public class Errors {
    public static void main(String[] arguments) {
        for (var error : org.apache.kafka.common.protocol.Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            System.out.println(error.code() + "," + error.name() + "," + retriable);
        }
    }
}
