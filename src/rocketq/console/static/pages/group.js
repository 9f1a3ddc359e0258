// One group: lag per queue, members, subscriptions, configuration; reset, pause, delete.
import { h, fill, badge, card, notice, empty, select, field, facts, copyButton } from '../dom.js';
import { t, plural, count, short, rate, time, ago, duration } from '../i18n.js';
import { api, seg } from '../api.js';
import { makeTable } from '../table.js';
import { ask, change, drawer, problemText, toast } from '../change.js';
import { chartBox } from '../chart.js';
import { lagCell, reasonText, tabs, timeInput, timeOf, trendCell } from './parts.js';

export default async function group(page) {
  const { main, at, item, can, path } = page;
  const tab = page.query.get('tab') || 'queues';
  let found = await api(`${at}/groups/${seg(item)}`);
  if (!page.alive()) return;
  const body = h('div.stack');
  const tiles = h('div.tiles');
  const bars = h('div.stack');
  const enabled = Object.values(found.configs).every((one) => one.consume_enable);
  fill(main, h('div.page-head', h('div.titles', h('div.crumbs', h('a', { href: path('groups') }, t('Groups')), '/'), h('h1', item, enabled ? null : h('span', ' ', badge('warn', t('paused')))), h('p.sub', found.online ? [plural(found.members.length, t('1 member'), t('{n} members', { n: found.members.length })), ', ', found.model === 'BROADCASTING' ? t('broadcasting') : t('clustering')] : t('no member is connected'))),
    can('operator') && h('button.primary', { type: 'button', onclick: reset }, t('Reset offsets')),
    can('operator') && h('button', { type: 'button', onclick: undo }, t('Undo the reset')),
    can('operator') && h('button', { type: 'button', onclick: pause }, enabled ? t('Pause') : t('Resume')),
    can('admin') && h('button.danger', { type: 'button', onclick: remove }, t('Delete'))),
  bars, tiles, tabs(page, [['queues', t('Queues')], ['members', t('Members ({n})', { n: found.members.length })], ['subscriptions', t('Subscriptions')], ['config', t('Configuration')]], tab), body);

  function head() {
    const summary = found.summary || {};
    const conflicts = Object.entries(found.conflicts);
    fill(bars, Object.entries(found.unreachable).map(([broker, reason]) => notice('warn', t('{broker} did not answer: {reason}', { broker, reason }))),
      conflicts.map(([topic, kinds]) => notice('bad', t('Members want different things of {topic}: {kinds}. Each message goes to one member at random, and those it does not want are lost for the group.', { topic, kinds: kinds.join(' · ') }))));
    const unknown = found.queues.filter((one) => one.lag === null);
    const tile = (label, value, more) => h('div.tile', h('div.label', label), h('div.value', value), more && h('div.more', more));
    fill(tiles, tile(t('Lag'), found.lag === null ? t('unknown') : count(found.lag), unknown.length ? t('{known} of what is known; {n} queues unknown', { known: count(found.lag_known), n: unknown.length }) : null),
      tile(t('Oldest waits'), duration(summary.delay_ms)), tile(t('Trend'), trendCell(summary)), tile(t('Consumes'), rate(found.consume_tps)),
      tile(t('Retries waiting'), short(summary.retry_waiting)), tile(t('Dead letters'), summary.dead_letters ? h('a', { href: path(`dlq/${seg(item)}`) }, short(summary.dead_letters)) : short(summary.dead_letters)));
  }

  async function reload() {
    found = await api(`${at}/groups/${seg(item)}`);
    if (!page.alive()) return;
    head();
    await view?.(found);
  }

  async function reset() {
    const topics = [...new Set(found.queues.map((one) => one.topic))].filter((one) => !one.startsWith('%DLQ%'));
    if (!topics.length) return toast('bad', t('The group has no topic to reset'));
    const given = await ask(t('Reset the offsets of {name}', { name: item }), (content) => {
      const topic = select(topics.map((one) => [one, one]), topics.find((one) => !one.startsWith('%')) || topics[0]);
      const to = select([['time', t('to a time')], ['earliest', t('to the first message')], ['latest', t('to the end')], ['offset', t('to an offset')], ['by', t('by a number of messages')], ['group', t('to the offsets of another group')]], 'time', draw);
      const when = timeInput(Date.now() - 3600000);
      const number = h('input', { type: 'number', value: 0 });
      const other = h('input');
      const queues = h('div.chips');
      const more = h('div');
      const chosen = new Set();
      function draw() {
        fill(more, to.value === 'time' && field(t('Time'), when), ['offset', 'by'].includes(to.value) && field(to.value === 'by' ? t('Messages (negative goes back)') : t('Offset'), number), to.value === 'group' && field(t('Group'), other));
        fill(queues, found.queues.filter((one) => one.topic === topic.value).map((one) => {
          const name = `${one.broker}:${one.queue_id}`;
          const button = h('button', { type: 'button', 'aria-pressed': String(chosen.has(name)), onclick: () => { if (!chosen.delete(name)) chosen.add(name); button.setAttribute('aria-pressed', String(chosen.has(name))); } }, name);
          return button;
        }));
      }
      topic.addEventListener('change', () => { chosen.clear(); draw(); });
      draw();
      fill(content, h('div.form', field(t('Topic'), topic), field(t('Where'), to), more), h('div.stack', h('span.muted', t('Queues; none chosen means all')), queues));
      return () => ({ topic: topic.value, to: to.value, value: to.value === 'time' ? timeOf(when) : ['offset', 'by'].includes(to.value) ? Number(number.value) : null, from_group: to.value === 'group' ? other.value.trim() : null, queues: [...chosen] });
    }, t('Preview'));
    if (given && (await change({ title: t('Reset the offsets of {name}', { name: item }), path: `${at}/groups/${seg(item)}:reset`, body: given, verb: t('Reset') }))) await reload();
  }

  async function undo() {
    const topics = [...new Set(found.queues.map((one) => one.topic))].filter((one) => !one.startsWith('%'));
    const topic = topics.length === 1 ? topics[0] : await ask(t('Undo the reset'), (content) => { const choice = select(topics.map((one) => [one, one]), topics[0]); fill(content, field(t('Topic'), choice)); return () => choice.value; });
    if (topic && (await change({ title: t('Put back the offsets before the reset'), path: `${at}/groups/${seg(item)}:undo`, query: { topic }, verb: t('Put back') }))) await reload();
  }

  async function pause() {
    if (await change({ title: enabled ? t('Pause {name}', { name: item }) : t('Resume {name}', { name: item }), path: `${at}/groups`, body: { group: item, consume_enable: !enabled } })) page.go(location.href, { replace: true });
  }

  async function remove() {
    const given = await ask(t('Delete {name}', { name: item }), (content) => {
      const offsets = h('input', { type: 'checkbox' });
      const dead = h('input', { type: 'checkbox' });
      fill(content, h('label.check', offsets, t('keep its offsets')), h('label.check', dead, t('delete its dead letters too')));
      return () => ({ keep_offsets: offsets.checked, dead_letters: dead.checked });
    }, t('Preview'));
    if (given && (await change({ title: t('Delete {name}', { name: item }), path: `${at}/groups/${seg(item)}`, method: 'DELETE', query: given, danger: true, verb: t('Delete') }))) page.go(path('groups'));
  }

  head();
  const view = await ({ queues, members, subscriptions, config }[tab] || queues)(page, body, found);
  page.onsample(() => reload().catch(() => {}));
}

