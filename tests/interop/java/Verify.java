import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads a manifest (JSON lines: topic, queueId and, where a look-up is wanted, offsetMsgId, keys, msgId) on stdin; pulls
 * every queue it names from min to max, looks every id and key up, and prints what the broker answered. Half messages are
 * looked up by id only: a 4.x broker announces no route for their topic.
 */
final class Verify {
    private static final String HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC";
    private static final int QUERY_COUNT_MAX = 64; // the broker's own cap
    private static final int NO_MESSAGE = 208; // ResponseCode lives in different packages in 4.x and 5.x

    private final Cluster cluster;
    private final Set<MessageQueue> queues = new LinkedHashSet<>();
    private final Map<String, String> topicById = new LinkedHashMap<>();
    private final Map<String, Set<String>> keysByTopic = new LinkedHashMap<>();
    private final Map<String, Set<String>> uniqKeysByTopic = new LinkedHashMap<>();
    private long pulled;
    private long problems;

    Verify(Cluster cluster) {
        this.cluster = cluster;
    }

    void run() throws Exception {
        readManifest();
        for (String topic : topics()) {
            cluster.awaitRoute(topic);
        }
        for (MessageQueue queue : queues) {
            pull(queue);
        }
        for (Map.Entry<String, String> entry : topicById.entrySet()) {
            view(entry.getValue(), entry.getKey());
        }
        for (Map.Entry<String, Set<String>> entry : keysByTopic.entrySet()) {
            for (String key : entry.getValue()) {
                query("key", entry.getKey(), key);
            }
        }
        for (Map.Entry<String, Set<String>> entry : uniqKeysByTopic.entrySet()) {
            for (String key : entry.getValue()) {
                query("uniqKey", entry.getKey(), key);
            }
        }
        Map<String, Object> summary = line("summary");
        summary.put("queues", queues.size());
        summary.put("pulled", pulled);
        summary.put("ids", topicById.size());
        summary.put("problems", problems);
        Lines.say(summary);
    }

    private void readManifest() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String text = in.readLine(); text != null; text = in.readLine()) {
            JSONObject entry = JSON.parseObject(text);
            String topic = entry.getString("topic");
            if (entry.getString("offsetMsgId") != null) {
                topicById.put(entry.getString("offsetMsgId"), topic);
            }
            if (HALF_TOPIC.equals(topic)) {
                continue;
            }
            queues.add(Cluster.queue(topic, entry.getIntValue("queueId")));
            if (entry.getString("keys") != null) {
                for (String key : entry.getString("keys").split(" ")) {
                    keysByTopic.computeIfAbsent(topic, none -> new LinkedHashSet<>()).add(key);
                }
            }
            if (entry.getString("msgId") != null) {
                uniqKeysByTopic.computeIfAbsent(topic, none -> new LinkedHashSet<>()).add(entry.getString("msgId"));
            }
        }
    }

    private Set<String> topics() {
        Set<String> topics = new LinkedHashSet<>();
        for (MessageQueue queue : queues) {
            topics.add(queue.getTopic());
        }
        return topics;
    }

    private void pull(MessageQueue queue) {
        Map<String, Object> line = line("queue");
        line.put("topic", queue.getTopic());
        line.put("queueId", queue.getQueueId());
        try {
            long max = cluster.consumer.maxOffset(queue);
            long min = max == 0 ? 0 : cluster.consumer.minOffset(queue);
            line.put("minOffset", min);
            line.put("maxOffset", max);
            List<MessageExt> messages = cluster.pullAll(queue, min, max);
            for (MessageExt message : messages) {
                Map<String, Object> seen = line("pull");
                seen.putAll(Lines.message(message));
                Lines.say(seen);
            }
            pulled += messages.size();
        } catch (Exception problem) {
            failed(line, problem);
        }
        Lines.say(line);
    }

    private void view(String topic, String offsetMsgId) {
        Map<String, Object> line = line("id");
        try {
            line.putAll(Lines.message(cluster.consumer.viewMessage(topic, offsetMsgId)));
        } catch (Exception problem) {
            line.put("offsetMsgId", offsetMsgId);
            failed(line, problem);
        }
        Lines.say(line);
    }

    private void query(String by, String topic, String key) {
        Map<String, Object> line = line(by);
        line.put("topic", topic);
        line.put("key", key);
        Set<String> offsetMsgIds = new TreeSet<>();
        try {
            for (MessageExt message : find(by, topic, key)) {
                offsetMsgIds.add(Lines.offsetMsgId(message));
            }
        } catch (Exception problem) {
            failed(line, problem);
        }
        line.put("offsetMsgIds", offsetMsgIds);
        Lines.say(line);
    }

    private List<MessageExt> find(String by, String topic, String key) throws Exception {
        try {
            if (by.equals("uniqKey")) {
                List<MessageExt> one = new ArrayList<>();
                MessageExt found = cluster.consumer.getDefaultMQPullConsumerImpl().queryMessageByUniqKey(topic, key);
                if (found != null) {
                    one.add(found);
                }
                return one;
            }
            long end = System.currentTimeMillis() + 3_600_000L;
            QueryResult result = cluster.consumer.queryMessage(topic, key, QUERY_COUNT_MAX, 0, end);
            return result.getMessageList();
        } catch (MQClientException none) {
            if (none.getResponseCode() == NO_MESSAGE) {
                return new ArrayList<>();
            }
            throw none;
        }
    }

    private void failed(Map<String, Object> line, Exception problem) {
        problems++;
        line.put("problem", problem.toString());
    }

    private static Map<String, Object> line(String seen) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("seen", seen);
        return line;
    }
}
