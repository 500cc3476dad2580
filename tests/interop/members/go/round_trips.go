package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const roundTripTimeout = 60 * time.Second

// Each listener in turn (see ../README.md).
func roundTrips(folder, user, password string, listeners []string) {
	for _, listener := range listeners {
		words := strings.Split(listener, ",")
		value, err := roundTrip(folder, user, password, words[0], words[1], words[2], words[3], words[4], words[5])
		if err != nil {
			value = err.Error()
		}
		fmt.Println(value)
	}
}

func roundTrip(folder, user, password, name, address, topic, protocol, mechanism, certificate string) (string, error) {
	options := []kgo.Opt{kgo.SeedBrokers(address)}
	if strings.HasSuffix(protocol, "SSL") {
		authority, err := os.ReadFile(filepath.Join(folder, "authority.pem"))
		if err != nil {
			return "", err
		}
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AppendCertsFromPEM(authority)
		if certificate != "" {
			path := filepath.Join(folder, certificate)
			shown, err := tls.LoadX509KeyPair(path, path)
			if err != nil {
				return "", err
			}
			config.Certificates = []tls.Certificate{shown}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	switch mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	}
	ctx, done := context.WithTimeout(context.Background(), roundTripTimeout)
	defer done()
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return "", err
	}
	defer producer.Close()
	sent, err := producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(name)}).First()
	if err != nil {
		return "", err
	}
	start := map[string]map[int32]kgo.Offset{topic: {sent.Partition: kgo.NewOffset().At(sent.Offset)}}
	consumer, err := kgo.NewClient(append(options, kgo.ConsumePartitions(start))...)
	if err != nil {
		return "", err
	}
	defer consumer.Close()
	fetches := consumer.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		return "", err
	}
	return string(fetches.Records()[0].Value), nil
}