async function queues(page, body, given) {
  const { at, item, path } = page;
  const chart = chartBox(t('Lag'), [t('lag')], short);
  const table = makeTable({
    caption: t('Queues'), rowKey: (row) => `${row.topic} ${row.broker}:${row.queue_id}`,
    columns: [
      { key: 'topic', label: t('Topic'), cls: 'cut', cell: (row) => h('a', { href: path(`topics/${seg(row.topic)}`) }, row.topic) },
      { key: 'queue', label: t('Queue'), cell: (row) => `${row.broker}:${row.queue_id}` },
      { key: 'committed', label: t('Committed'), align: 'right', cell: (row) => count(row.committed) },
      { key: 'end', label: t('End'), align: 'right', cell: (row) => count(row.end) },
      { key: 'lag', label: t('Lag'), align: 'right', cell: (row) => (row.lag === null ? badge('info', t('unknown')) : lagCell({ state: 'known', lag: row.lag })) },
      { key: 'why', label: t('Why'), cell: (row) => h('span.muted', reasonText(row.reason)) },
      { key: 'last', label: t('Last consumed was stored'), align: 'right', cell: (row) => h('span', { title: time(row.last_ms) }, ago(row.last_ms)) },
    ],
    empty: () => empty(t('No offsets yet'), t('The group has committed nothing and subscribes to nothing.')),
  });
  fill(body, card(t('Lag over the last hour'), null, chart.el), h('section.card', table.el));
  page.keys(table);
  const view = async (found) => {
    table.update(found.queues);
    chart.update(await api(`${at}/history`, { query: { series: `group/${item}/lag` } }));
  };
  await view(given);
  return view;
}

