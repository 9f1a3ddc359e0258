import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/** What Apache makes of conditions: a line of two base64 texts (condition, properties) in, a letter out. */
public final class SqlJudge {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split(" ", -1);
            out.append(judge(text(fields[0]), text(fields[1]))).append('\n');
        }
        System.out.print(out);
        System.out.flush();
        System.exit(0);
    }

    private static String text(String field) {
        return new String(Base64.getDecoder().decode(field), StandardCharsets.UTF_8);
    }

    /** B: does not compile, X: fails, T, F, N: what it gives. */
    private static char judge(String condition, String properties) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(condition);
        } catch (Throwable problem) {
            return 'B';
        }
        Map<String, String> known = MessageDecoder.string2messageProperties(properties);
        try {
            Object found = expression.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return known.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return new HashMap<>(known);
                }
            });
            return found == null ? 'N' : (Boolean) found ? 'T' : 'F';
        } catch (Throwable problem) {
            return 'X';
        }
    }
}
