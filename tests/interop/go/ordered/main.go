// One member of a group that consumes in order, until its input ends or it is killed: ordered NAMESERVER TOPIC GROUP.
// Says "began <queue id> <offset> <body> <ms>" and, some ms later, "ended" with the same.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const work = 20 * time.Millisecond

var lock sync.Mutex

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func say(what string, message *primitive.MessageExt) {
	lock.Lock()
	defer lock.Unlock()
	fmt.Println(what, message.Queue.QueueId, message.QueueOffset, string(message.Body), time.Now().UnixMilli())
}

func main() {
	member, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{os.Args[1]})),
		consumer.WithGroupName(os.Args[3]), consumer.WithInstance(fmt.Sprintf("member-%d", os.Getpid())),
		consumer.WithConsumerOrder(true), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	must(err)
	must(member.Subscribe(os.Args[2], consumer.MessageSelector{Type: consumer.TAG, Expression: "*"},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				say("began", message)
				time.Sleep(work)
				say("ended", message)
			}
			return consumer.ConsumeSuccess, nil
		}))
	must(member.Start())
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = member.Shutdown()
}
