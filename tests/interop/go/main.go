// Ordinary producers and consumers of the Go client against any cluster: clients NAMESERVER TOPIC.
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

func wait(what string, ok func() bool) {
	for end := time.Now().Add(40 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			fmt.Println("timeout", what)
			os.Exit(1)
		}
	}
}

var laters sync.Map

func later() int {
	count := 0
	laters.Range(func(any, any) bool { count++; return true })
	return count
}

func collect(group, topic, addr, instance string, selector consumer.MessageSelector, orderly bool, model consumer.MessageModel) (rocketmq.PushConsumer, func() int) {
	var mu sync.Mutex
	seen := map[string]bool{}
	c, err := rocketmq.NewPushConsumer(consumer.WithGroupName(group), consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{addr})),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerOrder(orderly), consumer.WithInstance(instance), consumer.WithConsumerModel(model))
	must(err)
	must(c.Subscribe(topic, selector, func(ctx context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range msgs {
			seen[string(m.Body)] = true
			if group == "go-all" && strings.HasPrefix(string(m.Body), "later-") {
				laters.Store(string(m.Body), true)
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(c.Start())
	return c, func() int { mu.Lock(); defer mu.Unlock(); return len(seen) }
}

func main() {
	addr, topic := os.Args[1], os.Args[2]
	p, err := rocketmq.NewProducer(producer.WithGroupName("go-p"), producer.WithNsResolver(primitive.NewPassthroughResolver([]string{addr})), producer.WithRetry(0), producer.WithInstanceName("gp"))
	must(err)
	must(p.Start())
	tags := []string{"TagA", "TagB"}
	for i := 0; i < 20; i++ {
		m := primitive.NewMessage(topic, []byte(fmt.Sprintf("sync-%d", i)))
		m.WithTag(tags[i%2]).WithKeys([]string{fmt.Sprintf("k%d", i)})
		r, err := p.SendSync(context.Background(), m)
		must(err)
		if r.Status != primitive.SendOK {
			fmt.Println("bad", r.String())
		}
	}
	var wg sync.WaitGroup
	for i := 0; i < 10; i++ {
		wg.Add(1)
		must(p.SendAsync(context.Background(), func(ctx context.Context, r *primitive.SendResult, err error) { must(err); wg.Done() }, primitive.NewMessage(topic, []byte(fmt.Sprintf("async-%d", i))).WithTag("TagA")))
	}
	wg.Wait()
	for i := 0; i < 5; i++ {
		must(p.SendOneWay(context.Background(), primitive.NewMessage(topic, []byte(fmt.Sprintf("oneway-%d", i))).WithTag("TagA")))
	}
	batch := []*primitive.Message{}
	for i := 0; i < 7; i++ {
		batch = append(batch, primitive.NewMessage(topic, []byte(fmt.Sprintf("batch-%d", i))).WithTag("TagA"))
	}
	_, err = p.SendSync(context.Background(), batch...)
	must(err)
	fmt.Println("sent 42")
	all, n := collect("go-all", topic, addr, "a", consumer.MessageSelector{}, false, consumer.Clustering)
	tagged, nt := collect("go-tag", topic, addr, "b", consumer.MessageSelector{Type: consumer.TAG, Expression: "TagB || TagC"}, false, consumer.Clustering)
	ord, no := collect("go-ord", topic, addr, "c", consumer.MessageSelector{}, true, consumer.Clustering)
	bc, nb := collect("go-bc", topic, addr, "d", consumer.MessageSelector{}, false, consumer.BroadCasting)
	wait("all", func() bool { return n() == 42 })
	wait("tagged", func() bool { return nt() == 10 })
	wait("ordered", func() bool { return no() == 42 })
	wait("broadcast", func() bool { return nb() == 42 })
	fmt.Println("all", n())
	fmt.Println("tagged", nt())
	fmt.Println("ordered", no())
	fmt.Println("broadcast", nb())
	two, _ := collect("go-all", topic, addr, "e", consumer.MessageSelector{}, false, consumer.Clustering)
	time.Sleep(2 * time.Second) // both are members for a while
	must(all.Shutdown())
	for i := 0; i < 8; i++ {
		_, err := p.SendSync(context.Background(), primitive.NewMessage(topic, []byte(fmt.Sprintf("later-%d", i))))
		must(err)
	}
	wait("rebalance", func() bool { return later() == 8 })
	fmt.Println("later", later())
	for _, c := range []rocketmq.PushConsumer{tagged, ord, bc, two} {
		must(c.Shutdown())
	}
	must(p.Shutdown())
}
