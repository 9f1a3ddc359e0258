// Spark's streaming queries, from the reports they send to the cluster.
import { h, fill, badge, card, empty, facts, copyable } from '../dom.js';
import { t, ago, rate, count } from '../i18n.js';
import { api } from '../api.js';
import { spark as sparkline } from '../chart.js';

const STATES = { running: ['ok', () => t('running')], silent: ['warn', () => t('silent')], stopped: ['', () => t('stopped')], failed: ['bad', () => t('failed')] };

export default async function spark(page) {
  const { main, at } = page;
  const list = h('div.stack');
  const snippet = "spark.readStream.format(\"rocketmq\")\n  .option(\"nameServers\", \"HOST:9876\")\n  .option(\"subscribe\", \"Orders\")\n  .load()";
  async function load() {
    const found = await api(`${at}/spark/queries`);
    if (!page.alive()) return;
    fill(list, found.items.length ? found.items.map((one) => card(one.name, [badge(STATES[one.state][0], STATES[one.state][1]()), sparkline(one.rates)], h('div.body', facts([[t('Last report'), ago(one.reported_ms)], ...Object.entries(one.report).filter(([, value]) => value !== null).map(([name, value]) => [name, typeof value === 'object' ? h('span.mono', JSON.stringify(value)) : typeof value === 'number' ? count(value) : String(value)])]))))
      : h('section.card', empty(t('No query has reported'), found.exists ? t('No report in the last 24 hours.') : t('Streaming queries of RocketQ report to the topic {topic} once they run against this cluster.', { topic: found.topic }))));
  }
  fill(main, h('div.page-head', h('div.titles', h('h1', t('Spark')), h('p.sub', t('Streaming queries that read from or write to this cluster.')))), list, card(t('Read a topic with Spark'), null, h('div.body', copyable(snippet))));
  await load();
  page.onsample(() => load().catch(() => {}));
}
export { rate };
