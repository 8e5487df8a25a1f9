// KafkaJS: a producer and a consumer in a group that keep their connections for some seconds.
'use strict'
const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const produced = []

async function main () {
  const kafka = clientId => new Kafka({ clientId, brokers: [process.env.BOOTSTRAP], logLevel: logLevel.ERROR })
  const producer = kafka('kafkajs-producer').producer()
  await producer.connect()
  const consumer = kafka('kafkajs-consumer').consumer({ groupId: 'kafkajs', heartbeatInterval: 500, maxWaitTimeInMs: 300 })
  const send = async value => {
    const [done] = await producer.send({ topic: 'orders', acks: -1, messages: [{ value }] })
    produced.push({ partition: done.partition, offset: Number(done.baseOffset) })
  }
  await send('first')
  await consumer.connect()
  await consumer.subscribe({ topic: 'orders', fromBeginning: true })
  await consumer.run({ eachMessage: async () => {} })
  const end = Date.now() + Number(process.argv[2]) * 1000
  while (Date.now() < end) {
    await send('steady')
    await sleep(60)
  }
  await consumer.disconnect()
  await producer.disconnect()
  fs.writeFileSync(process.env.FACTS, JSON.stringify({ produced }))
}

main().catch(error => { console.error(error); process.exit(1) })
