'use strict';
// Ordinary producers and consumers of ali-ons against any cluster: node clients.js MODE NAMESERVER TOPIC. The topic and
// the groups' retry topics must exist: this client takes a missing route for a failure. It sends one message at a time
// and waits for the answer; it has no one-way, batch or ordered sends, and consumes each queue in order by itself.
const { Consumer, Producer, Message } = require('ali-ons');

const WAIT_MS_MAX = 60000;
const SENT = 21;
const QUEUES = 4;
const [ mode, nameSrv, topic ] = process.argv.slice(2);
const keys = process.env.ACCESS_KEY ? { accessKey: process.env.ACCESS_KEY, secretKey: process.env.SECRET_KEY } : {};
const httpclient = { request: async () => ({ status: 200, data: '' }) };
const logger = { info() {}, warn() {}, debug() {}, error: problem => console.error(problem), log() {} };

async function until(what, holds) {
  const deadline = Date.now() + WAIT_MS_MAX;
  while (!await holds()) {
    if (Date.now() > deadline) throw new Error(`${what} did not happen in time`);
    await new Promise(resolve => setTimeout(resolve, 20));
  }
}

// A push consumer and what it was given: the bodies, and how often the order of a queue was broken.
class Member {
  constructor(consumerGroup, tags, options = {}) {
    this.bodies = new Set();
    this.disorder = 0;
    this.next = new Map();
    this.consumer = new Consumer({
      httpclient, nameSrv, consumerGroup, logger, ...keys, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
      instanceName: `member-${Member.made++}`, ...options,
    });
    this.consumer.on('error', problem => console.error(problem.message));
    this.consumer.subscribe(topic, tags, async message => this.take(message));
  }

  take(message) {
    const next = this.next.get(message.queueId);
    if (next !== undefined && next !== message.queueOffset) this.disorder++;
    this.next.set(message.queueId, message.queueOffset + 1);
    this.bodies.add(message.body.toString());
  }

  count(prefix = '') {
    return [ ...this.bodies ].filter(body => body.startsWith(prefix)).length;
  }

  async leave() {
    await this.consumer.close();
  }
}
Member.made = 0;

const producer = new Producer({ httpclient, nameSrv, producerGroup: 'node-producer', logger, ...keys });
producer.on('error', problem => console.error(problem.message));

async function send(body, tag = 'TagA') {
  const message = new Message(topic, tag, body);
  message.keys = [ `key-${body}` ];
  const result = await producer.send(message);
  if (result.sendStatus !== 'SEND_OK') throw new Error(JSON.stringify(result));
}

let rounds = 0;
// As many messages as queues, which the producer fills in turn; how many of them each member got, once they got all or
// a second is over.
async function round(...members) {
  const prefix = `round-${++rounds}-`;
  for (let i = 0; i < QUEUES; i++) await send(`${prefix}${i}`);
  const counts = () => members.map(one => one.count(prefix));
  const deadline = Date.now() + 1000;
  while (Date.now() < deadline && counts().reduce((sum, count) => sum + count) < QUEUES) {
    await new Promise(resolve => setTimeout(resolve, 20));
  }
  return counts().join(' ');
}

const modes = {
  async produce() { // ten of 20 have TagB; one is large enough to be compressed
    for (let i = 0; i < 20; i++) await send(`sync-${i}`, i % 2 ? 'TagB' : 'TagA');
    await send(`large-${'x'.repeat(10000)}`);
    console.log(`sent ${SENT}`);
  },

  async consume() {
    const all = new Member('node-all', '*');
    const tagged = new Member('node-tagged', 'TagB || TagC');
    const copies = [ 'a', 'b' ].map(() => new Member('node-broadcast', '*', { isBroadcast: true }));
    await until('consuming', () => all.count() >= SENT && tagged.count() >= 10 && copies.every(one => one.count() >= SENT));
    await send('late', 'TagB'); // wakes held pulls
    await until('waking', () => [ all, tagged, ...copies ].every(one => one.count('late') === 1));
    console.log(`all ${all.count()}`);
    console.log(`disorder ${all.disorder}`);
    console.log(`tagged ${tagged.count()}`);
    console.log(`broadcast ${copies.map(one => one.count()).join(' ')}`);
    for (const one of [ all, tagged, ...copies ]) await one.leave();
  },

  async rebalance() { // two members share the queues; when one leaves, the other takes all and what comes after
    const one = new Member('node-shared', '*');
    const two = new Member('node-shared', '*');
    await until('sharing', async () => await round(one, two) === '2 2');
    console.log(`shared ${await round(one, two)}`);
    const left = Date.now();
    await two.leave();
    await until('taking over', async () => await round(one) === `${QUEUES}`);
    console.log(`quick ${Date.now() - left < 25000}`); // it does not listen to the broker, but looks every 10 s
    for (let i = 0; i < 20; i++) await send(`later-${i}`);
    await until('later messages', () => one.count('later-') === 20);
    console.log(`later ${one.count('later-')}`);
    await one.leave();
  },

  async resume() { // a group that was here before gets only what is new
    for (let i = 0; i < 10; i++) await send(`new-${i}`);
    const one = new Member('node-all', '*');
    await until('new messages', () => one.count('new-') === 10);
    console.log(`again ${one.count('sync-')}`);
    await one.leave();
  },
};

producer.ready().then(() => modes[mode]()).then(() => process.exit(0), problem => {
  console.error(problem);
  process.exit(1);
});
