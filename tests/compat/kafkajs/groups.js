// Members of one group in one process, printed as JSON: node groups.js NAME BOOTSTRAP TOPIC GROUP
const { Kafka, logLevel } = require('kafkajs')

const [name, bootstrap, topic, groupId] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'compat', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 8 } })
const partitions = 4

async function member() {
  const times = { sessionTimeout: 6000, heartbeatInterval: 200, rebalanceTimeout: 6000, maxWaitTimeInMs: 100 }
  const consumer = kafka.consumer({ groupId, ...times })
  const self = { consumer, owned: [], read: new Set() }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => { self.owned = payload.memberAssignment[topic] || [] })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommitThreshold: 1,
    eachMessage: async ({ partition, message }) => { self.read.add(`${partition}-${message.offset}`) },
  })
  return self
}

async function until(done) {
  const end = Date.now() + 60000
  while (!done()) {
    if (Date.now() > end) throw new Error('it takes too long')
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}

const share = members => members.every(one => one.owned.length > 0)
  && members.flatMap(one => one.owned).sort().join() === [...Array(partitions).keys()].join()
const read = members => new Set(members.flatMap(one => [...one.read])).size

async function send(count) {
  const producer = kafka.producer()
  await producer.connect()
  for (let partition = 0; partition < partitions; partition++) {
    await producer.send({ topic, messages: [...Array(count).keys()].map(n => ({ partition, value: `${n}` })) })
  }
  await producer.disconnect()
}

const scenarios = {
  async share() {
    await send(10)
    const first = await member()
    await until(() => share([first]))
    const second = await member()
    await until(() => share([first, second]) && read([first, second]) === 40)
    await first.consumer.disconnect()
    await until(() => share([second]))
    await send(10)
    await until(() => read([first, second]) === 80)
    const admin = kafka.admin()
    await admin.connect()
    const { groups: [described] } = await admin.describeGroups([groupId])
    const { groups } = await admin.listGroups()
    await second.consumer.disconnect()
    const offsets = await admin.fetchOffsets({ groupId, topics: [topic] })
    const deleted = await admin.deleteGroups([groupId])
    await admin.disconnect()
    return {
      state: described.state, protocol: described.protocol, members: described.members.length,
      listed: groups.some(group => group.groupId === groupId),
      offsets: offsets[0].partitions.map(one => Number(one.offset)), deleted: deleted.map(one => one.errorCode || 0),
    }
  },
}

scenarios[name]().then(
  found => { console.log(JSON.stringify(found)); process.exit(0) },
  error => { console.error(error); process.exit(1) },
)
