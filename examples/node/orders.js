// Orders are sent to a topic, and billed by a consumer group.
import { Kafka, logLevel } from 'kafkajs';

const TOPIC = 'orders';

const connect = (bootstrapServers) => new Kafka({ brokers: [bootstrapServers], logLevel: logLevel.ERROR });

/** Send orders ({ key: customer, value: order }), and wait until the broker has them. */
export async function send(bootstrapServers, orders) {
  const producer = connect(bootstrapServers).producer();
  await producer.connect();
  try {
    await producer.send({ topic: TOPIC, messages: orders });
  } finally {
    await producer.disconnect();
  }
}

/** Bill this many orders as a member of the group; what was billed is committed. */
export async function bill(bootstrapServers, groupId, count) {
  const consumer = connect(bootstrapServers).consumer({ groupId });
  const billed = [];
  await consumer.connect();
  try {
    await consumer.subscribe({ topic: TOPIC, fromBeginning: true });
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
      const eachMessage = async ({ message }) => {
        billed.push(message.value.toString());
        if (billed.length === count) resolve();
      };
      consumer.run({ eachMessage }).catch(reject);
    });
  } finally {
    await consumer.disconnect();
  }
  return billed;
}
