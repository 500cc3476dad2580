// A member of a consumer group on KafkaJS, in the tests' line protocol (see ../README.md).
//
// KafkaJS has no assignor that carries the name of one of Kafka's, so that it cannot share a group with other clients;
// `rangeAssigner` below is one, with the rule of Kafka's range assignor for members of one topic.
const { Kafka, logLevel, AssignerProtocol } = require('kafkajs')

const [bootstrap, groupId, topic, clientId, , sessionMs] = process.argv.slice(2)

const tell = (event, more = {}) => console.log(JSON.stringify({ event, at: Date.now() / 1000, ...more }))

const rangeAssigner = ({ cluster }) => ({
  name: 'range',
  version: 0,
  protocol: ({ topics }) => ({
    name: 'range',
    metadata: AssignerProtocol.MemberMetadata.encode({ version: 0, topics, userData: Buffer.alloc(0) }),
  }),
  async assign({ members, topics }) {
    const sorted = members.map(({ memberId }) => memberId).sort()
    const shares = new Map(sorted.map((memberId) => [memberId, {}]))
    for (const name of topics) {
      const count = cluster.findTopicPartitionMetadata(name).length
      const [each, over] = [Math.floor(count / sorted.length), count % sorted.length]
      let next = 0
      sorted.forEach((memberId, index) => {
        const size = each + (index < over ? 1 : 0)
        shares.get(memberId)[name] = Array.from({ length: size }, () => next++)
      })
    }
    return sorted.map((memberId) => ({
      memberId,
      memberAssignment: AssignerProtocol.MemberAssignment.encode({
        version: 0,
        assignment: shares.get(memberId),
        userData: Buffer.alloc(0),
      }),
    }))
  },
})

async function main() {
  const kafka = new Kafka({ clientId, brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 50 } })
  const consumer = kafka.consumer({
    groupId,
    partitionAssigners: [rangeAssigner],
    sessionTimeout: Number(sessionMs),
    heartbeatInterval: Math.floor(Number(sessionMs) / 6),
    rebalanceTimeout: 20000,
    maxWaitTimeInMs: 100,
  })
  let owned = []
  const giveUp = (event) => {
    if (owned.length) tell(event, { partitions: owned })
    owned = []
  }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    giveUp('revoked')
    owned = payload.memberAssignment[topic] || []
    tell('assigned', { partitions: owned })
  })
  consumer.on(consumer.events.REBALANCING, () => giveUp('revoked'))
  process.stdin.on('end', async () => {
    await consumer.stop()
    giveUp('revoked')
    await consumer.disconnect()
    tell('closed')
    process.exit(0)
  })
  process.stdin.resume()
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    eachBatch: async ({ batch }) => {
      const offsets = batch.messages.map((message) => Number(message.offset))
      if (!offsets.length) return
      const [first, last] = [offsets[0], offsets[offsets.length - 1]]
      tell('records', { partition: batch.partition, first, last, count: offsets.length })
    },
  })
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
