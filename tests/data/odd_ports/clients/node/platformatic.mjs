// @platformatic/kafka: a producer and a consumer in a group that keep their connections for some seconds.
import fs from 'node:fs'
import { Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const bootstrapBrokers = [process.env.BOOTSTRAP]
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const produced = []
const producer = new Producer({ clientId: 'platformatic-producer', bootstrapBrokers, serializers: stringSerializers })
const send = async value => {
  const done = await producer.send({ messages: [{ topic: 'orders', value }], acks: -1 })
  for (const { partition, offset } of done.offsets) produced.push({ partition, offset: Number(offset) })
}
const consumer = new Consumer({ clientId: 'platformatic-consumer', groupId: 'platformatic', bootstrapBrokers, deserializers: stringDeserializers })
const stream = await consumer.consume({ topics: ['orders'], mode: 'earliest', sessionTimeout: 10000, heartbeatInterval: 500, maxWaitTime: 300 })
stream.on('data', () => {})
const end = Date.now() + Number(process.argv[2]) * 1000
while (Date.now() < end) {
  await send('steady')
  await sleep(60)
}
fs.writeFileSync(process.env.FACTS, JSON.stringify({ produced }))
await stream.close()
await consumer.close()
await producer.close()
process.exit(0)
