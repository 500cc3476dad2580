// Round trips through listeners on KafkaJS (see ../README.md).
const fs = require('fs')
const path = require('path')
const { Kafka, logLevel } = require('kafkajs')

const [folder, username, password, ...listeners] = process.argv.slice(2)

const login = (mechanism) => ({
  mechanism: mechanism.toLowerCase(),
  username,
  password,
  oauthBearerProvider: async () => ({ value: fs.readFileSync(path.join(folder, 'token'), 'utf8') }),
})

const roundTrip = async (value, address, topic, protocol, mechanism, certificate) => {
  const ssl = protocol.endsWith('SSL') && { ca: [fs.readFileSync(path.join(folder, 'authority.pem'))] }
  if (certificate) ssl.key = ssl.cert = fs.readFileSync(path.join(folder, certificate))
  const kafka = new Kafka({
    brokers: [address],
    logLevel: logLevel.NOTHING,
    ssl,
    sasl: mechanism ? login(mechanism) : undefined,
    retry: { retries: 2 },
  })
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: [{ value }] })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: value, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const failed = new Promise((_, reject) => consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error)))
  const found = new Promise((resolve) => {
    const eachMessage = async ({ message }) => message.value.toString() === value && resolve(value)
    consumer.run({ eachMessage }).catch(resolve)
  })
  try {
    return await Promise.race([found, failed])
  } finally {
    await consumer.disconnect()
  }
}

const main = async () => {
  for (const listener of listeners) {
    console.log(String(await roundTrip(...listener.split(',')).catch((error) => error)))
  }
}

main()
