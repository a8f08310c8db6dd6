// Runs one scenario with kafkajs and prints what it saw as JSON: node scenario.js NAME BOOTSTRAP TOPIC
// kafkajs consumes in groups only (see groups.js): reading goes through its own broker connection here.
const {
  AclOperationTypes, AclPermissionTypes, AclResourceTypes, CompressionTypes, ConfigResourceTypes, Kafka,
  ResourcePatternTypes, logLevel,
} = require('kafkajs')
const Cluster = require('kafkajs/src/cluster')
const socketFactory = require('kafkajs/src/network/socketFactory')
const { createLogger } = require('kafkajs/src/loggers')
const consoleLogger = require('kafkajs/src/loggers/console')

const [name, bootstrap, topic] = process.argv.slice(2)
const hourAgo = String(Date.now() - 3600000) // retention takes what is older than a week
const kafka = new Kafka({ clientId: 'compat', brokers: [bootstrap], logLevel: logLevel.ERROR, retry: { retries: 8 } })

async function fetchAll(offset, count) {
  const cluster = new Cluster({
    logger: createLogger({ level: logLevel.ERROR, logCreator: consoleLogger }),
    socketFactory: socketFactory(),
    brokers: [bootstrap], clientId: 'compat', metadataMaxAge: 300000, retry: {},
    connectionTimeout: 10000, authenticationTimeout: 10000, requestTimeout: 60000, enforceRequestTimeout: true,
    isolationLevel: 1,
  })
  await cluster.connect()
  await cluster.addTargetTopic(topic)
  const leader = Object.keys(cluster.findLeaderForPartitions(topic, [0]))[0]
  const broker = await cluster.findBroker({ nodeId: leader })
  const found = []
  let next = offset
  while (found.length < count) {
    const { responses } = await broker.fetch({
      maxWaitTime: 500, minBytes: 1, maxBytes: 1 << 20, isolationLevel: 1,
      topics: [{ topic, partitions: [{ partition: 0, fetchOffset: String(next), maxBytes: 1 << 20 }] }],
    })
    for (const message of responses[0].partitions[0].messages) {
      if (Number(message.offset) < next) continue
      found.push(message)
      next = Number(message.offset) + 1
    }
  }
  await cluster.disconnect()
  return found
}

const text = buffer => (buffer === null ? null : buffer.toString())

async function produce(options, batches) {
  const producer = kafka.producer({ allowAutoTopicCreation: true, ...options })
  await producer.connect()
  const acknowledged = []
  for (const { acks, compression, messages } of batches) {
    acknowledged.push(await producer.send({ topic, acks, compression, messages }))
  }
  await producer.disconnect()
  return acknowledged
}

