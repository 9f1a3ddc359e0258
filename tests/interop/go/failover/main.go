// A producer and a consumer that live through whatever happens to the brokers: failover NAMESERVER TOPIC.
// Says "sent <queue id> <offset> <body>" for each SEND_OK, "failed <body> <why>" for anything else and
// "got <queue id> <offset> <body>" for each message. A line of input ends the sending, the end of it all.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const senders = 2
const pause = 5 * time.Millisecond

var lock sync.Mutex
var quiet atomic.Bool
var begin sync.Once
var begun = make(chan struct{})

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func say(what ...any) {
	lock.Lock()
	defer lock.Unlock()
	fmt.Println(what...)
}

func send(writer rocketmq.Producer, topic string, sender int) {
	for count := 0; !quiet.Load(); count++ {
		body := fmt.Sprintf("%d-%d", sender, count)
		result, err := writer.SendSync(context.Background(), primitive.NewMessage(topic, []byte(body)))
		switch {
		case err != nil:
			say("failed", body, strings.Split(err.Error(), "\n")[0])
			time.Sleep(20 * pause)
		case result.Status != primitive.SendOK:
			say("failed", body, result.Status)
		default:
			begin.Do(func() { close(begun) })
			say("sent", result.MessageQueue.QueueId, result.QueueOffset, body)
		}
		time.Sleep(pause)
	}
}

func main() {
	names := primitive.NewPassthroughResolver([]string{os.Args[1]})
	writer, err := rocketmq.NewProducer(producer.WithNsResolver(names), producer.WithGroupName("failover-writers"),
		producer.WithRetry(2))
	must(err)
	must(writer.Start())
	reader, err := rocketmq.NewPushConsumer(consumer.WithNsResolver(names), consumer.WithGroupName("failover-readers"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	must(err)
	must(reader.Subscribe(os.Args[2], consumer.MessageSelector{Type: consumer.TAG, Expression: "*"},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				say("got", message.Queue.QueueId, message.QueueOffset, string(message.Body))
			}
			return consumer.ConsumeSuccess, nil
		}))
	var done sync.WaitGroup
	for sender := 0; sender < senders; sender++ {
		done.Add(1)
		go func(sender int) {
			defer done.Done()
			send(writer, os.Args[2], sender)
		}(sender)
	}
	<-begun // a consumer of a topic that nobody has made yet does not start
	must(reader.Start())
	input := bufio.NewReader(os.Stdin)
	_, _ = input.ReadString('\n')
	quiet.Store(true)
	done.Wait()
	say("quiet")
	_, _ = input.ReadString(0)
	_ = reader.Shutdown()
	_ = writer.Shutdown()
}
