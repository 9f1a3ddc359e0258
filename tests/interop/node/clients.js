'use strict';
// Ordinary producers and consumers of ali-ons against any cluster: node clients.js NAMESERVER TOPIC. The topic and the
// groups' retry topics must exist: this client takes a missing route for a failure.
const { Consumer, Producer, Message } = require('ali-ons');

const [ nameSrv, topic ] = process.argv.slice(2);
const httpclient = { request: async () => ({ status: 200, data: '' }) };
const logger = { info() {}, warn() {}, debug() {}, error: problem => console.error(problem), log() {} };

async function until(what, holds) {
  const deadline = Date.now() + 40000;
  while (!holds()) {
    if (Date.now() > deadline) throw new Error(`${what} did not happen in time`);
    await new Promise(resolve => setTimeout(resolve, 20));
  }
}

function consumer(consumerGroup, tags, bodies) {
  const made = new Consumer({ httpclient, nameSrv, consumerGroup, logger, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET' });
  made.on('error', problem => console.error(problem.message));
  made.subscribe(topic, tags, async message => { bodies.add(message.body.toString()); });
  return made;
}

async function main() {
  const producer = new Producer({ httpclient, nameSrv, producerGroup: 'node-producer', logger });
  producer.on('error', problem => console.error(problem.message));
  await producer.ready();
  for (let i = 0; i < 20; i++) {
    const result = await producer.send(new Message(topic, i % 2 ? 'TagB' : 'TagA', `node-${i}`));
    if (result.sendStatus !== 'SEND_OK') throw new Error(JSON.stringify(result));
  }
  console.log('sent 20');
  const all = new Set();
  const tagged = new Set();
  const consumers = [ consumer('node-all', '*', all), consumer('node-tagged', 'TagB', tagged) ];
  await Promise.all(consumers.map(one => one.ready()));
  await until('consuming', () => all.size === 20 && tagged.size === 10);
  await producer.send(new Message(topic, 'TagB', 'node-late')); // wakes held pulls
  await until('waking', () => all.size === 21 && tagged.size === 11);
  console.log(`all ${all.size}`);
  console.log(`tagged ${tagged.size}`);
  await Promise.all(consumers.map(one => one.close()));
  await producer.close();
}

main().then(() => process.exit(0), problem => {
  console.error(problem);
  process.exit(1);
});
