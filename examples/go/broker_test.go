package orders

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// startBroker starts the test broker of ottla for this test, and returns its address.
func startBroker(t *testing.T, options ...string) string {
	t.Helper()
	command := exec.Command("ottla", append([]string{"test-broker"}, options...)...)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe() // closed when the tests end, and with it the broker
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("is ottla installed? pip install ottla: %v", err)
	}
	t.Cleanup(func() {
		input.Close()
		command.Wait()
	})
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("the test broker did not start: %v", err)
	}
	return strings.TrimSpace(address)
}
