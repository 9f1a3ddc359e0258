import com.alibaba.fastjson.JSON;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** What the driver says: one JSON object a line, in UTF-8, each written and flushed whole. */
final class Lines {
    private static final PrintStream OUT = stream();

    private Lines() {
    }

    private static PrintStream stream() {
        try {
            return new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        } catch (java.io.UnsupportedEncodingException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    static void say(Map<String, Object> line) {
        byte[] bytes = (JSON.toJSONString(line) + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (OUT) {
            OUT.write(bytes, 0, bytes.length);
            OUT.flush();
        }
    }

    /** An acknowledged message: where it is stored, and what was sent. */
    static void acknowledged(String kind, String topic, int queueId, long queueOffset, String offsetMsgId, String uniqKey,
        Message message) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", kind);
        line.put("topic", topic);
        line.put("queueId", queueId);
        line.put("queueOffset", queueOffset);
        line.put("offsetMsgId", offsetMsgId);
        line.put("msgId", uniqKey);
        line.put("keys", message.getKeys());
        line.put("tags", message.getTags());
        line.put("bodySha256", sha256(message.getBody()));
        line.put("bodyLength", message.getBody().length);
        say(line);
    }

    static void acknowledged(String kind, String topic, int queueId, SendResult result, Message message) {
        acknowledged(kind, topic, queueId, result.getQueueOffset(), result.getOffsetMsgId(), result.getMsgId(), message);
    }

    /** A stored message as the Java client decoded it. */
    static Map<String, Object> message(MessageExt message) throws Exception {
        Map<String, String> properties = new LinkedHashMap<>(message.getProperties());
        properties.remove("MIN_OFFSET"); // put there by the pulling client
        properties.remove("MAX_OFFSET");
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("topic", message.getTopic());
        line.put("queueId", message.getQueueId());
        line.put("queueOffset", message.getQueueOffset());
        line.put("offsetMsgId", offsetMsgId(message));
        line.put("bodySha256", sha256(message.getBody()));
        line.put("bodyLength", message.getBody().length);
        line.put("bodyCrc", message.getBodyCRC());
        line.put("properties", properties);
        line.put("flag", message.getFlag());
        line.put("sysFlag", message.getSysFlag());
        line.put("bornMs", message.getBornTimestamp());
        line.put("bornHost", host(message.getBornHost()));
        line.put("storeMs", message.getStoreTimestamp());
        line.put("storeHost", host(message.getStoreHost()));
        line.put("reconsumeTimes", message.getReconsumeTimes());
        line.put("preparedOffset", message.getPreparedTransactionOffset());
        line.put("size", message.getStoreSize());
        line.put("logOffset", message.getCommitLogOffset());
        return line;
    }

    static String offsetMsgId(MessageExt message) throws Exception {
        return MessageDecoder.createMessageId(message.getStoreHost(), message.getCommitLogOffset());
    }

    private static String host(SocketAddress address) {
        InetSocketAddress inet = (InetSocketAddress) address;
        return inet.getAddress().getHostAddress() + ":" + inet.getPort();
    }

    static String sha256(byte[] body) {
        try {
            StringBuilder hex = new StringBuilder();
            for (byte one : MessageDigest.getInstance("SHA-256").digest(body)) {
                hex.append(String.format("%02x", one));
            }
            return hex.toString();
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