async function members(page, body, given) {
  const { at, item } = page;
  const table = makeTable({
    caption: t('Members'), rowKey: (row) => row.client_id, onopen: open,
    columns: [
      { key: 'id', label: t('Client'), cls: 'cut', cell: (row) => h('span.name', row.client_id) }, { key: 'addr', label: t('Address'), cell: (row) => row.addr },
      { key: 'language', label: t('Language'), cell: (row) => row.language }, { key: 'version', label: t('Version'), cell: (row) => row.version },
    ],
    empty: () => empty(t('No member is connected')),
  });
  async function open(row) {
    try {
      const found = await api(`${at}/groups/${seg(item)}/members/${seg(row.client_id)}`);
      const stacks = h('div');
      drawer(row.client_id, [
        h('section', h('h2', t('Rates')), h('div.table-wrap', h('table', h('thead', h('tr', [t('Topic'), t('ok/s'), t('failed/s'), t('ms each')].map((one) => h('th', { scope: 'col' }, one)))), h('tbody', Object.entries(found.rates).map(([topic, one]) => h('tr', h('td', topic), h('td', one.ok_tps.toFixed(1)), h('td', one.failed_tps.toFixed(1)), h('td', one.consume_ms.toFixed(1)))))))),
        h('section', h('h2', t('Queues')), h('div.table-wrap', h('table', h('thead', h('tr', [t('Queue'), t('Cached'), t('Last pull'), t('Last consumed')].map((one) => h('th', { scope: 'col' }, one)))), h('tbody', found.queues.map((one) => h('tr', h('td', `${one.topic} ${one.broker}:${one.queue_id}`), h('td', count(one.cached)), h('td', ago(one.last_pull_ms)), h('td', ago(one.last_consume_ms)))))))),
        h('section', h('h2', t('Properties')), facts(Object.entries(found.properties))),
        h('section', h('h2', t('Threads')), stacks, h('div', h('button', { type: 'button', onclick: threads }, t('Show what its threads do')))),
      ]);
      async function threads() {
        const more = await api(`${at}/groups/${seg(item)}/members/${seg(row.client_id)}`, { query: { stacks: true } });
        fill(stacks, more.stacks ? [copyButton(more.stacks), h('pre.code', more.stacks)] : h('p.muted', t('This client does not tell.')));
      }
    } catch (error) {
      toast('bad', problemText(error));
    }
  }
  fill(body, h('section.card', table.el));
  page.keys(table);
  const view = (found) => table.update(found.members);
  view(given);
  return view;
}

async function subscriptions(page, body, found) {
  const rows = Object.entries(found.subscriptions);
  fill(body, h('section.card', rows.length ? h('div.table-wrap', h('table', h('thead', h('tr', [t('Topic'), t('Expression'), t('Conflict')].map((one) => h('th', { scope: 'col' }, one)))), h('tbody', rows.map(([topic, expression]) => h('tr', h('td', topic), h('td.mono', expression), h('td', found.conflicts[topic] ? badge('bad', found.conflicts[topic].join(' · ')) : badge('ok', t('none')))))))) : empty(t('No subscription'), t('Subscriptions are known while members are connected.'))));
}

async function config(page, body, found) {
  const names = Object.keys(found.configs);
  if (!names.length) return fill(body, h('section.card', empty(t('No broker has settings for this group'), t('Brokers make them when the first consumer connects.'))));
  const keys = Object.keys(found.configs[names[0]]).filter((key) => key !== 'group');
  return fill(body, h('section.card', h('div.table-wrap', h('table', h('thead', h('tr', h('th', { scope: 'col' }, t('Setting')), names.map((name) => h('th', { scope: 'col' }, name)))), h('tbody', keys.map((key) => h('tr', h('td', key), names.map((name) => { const value = found.configs[name][key]; return h('td.mono', value === null ? '–' : typeof value === 'object' ? JSON.stringify(value) : String(value)); }))))))));
}
