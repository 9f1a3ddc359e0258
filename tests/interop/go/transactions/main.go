// Transactional producers of the Go client against any cluster: transactions MODE NAMESERVER TOPIC; the mode is run.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func must(err error) {
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

type counts struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *counts) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[name]++
}

func (c *counts) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen)
}

func (c *counts) which(wanted func(string, int) bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := 0
	for name, times := range c.seen {
		if wanted(name, times) {
			found++
		}
	}
	return found
}

// decider knows by the first word of a body what becomes of it.
type decider struct{ checked *counts }

func kind(body []byte) string { return strings.SplitN(string(body), " ", 2)[0] }

func (d *decider) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch kind(message.Body) {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (d *decider) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	d.checked.add(string(message.Body))
	if kind(message.Body) == "rolllater" {
		return primitive.RollbackMessageState
	}
	return primitive.CommitMessageState
}

func main() {
	addr, topic := os.Args[2], os.Args[3]
	checked, received := &counts{seen: map[string]int{}}, &counts{seen: map[string]int{}}
	resolver := primitive.NewPassthroughResolver([]string{addr})
	p, err := rocketmq.NewTransactionProducer(&decider{checked}, producer.WithGroupName("go-tx"),
		producer.WithNsResolver(resolver), producer.WithRetry(1), producer.WithInstanceName("tx"))
	must(err)
	must(p.Start())
	kinds, unwanted := []string{"commit", "rollback", "later", "rolllater"}, 0
	for i := 0; i < 20; i++ {
		k := kinds[i%4]
		if i >= 10 && strings.HasPrefix(k, "roll") {
			k = "commit"
		}
		if strings.HasPrefix(k, "roll") {
			unwanted++
		}
		_, err := p.SendMessageInTransaction(context.Background(), primitive.NewMessage(topic, []byte(fmt.Sprintf("%s %d", k, i))))
		must(err)
	}
	c, err := rocketmq.NewPushConsumer(consumer.WithGroupName("go-tx-all"), consumer.WithNsResolver(resolver),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithInstance("txc"))
	must(err)
	must(c.Subscribe(topic, consumer.MessageSelector{}, func(ctx context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range msgs {
			received.add(string(m.Body))
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(c.Start())
	for end := time.Now().Add(60 * time.Second); received.size() < 20-unwanted && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(2 * time.Second) // what comes now is one too many
	fmt.Println("received", received.size())
	fmt.Println("twice", received.which(func(_ string, times int) bool { return times > 1 }))
	fmt.Println("unwanted", received.which(func(name string, _ int) bool { return strings.HasPrefix(name, "roll") }))
	fmt.Println("asked", checked.which(func(name string, _ int) bool { return strings.Contains(name, "later") }))
}
