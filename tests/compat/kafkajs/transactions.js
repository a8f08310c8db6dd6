// Transactions, printed as JSON: node transactions.js NAME BOOTSTRAP SOURCE TARGET ID
const { Kafka, logLevel } = require('kafkajs')

const [name, bootstrap, source, target, id] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'compat', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 8 } })

async function transactional() {
  const producer = kafka.producer({ transactionalId: id, maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  return producer
}

// Its consumer reads committed records unless it is told otherwise.
async function committed(topic, count) {
  const consumer = kafka.consumer({ groupId: `${id}-reader`, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const values = []
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`only ${values} came`)), 60000).unref()
    consumer.run({
      eachMessage: async ({ message }) => {
        values.push(message.value.toString())
        if (values.length === count) resolve()
      },
    })
  })
  await consumer.disconnect()
  return values
}

const scenarios = {
  async ends() {
    const producer = await transactional()
    for (let number = 0; number < 5; number++) {
      const transaction = await producer.transaction()
      await transaction.send({ topic: target, messages: [{ value: `${number}` }, { value: `${number}` }] })
      if (number % 2) await transaction.abort()
      else await transaction.commit()
    }
    await producer.disconnect()
    return await committed(target, 6)
  },

  async offsets() {
    const feeder = kafka.producer()
    await feeder.connect()
    await feeder.send({ topic: source, messages: [...Array(6).keys()].map(n => ({ value: `${n}` })) })
    await feeder.disconnect()
    const producer = await transactional()
    const admin = kafka.admin()
    await admin.connect()
    const groupId = `${id}-group`
    const seen = []
    for (const [offset, commits] of [['3', true], ['6', false], ['5', true]]) {
      const transaction = await producer.transaction()
      await transaction.send({ topic: target, messages: [{ value: `up to ${offset}` }] })
      await transaction.sendOffsets({
        consumerGroupId: groupId, topics: [{ topic: source, partitions: [{ partition: 0, offset }] }],
      })
      if (commits) await transaction.commit()
      else await transaction.abort()
      let [found] = await admin.fetchOffsets({ groupId, topics: [source] })
      for (let turn = 0; commits && found.partitions[0].offset !== offset && turn < 200; turn++) {
        await new Promise(resolve => setTimeout(resolve, 20))
        found = (await admin.fetchOffsets({ groupId, topics: [source] }))[0]
      }
      seen.push(found.partitions[0].offset)
    }
    await producer.disconnect()
    await admin.disconnect()
    return { seen, values: await committed(target, 2) }
  },
}

scenarios[name]().then(
  found => { console.log(JSON.stringify(found)); process.exit(0) },
  error => { console.error(error); process.exit(1) },
)