const scenarios = {
  async acknowledged() {
    const batches = []
    for (const acks of [0, 1, -1]) {
      for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
        const messages = [1, 2, 3].map(n => ({ value: `${acks} ${compression} ${n}` }))
        batches.push({ acks, compression, messages })
      }
    }
    const replies = await produce({}, batches)
    const found = await fetchAll(0, 18)
    return { errors: replies.flat().map(r => r.errorCode), values: found.map(m => text(m.value)) }
  },
  async idempotent() {
    const batches = [...Array(10).keys()].map(n => ({ acks: -1, messages: [{ value: `${n}` }, { value: `${n}` }] }))
    const replies = await produce({ idempotent: true, maxInFlightRequests: 1 }, batches)
    const found = await fetchAll(0, 20)
    return { offsets: replies.flat().map(r => Number(r.baseOffset)), values: found.map(m => text(m.value)) }
  },
  async fields() {
    const messages = [
      { key: 'key', value: 'value', headers: { a: 'b' }, timestamp: hourAgo },
      { key: null, value: null },
      { key: '', value: '' },
    ]
    await produce({}, [{ acks: -1, messages }])
    const found = await fetchAll(0, 3)
    return found.map(m => [text(m.key), text(m.value), Object.keys(m.headers).length])
  },
  async admin() {
    const admin = kafka.admin()
    await admin.connect()
    const created = await admin.createTopics({ topics: [{ topic, numPartitions: 3 }], waitForLeaders: true })
    const again = await admin.createTopics({ topics: [{ topic, numPartitions: 3 }] })
    await produce({}, [{ acks: -1, messages: [{ value: 'old', partition: 1, timestamp: hourAgo }] }])
    const offsets = await admin.fetchTopicOffsets(topic)
    const byTime = await admin.fetchTopicOffsetsByTimestamp(topic, 1600000000000)
    const { brokers } = await admin.describeCluster()
    await admin.deleteTopics({ topics: [topic] })
    const left = await admin.listTopics()
    await admin.disconnect()
    const ends = list => list.sort((a, b) => a.partition - b.partition).map(p => Number(p.offset))
    return {
      created, again, ends: ends(offsets), byTime: ends(byTime), gone: !left.includes(topic),
      brokers: brokers.map(b => `${b.host}:${b.port}`),
    }
  },

  async partitions() {
    const admin = kafka.admin()
    await admin.connect()
    const refused = async call => { try { return await call() } catch (error) { return error.type || error.message } }
    await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true })
    const grown = await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
    const again = await refused(() => admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] }))
    const metadata = await admin.fetchTopicMetadata({ topics: [topic] })
    const messages = [1, 2, 3, 4, 5].map(number => ({ value: String(number), partition: 0 }))
    await produce({}, [{ acks: -1, messages }])
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '3' }] })
    const afterThree = (await admin.fetchTopicOffsets(topic)).find(p => p.partition === 0)
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '-1' }] })
    const afterAll = (await admin.fetchTopicOffsets(topic)).find(p => p.partition === 0)
    const beyond = await refused(() =>
      admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '99' }] }))
    const { brokers } = await admin.describeCluster()
    const replicas = [brokers[0].nodeId]
    await admin.alterPartitionReassignments({
      topics: [{ topic, partitionAssignment: [{ partition: 0, replicas }] }],
    })
    const moving = await admin.listPartitionReassignments({ topics: [{ topic, partitions: [0, 1] }] })
    const elsewhere = await refused(() => admin.alterPartitionReassignments({
      topics: [{ topic, partitionAssignment: [{ partition: 0, replicas: [4711] }] }],
    }))
    const acls = await refused(() => admin.describeAcls({
      resourceType: AclResourceTypes.ANY, resourcePatternType: ResourcePatternTypes.ANY,
      operation: AclOperationTypes.ANY, permissionType: AclPermissionTypes.ANY,
    }))
    const acl = {
      resourceType: AclResourceTypes.TOPIC, resourceName: topic, resourcePatternType: ResourcePatternTypes.LITERAL,
      principal: 'User:ann', host: '*', operation: AclOperationTypes.READ, permissionType: AclPermissionTypes.ALLOW,
    }
    const newAcl = await refused(() => admin.createAcls({ acl: [acl] }))
    const noAcl = await refused(() => admin.deleteAcls({ filters: [acl] }))
    await admin.disconnect()
    return {
      newAcl, noAcl, grown, again, count: metadata.topics[0].partitions.length, afterThree: Number(afterThree.low),
      afterAll: Number(afterAll.low), beyond: String(beyond), moving: moving.topics, elsewhere: String(elsewhere), acls,
    }
  },
  async settings() {
    const admin = kafka.admin()
    await admin.connect()
    await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true })
    const change = value => admin.alterConfigs({
      validateOnly: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: 'retention.ms', value }] }],
    })
    await change('1000')
    const refused = await change('x').then(() => '', error => error.type)
    const { resources: [one] } = await admin.describeConfigs({
      includeSynonyms: true,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['retention.ms'] }],
    })
    const { brokers } = await admin.describeCluster()
    const { resources: [broker] } = await admin.describeConfigs({
      resources: [{ type: ConfigResourceTypes.BROKER, name: String(brokers[0].nodeId) }],
    })
    await admin.disconnect()
    return { entries: one.configEntries, refused, ofBroker: broker.configEntries.length }
  },
}

scenarios[name]().then(
  result => { console.log(JSON.stringify(result)); process.exit(0) },
  error => { console.error(error); process.exit(1) },
)
