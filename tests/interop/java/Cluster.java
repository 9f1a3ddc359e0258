import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** One NameServer with one broker: the client objects every mode needs. */
final class Cluster {
    static final String BROKER_NAME = "broker-a";
    private static final int WAIT_MS_MAX = 30_000;
    private static final AtomicInteger GROUPS = new AtomicInteger();

    final String nameserver;
    final DefaultMQAdminExt admin = new DefaultMQAdminExt(20_000L);
    final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop-reader");
    private final String brokerAddress;

    Cluster(String nameserver, String brokerAddress) throws Exception {
        this.nameserver = nameserver;
        this.brokerAddress = brokerAddress;
        admin.setNamesrvAddr(nameserver);
        admin.setInstanceName("interop-admin");
        admin.start();
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName("interop-reader");
        consumer.start();
        await("the broker's registration", this::isAnnounced);
    }

    /** A 5.x broker may miss its first registration and try again only after 10 s; a changed permission makes it at once. */
    private boolean isAnnounced() throws Exception {
        if (admin.examineBrokerClusterInfo().getBrokerAddrTable().containsKey(BROKER_NAME)) {
            return true;
        }
        Properties permission = new Properties();
        permission.setProperty("brokerPermission", "6");
        admin.updateBrokerConfig(brokerAddress, permission);
        return false;
    }

    /** Every producer has a group and an instance of its own. Not started yet. */
    <P extends DefaultMQProducer> P prepare(P producer) {
        int number = GROUPS.incrementAndGet();
        producer.setProducerGroup("interop-producer-" + number);
        producer.setInstanceName("interop-producer-" + number);
        producer.setNamesrvAddr(nameserver);
        producer.setSendMsgTimeout(20_000);
        producer.setRetryTimesWhenSendFailed(0); // a retried send could store a message twice
        return producer;
    }

    void createTopic(String topic, int queueCount) throws Exception {
        admin.createAndUpdateTopicConfig(brokerAddress, new TopicConfig(topic, queueCount, queueCount, 6));
    }

    /** Waits until the route of a topic has reached the NameServer and this producer. */
    static void awaitRoute(DefaultMQProducer producer, String topic, int queueCount) throws Exception {
        await("the route of " + topic, () -> {
            try {
                return producer.fetchPublishMessageQueues(topic).size() == queueCount;
            } catch (MQClientException notYet) {
                return false;
            }
        });
    }

    /** Waits until a restarted broker has announced a topic and this reader knows it. */
    void awaitRoute(String topic) throws Exception {
        await("the route of " + topic, () -> {
            try {
                return !consumer.fetchSubscribeMessageQueues(topic).isEmpty();
            } catch (MQClientException notYet) {
                return false;
            }
        });
    }

    static MessageQueue queue(String topic, int queueId) {
        return new MessageQueue(topic, BROKER_NAME, queueId);
    }

    /** Everything between the queue's min and max offset as the broker tells them now. */
    List<MessageExt> pullAll(MessageQueue queue, long from, long to) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        long next = from;
        while (next < to) {
            PullResult result = consumer.pull(queue, "*", next, 32, 20_000);
            if (result.getPullStatus() == PullStatus.FOUND) {
                found.addAll(result.getMsgFoundList());
            }
            if (result.getNextBeginOffset() <= next) {
                throw new IllegalStateException("stuck at " + next + " of " + to + " in " + queue + ": " + result);
            }
            next = result.getNextBeginOffset();
        }
        return found;
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void await(String what, Condition condition) throws Exception {
        long deadline = System.currentTimeMillis() + WAIT_MS_MAX;
        while (!condition.holds()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("waited too long for " + what);
            }
            Thread.sleep(100);
        }
    }
}
