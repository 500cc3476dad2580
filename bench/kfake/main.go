// A kfake cluster of one broker, as a process: prints its address, and ends with its standard input.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(1))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("listening on " + cluster.ListenAddrs()[0])
	io.Copy(io.Discard, os.Stdin)
	cluster.Close()
}
