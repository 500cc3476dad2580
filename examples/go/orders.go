// Package orders sends orders to a topic, and bills them as a consumer group.
package orders

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const topic = "orders"

// How long the broker may wait for new records. A fetch that waits does not ask for partitions that were added meanwhile.
const fetchMaxWait = 500 * time.Millisecond

// Send sends orders by customer, and returns once the broker has them.
func Send(ctx context.Context, bootstrapServers string, orders map[string]string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrapServers))
	if err != nil {
		return err
	}
	defer client.Close()
	for customer, order := range orders {
		record := &kgo.Record{Topic: topic, Key: []byte(customer), Value: []byte(order)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// Bill bills this many orders as a member of the group, and commits what was billed.
func Bill(ctx context.Context, bootstrapServers, group string, count int) ([]string, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrapServers),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(fetchMaxWait),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var billed []string
	for len(billed) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return billed, err
		}
		for _, record := range fetches.Records() {
			billed = append(billed, string(record.Value))
		}
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			return billed, err
		}
	}
	return billed, nil
}
