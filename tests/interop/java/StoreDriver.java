import java.util.HashMap;
import java.util.Map;

/** Talks to an Apache broker for the store tests: {@code StoreDriver produce|stream|verify name=value...}. */
public final class StoreDriver {
    private StoreDriver() {
    }

    public static void main(String[] args) {
        System.setOut(System.err); // standard output is for Lines alone; logging of some versions would use it too
        int status = 0;
        try {
            run(args);
        } catch (Throwable problem) {
            problem.printStackTrace();
            status = 1;
        }
        System.exit(status); // client threads would keep the process alive
    }

    private static void run(String[] args) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 1; i < args.length; i++) {
            int equals = args[i].indexOf('=');
            options.put(args[i].substring(0, equals), args[i].substring(equals + 1));
        }
        Cluster cluster = new Cluster(options.get("nameserver"), options.get("broker"));
        switch (args[0]) {
            case "produce":
                new Produce(cluster, options.get("prefix"), Integer.parseInt(options.get("seed"))).run();
                break;
            case "stream":
                new Stream(cluster, options.get("prefix"), Integer.parseInt(options.get("threads"))).run();
                break;
            case "verify":
                new Verify(cluster).run();
                break;
            default:
                throw new IllegalArgumentException("unknown mode " + args[0]);
        }
    }
}
