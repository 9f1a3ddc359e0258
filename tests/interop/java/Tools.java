import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * mqadmin for many commands in one JVM: a command per line, its arguments separated by a control character; what it
 * prints, then a line with another one. A wrong option ends the JVM, as it ends mqadmin.
 */
public final class Tools {
    private static final String BETWEEN_ARGUMENTS = "\u001f";
    private static final String END_OF_OUTPUT = "\u001e";

    private Tools() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(out);
        System.setErr(out);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            forgetCommands();
            MQAdminStartup.main0(line.split(BETWEEN_ARGUMENTS, -1), null);
            out.println();
            out.println(END_OF_OUTPUT);
        }
        System.exit(0); // client threads would keep the process alive
    }

    /** A command object keeps its client, which cannot be started twice; every command gets a new one. */
    private static void forgetCommands() throws Exception {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) && field.getType() == List.class) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }
}
