//! Orders are sent to a topic, and billed by a consumer group.

use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

const TOPIC: &str = "orders";
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
const BILL_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_TIMEOUT: Duration = Duration::from_millis(500);

/// Send orders (customer, text), and wait until the broker has them.
pub fn send(bootstrap_servers: &str, orders: &[(&str, &str)]) -> Result<(), KafkaError> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap_servers)
        .set("enable.idempotence", "true")
        .create()?;
    for (customer, order) in orders {
        let record = BaseRecord::to(TOPIC).key(*customer).payload(*order);
        producer.send(record).map_err(|(error, _)| error)?;
    }
    producer.flush(FLUSH_TIMEOUT)
}

/// Bill as many orders as a member of the group, and commit what was billed.
pub fn bill(bootstrap_servers: &str, group: &str, count: usize) -> Result<Vec<String>, KafkaError> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap_servers)
        .set("group.id", group)
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .create()?;
    consumer.subscribe(&[TOPIC])?;
    let mut billed = Vec::new();
    let deadline = Instant::now() + BILL_TIMEOUT;
    while billed.len() < count && Instant::now() < deadline {
        // A poll also ends, without a message, when the group rebalances.
        let Some(polled) = consumer.poll(POLL_TIMEOUT) else { continue };
        let message = polled?;
        billed.push(String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned());
        consumer.commit_message(&message, CommitMode::Sync)?;
    }
    Ok(billed)
}
