package orders

import (
	"context"
	"reflect"
	"sort"
	"testing"
	"time"
)

func TestOrdersAreBilledOnce(t *testing.T) {
	broker := startBroker(t, "--topic", "orders:3")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	send(t, ctx, broker, map[string]string{"anna": "4 apples", "dora": "2 pears"})
	if billed := bill(t, ctx, broker, 2); !reflect.DeepEqual(billed, []string{"2 pears", "4 apples"}) {
		t.Fatalf("billed %v", billed)
	}

	send(t, ctx, broker, map[string]string{"anna": "1 plum"})
	if billed := bill(t, ctx, broker, 1); !reflect.DeepEqual(billed, []string{"1 plum"}) {
		t.Fatalf("billed %v", billed)
	}
}

func send(t *testing.T, ctx context.Context, broker string, orders map[string]string) {
	t.Helper()
	if err := Send(ctx, broker, orders); err != nil {
		t.Fatal(err)
	}
}

func bill(t *testing.T, ctx context.Context, broker string, count int) []string {
	t.Helper()
	billed, err := Bill(ctx, broker, "billing", count)
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(billed)
	return billed
}
