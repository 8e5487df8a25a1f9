// KafkaJS over plaintext, TLS 1.3 with ChaCha20, TLS 1.2, and TLS 1.3 with AES-128 and a password. Node.js itself logs the secrets.
'use strict'
const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')
const version = require('kafkajs/package.json').version

const TOPIC = 'orders'
const { PLAINTEXT, BOOTSTRAP, SASL_SSL, AUTHORITY, SASL_USER, SASL_PASSWORD, FACTS } = process.env
const facts = { client: 'kafkajs', version, produced: [], consumed: {}, errors: [], notes: [] }
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const trust = more => ({ ca: [fs.readFileSync(AUTHORITY)], servername: '', ...more })

async function everything (name, security) {
  const kafkaFor = clientId => new Kafka({ clientId, logLevel: logLevel.NOTHING, retry: { retries: 2 }, ...security })
  const admin = kafkaFor(`kafkajs-${name}-admin`).admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic: TOPIC, numPartitions: 1, replicationFactor: 1 }] })
  try {
    await admin.createTopics({ topics: [{ topic: 'wide', numPartitions: 1, replicationFactor: 9 }] })
  } catch (e) {
    const { code, type } = e.errors ? e.errors[0] : e
    facts.errors.push({ client_id: `kafkajs-${name}-admin`, what: 'create_topics', code: code ?? null, name: type || e.name })
  }
  const producer = kafkaFor(`kafkajs-${name}`).producer()
  await producer.connect()
  const messages = [0, 1, 2].map(n => ({ key: `key-${n}`, value: `secret ${n}`, partition: 0 }))
  const [result] = await producer.send({ topic: TOPIC, acks: -1, messages })
  messages.forEach((_, n) => facts.produced.push({ client_id: `kafkajs-${name}`, topic: TOPIC, partition: 0, offset: Number(result.baseOffset) + n, acks: 'all', codec: 'none' }))
  await producer.disconnect()
  const consumer = kafkaFor(`kafkajs-${name}-reader`).consumer({ groupId: `readers-${name}`, maxWaitTimeInMs: 300 })
  await consumer.connect()
  await consumer.subscribe({ topic: TOPIC, fromBeginning: true })
  await consumer.run({ eachMessage: async () => { facts.consumed[TOPIC] = (facts.consumed[TOPIC] || 0) + 1 } })
  for (let n = 0; n < 40 && (facts.consumed[TOPIC] || 0) < facts.produced.length; n++) await sleep(250)
  await consumer.disconnect()
  await admin.deleteTopics({ topics: [TOPIC] })
  await admin.disconnect()
  await sleep(500)
}

async function main () {
  await everything('plaintext', { brokers: [PLAINTEXT] })
  const chacha = { ciphers: 'TLS_CHACHA20_POLY1305_SHA256', minVersion: 'TLSv1.3' }
  await everything('tls1.3', { brokers: [BOOTSTRAP], ssl: trust(chacha) })
  await everything('tls1.2', { brokers: [BOOTSTRAP], ssl: trust({ maxVersion: 'TLSv1.2' }) })
  const sasl = { mechanism: 'plain', username: SASL_USER, password: SASL_PASSWORD }
  const aes = { ciphers: 'TLS_AES_128_GCM_SHA256', minVersion: 'TLSv1.3' }
  await everything('plain', { brokers: [SASL_SSL], ssl: trust(aes), sasl })
  fs.writeFileSync(FACTS, JSON.stringify(facts, null, 1))
}

main().catch(e => { console.error(e); process.exit(1) })
