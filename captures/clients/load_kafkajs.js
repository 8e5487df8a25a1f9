// The load of load_client.py by KafkaJS: ROLE SECONDS.
'use strict'
const fs = require('fs')
const crypto = require('crypto')
const { Kafka, logLevel } = require('kafkajs')
const [role, seconds] = process.argv.slice(2)
const end = Date.now() + 1000 * Number(seconds)
const { BOOTSTRAP, AUTHORITY } = process.env
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const kafka = new Kafka({ clientId: `load-${role}`, brokers: [BOOTSTRAP], ssl: { ca: [fs.readFileSync(AUTHORITY)] }, logLevel: logLevel.ERROR })
const topic = 'orders'

async function main () {
  if (role === 'read') {
    const consumer = kafka.consumer({ groupId: 'kafkajs', maxWaitTimeInMs: 500, heartbeatInterval: 1000, sessionTimeout: 6000 })
    await consumer.connect()
    await consumer.subscribe({ topic })
    await consumer.run({ autoCommitInterval: 1000, eachBatch: async () => {} })
    await sleep(end - Date.now())
    await consumer.disconnect()
  } else if (role === 'admin') {
    const admin = kafka.admin()
    await admin.connect()
    while (Date.now() < end) {
      await admin.fetchTopicMetadata({ topics: [topic] })
      await admin.listGroups()
      await admin.fetchTopicOffsets(topic)
      await sleep(Math.random() * 20)
    }
    await admin.disconnect()
  } else {
    const producer = kafka.producer({ maxInFlightRequests: 5 })
    await producer.connect()
    const waiting = new Set()
    while (Date.now() < end) {
      const many = role === 'big' ? 2 : Math.ceil(Math.random() * 8)
      for (let n = 0; n < many; n++) {
        const messages = role === 'big' ? Array(95).fill({ value: crypto.randomBytes(1000) }) : [{ value: crypto.randomBytes(20 + Math.floor(Math.random() * 380)) }]
        const sent = producer.send({ topic, acks: role === 'none' ? 0 : -1, messages }).finally(() => waiting.delete(sent))
        waiting.add(sent)
        if (Math.random() < 0.5) await sleep(0)
      }
      await sleep(role === 'big' ? 40 : Math.random() * 16)
    }
    await Promise.all(waiting)
    await producer.disconnect()
  }
}
main().catch(e => { console.error(e); process.exit(1) })
