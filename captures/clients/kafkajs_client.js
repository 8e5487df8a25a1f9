// KafkaJS: admin, codecs and acks, transactions, a group with a rebalance, and some errors.
'use strict'
const fs = require('fs')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const SnappyCodec = require('kafkajs-snappy')
const version = require('kafkajs/package.json').version

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec

const TOPIC = 'orders'
const brokers = (process.env.BOOTSTRAP || '127.0.0.1:9092').split(',')
const facts = { client: 'kafkajs', version, produced: [], consumed: {}, errors: [], notes: [] }
const kafkaFor = clientId => new Kafka({ clientId, brokers, logLevel: logLevel.ERROR, retry: { retries: 2 } })
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const failed = (clientId, what, e) => facts.errors.push({ client_id: clientId, what, code: e.code ?? null, name: e.type || e.name })

function note (clientId, acks, codec, sent, results, more = {}) {
  const bases = new Map(results.map(r => [r.partition, acks === 0 ? null : Number(r.baseOffset)]))
  for (const partition of sent) {
    const offset = bases.get(partition) ?? null
    facts.produced.push({ client_id: clientId, topic: TOPIC, partition, offset, acks: acks === -1 ? 'all' : String(acks), codec, ...more })
    if (offset !== null) bases.set(partition, offset + 1)
  }
}

async function produce (codec, acks) {
  const clientId = `kafkajs-${codec}-acks-${acks === -1 ? 'all' : acks}`
  const producer = kafkaFor(clientId).producer()
  await producer.connect()
  const messages = [0, 1, 2, 3].map(n => ({ key: `key-${n}`, value: `value ${n} again and again and again`, partition: n % 2, headers: { n: `${n}` } }))
  const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }[codec]
  const results = await producer.send({ topic: TOPIC, acks, compression, messages })
  note(clientId, acks, codec, messages.map(m => m.partition), results || [])
  await producer.disconnect()
}

async function transactions () {
  const clientId = 'kafkajs-transactional'
  const producer = kafkaFor(clientId).producer({ transactionalId: 'js-tx', maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  for (const outcome of ['commit', 'abort']) {
    const transaction = await producer.transaction()
    const results = await transaction.send({ topic: TOPIC, acks: -1, messages: [{ value: outcome, partition: 0 }] })
    note(clientId, -1, 'none', [0], results, { transaction: outcome })
    if (outcome === 'commit') {
      await transaction.sendOffsets({ consumerGroupId: 'js-tx-group', topics: [{ topic: TOPIC, partitions: [{ partition: 0, offset: '2' }] }] })
    }
    await transaction[outcome]()
    facts.notes.push({ transaction: outcome, client_id: clientId })
  }
  await producer.disconnect()
}

async function member (clientId) {
  const consumer = kafkaFor(clientId).consumer({ groupId: 'kafkajs-group', heartbeatInterval: 500, sessionTimeout: 6000, maxWaitTimeInMs: 200 })
  await consumer.connect()
  consumer.on(consumer.events.GROUP_JOIN, e => facts.notes.push({ client_id: clientId, event: 'joined', partitions: e.payload.memberAssignment[TOPIC] || [] }))
  await consumer.subscribe({ topic: TOPIC, fromBeginning: true })
  await consumer.run({ eachMessage: async () => { facts.consumed[TOPIC] = (facts.consumed[TOPIC] || 0) + 1 } })
  return consumer
}

async function group () {
  const first = await member('kafkajs-first')
  await sleep(2000)
  const second = await member('kafkajs-second')
  await sleep(3000)
  await second.disconnect()
  await sleep(2000)
  await first.disconnect()
}

async function main () {
  const admin = kafkaFor('kafkajs-admin').admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic: TOPIC, numPartitions: 2, replicationFactor: 1 }] })
  for (const codec of ['none', 'gzip', 'snappy']) {
    for (const acks of [0, 1, -1]) await produce(codec, acks)
  }
  if (process.argv.includes('--transactions')) await transactions()
  await group()
  const calls = {
    describeCluster: () => admin.describeCluster(),
    fetchTopicOffsets: () => admin.fetchTopicOffsets(TOPIC),
    fetchOffsets: () => admin.fetchOffsets({ groupId: 'kafkajs-group', topics: [TOPIC] }),
    describeConfigs: () => admin.describeConfigs({ includeSynonyms: true, resources: [{ type: 2, name: TOPIC, configNames: ['retention.ms'] }] }),
    alterConfigs: () => admin.alterConfigs({ resources: [{ type: 2, name: TOPIC, configEntries: [{ name: 'retention.ms', value: '60000' }] }] }),
    listGroups: () => admin.listGroups(),
    describeGroups: () => admin.describeGroups(['kafkajs-group']),
    createTopicsBadReplication: () => admin.createTopics({ topics: [{ topic: 'wide', replicationFactor: 9 }] }),
    fetchTopicMetadataMissing: () => admin.fetchTopicMetadata({ topics: ['missing'] }),
    createPartitions: () => admin.createPartitions({ topicPartitions: [{ topic: TOPIC, count: 3 }] }),
    deleteTopicRecords: () => admin.deleteTopicRecords({ topic: TOPIC, partitions: [{ partition: 0, offset: '1' }] }),
    deleteGroups: () => admin.deleteGroups(['kafkajs-group']),
    deleteTopics: () => admin.deleteTopics({ topics: [TOPIC] })
  }
  for (const [what, run] of Object.entries(calls)) {
    try {
      await run()
      facts.notes.push({ call: what, outcome: 'ok' })
    } catch (e) {
      failed('kafkajs-admin', what, e)
    }
  }
  await admin.disconnect()
  fs.writeFileSync(process.env.FACTS, JSON.stringify(facts, null, 1))
}

main().catch(e => { console.error(e); process.exit(1) })
