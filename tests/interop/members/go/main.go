// A member of a consumer group on franz-go, in the tests' line protocol (see ../README.md).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var tellLock sync.Mutex

func tell(event string, more map[string]interface{}) {
	tellLock.Lock()
	defer tellLock.Unlock()
	line := map[string]interface{}{"event": event, "at": float64(time.Now().UnixMicro()) / 1e6}
	for name, value := range more {
		line[name] = value
	}
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}

func partitionsOf(all map[string][]int32) map[string]interface{} {
	found := []int32{}
	for _, partitions := range all {
		found = append(found, partitions...)
	}
	sort.Slice(found, func(i, j int) bool { return found[i] < found[j] })
	return map[string]interface{}{"partitions": found}
}

func balancers(names string) []kgo.GroupBalancer {
	known := map[string]kgo.GroupBalancer{
		"range":              kgo.RangeBalancer(),
		"roundrobin":         kgo.RoundRobinBalancer(),
		"sticky":             kgo.StickyBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
	chosen := []kgo.GroupBalancer{}
	for _, name := range strings.Split(names, ",") {
		chosen = append(chosen, known[name])
	}
	return chosen
}

func main() {
	if os.Args[1] == "round-trips" {
		roundTrips(os.Args[2], os.Args[3], os.Args[4], os.Args[5:])
		return
	}
	bootstrap, group, topic, clientID, assignors := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	sessionMs, _ := strconv.Atoi(os.Args[6])
	told := func(event string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			tell(event, partitionsOf(partitions))
		}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ClientID(clientID),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.Balancers(balancers(assignors)...),
		kgo.SessionTimeout(time.Duration(sessionMs)*time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(sessionMs/6)*time.Millisecond),
		kgo.RebalanceTimeout(20*time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(told("assigned")),
		kgo.OnPartitionsRevoked(told("revoked")),
		kgo.OnPartitionsLost(told("lost")),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		// The end of standard input asks for the end.
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		}
		stop()
	}()
	for ctx.Err() == nil {
		poll(ctx, client)
	}
	client.CloseAllowingRebalance()
	tell("closed", nil)
}

func poll(ctx context.Context, client *kgo.Client) {
	limited, done := context.WithTimeout(ctx, 200*time.Millisecond)
	defer done()
	fetches := client.PollFetches(limited)
	defer client.AllowRebalance()
	fetches.EachPartition(func(one kgo.FetchTopicPartition) {
		if count := len(one.Records); count > 0 {
			first, last := one.Records[0].Offset, one.Records[count-1].Offset
			tell("records", map[string]interface{}{"partition": one.Partition, "first": first, "last": last, "count": count})
		}
	})
	if fetches.NumRecords() > 0 {
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			tell("commit_failed", map[string]interface{}{"error": err.Error()})
		}
	}
}
