// One topic: messages, queues, groups, producers, configuration, live tail.
import { h, fill, icon, badge, card, notice, empty, select, field, toast, download } from '../dom.js';
import { t, count, short, rate, time, ago, bytes, clock } from '../i18n.js';
import { api, lines, seg } from '../api.js';
import { makeTable } from '../table.js';
import { change, ask, problemText } from '../change.js';
import { chartBox } from '../chart.js';
import { openMessage, tabs, timeInput, timeOf, parseProperties, reasonText, lagCell } from './parts.js';
import { kindBadge, topicForm } from './topics.js';

const RING = 10000;

export default async function topic(page) {
  const { main, at, item, can, path } = page;
  const tab = page.query.get('tab') || 'messages';
  const found = await api(`${at}/topics/${seg(item)}`);
  if (!page.alive()) return;
  const { topic: summary } = found;
  const first = found.configs[0] || {};
  const body = h('div.stack');
  fill(main, h('div.page-head', h('div.titles', h('div.crumbs', h('a', { href: path('topics') }, t('Topics')), '/'), h('h1', item, ' ', kindBadge(summary.kind)),
    h('p.sub', t('{queues} queues on {brokers} brokers, {messages} messages kept', { queues: summary.write_queues, brokers: found.configs.length, messages: count(found.queues.reduce((sum, one) => sum + one.messages, 0)) }))),
  can('operator') && h('button.primary', { type: 'button', onclick: send }, icon('send'), t('Send')),
  can('operator') && h('button', { type: 'button', onclick: edit }, t('Change')),
  can('admin') && h('button.danger', { type: 'button', onclick: remove }, t('Delete'))),
  Object.values(found.partial).map((reason) => notice('warn', reason)),
  tabs(page, [['messages', t('Messages')], ['live', t('Live')], ['queues', t('Queues')], ['groups', t('Groups ({n})', { n: found.groups.length })], ['producers', t('Producers')], ['config', t('Configuration')]], tab), body);

  async function edit() {
    const given = await topicForm(t('Change {name}', { name: item }), { topic: item, ...first });
    if (given && (await change({ title: t('Change {name}', { name: item }), path: `${at}/topics`, body: { ...given, topic: item } }))) page.go(location.href, { replace: true });
  }
  async function remove() {
    if (await change({ title: t('Delete {name}', { name: item }), path: `${at}/topics/${seg(item)}`, method: 'DELETE', danger: true, verb: t('Delete') })) page.go(path('topics'));
  }
  async function send() {
    const given = await sendForm(item, summary.kind, found.queues);
    if (given) await change({ title: t('Send to {name}', { name: item }), path: `${at}/topics/${seg(item)}/send`, body: given, verb: t('Send') });
  }
  if (page.query.get('send')) send();
  await ({ messages, live, queues, groups, producers, config }[tab] || messages)(page, body, found);
}

const messageColumns = (page) => [
  { key: 'time', label: t('Stored'), cls: 'nowrap', cell: (row) => h('span.num', { title: ago(row.store_ms) }, time(row.store_ms)) },
  { key: 'queue', label: t('Queue'), cls: 'nowrap', cell: (row) => `${row.broker}:${row.queue_id}` },
  { key: 'offset', label: t('Offset'), align: 'right', cell: (row) => count(row.queue_offset) },
  { key: 'tag', label: t('Tag'), cell: (row) => (row.tag ? badge('', row.tag) : '') },
  { key: 'keys', label: t('Keys'), cls: 'cut', cell: (row) => row.keys.join(' ') },
  { key: 'body', label: t('Body'), cls: 'body.cut', cell: (row) => (row.is_binary ? h('span', badge('', t('binary')), ' ', row.text) : row.text) },
  { key: 'size', label: t('Size'), align: 'right', cell: (row) => bytes(row.body_bytes) },
];
const messageKey = (row) => `${row.broker}:${row.queue_id}@${row.queue_offset}`;

async function messages(page, body, found) {
  const { at, item, setQuery } = page;
  const given = page.query;
  const direction = select([['newest', t('newest first')], ['oldest', t('oldest first')]], given.get('direction') || 'newest');
  const since = timeInput(Number(given.get('since')) || null);
  const until = timeInput(Number(given.get('until')) || null);
  const key = h('input', { value: given.get('key') || '', placeholder: 'order-17', 'data-filter': true });
  const tag = h('input', { value: given.get('tag') || '', placeholder: 'paid || new' });
  const text = h('input', { value: given.get('text') || '' });
  const json = h('input', { value: given.get('json') || '', placeholder: '$.order.total > 100' });
  const property = h('input', { value: given.get('property') || '', placeholder: 'region=north' });
  const queue = select([['', t('all queues')], ...found.queues.map((one) => [`${one.broker}:${one.queue_id}`, `${one.broker}:${one.queue_id}`])], given.get('queue') || '');
  const offset = h('input', { type: 'number', min: 0, value: given.get('offset') || '' });
  const line = h('div.progress-line', { 'aria-live': 'polite' });
  const selected = h('div.bar');
  const table = makeTable({
    caption: t('Messages'), rowKey: messageKey, columns: messageColumns(page),
    onopen: (row) => openMessage(page, { ...row, topic: item }).catch((error) => toast('bad', problemText(error))),
    onselect: (keys) => fill(selected, keys.size > 0 && [h('span', t('{n} selected', { n: keys.size })), h('button.small', { type: 'button', onclick: exportSelected }, t('Export'))]),
    empty: () => empty(t('No message found'), t('Nothing in the range matches. Widen the time or clear the conditions.')),
  });
  let controller = null;
  let progress = null;

  function read() {
    return { direction: direction.value, since_ms: timeOf(since), until_ms: timeOf(until), key: key.value.trim(), tag: tag.value.trim(), text: text.value, json: json.value.trim(), property: property.value.trim(), queue: queue.value, offset: offset.value };
  }

  async function search(more) {
    controller?.abort();
    controller = new AbortController();
    const mine = controller;
    const query = read();
    if (!more) {
      setQuery({ direction: query.direction === 'newest' ? '' : query.direction, since: query.since_ms, until: query.until_ms, key: query.key, tag: query.tag, text: query.text, json: query.json, property: query.property, queue: query.queue, offset: query.offset });
      table.update([]);
      progress = null;
    }
    const cursor = more ? progress?.cursor : null;
    const before = more ? progress : null;
    draw(true);
    try {
      for await (const one of lines(`${at}/messages:search`, { query: { ...query, topic: item, n: 100, cursor }, signal: mine.signal })) {
        if (one.problem) throw new Error(one.problem.detail);
        if (one.message) table.push([one.message]);
        if (one.progress) {
          progress = before ? { ...one.progress, looked_at: before.looked_at + one.progress.looked_at, found: before.found + one.progress.found, total: before.total } : one.progress;
          draw(true);
        }
      }
      if (!table.rows().length) table.update([]);
    } catch (error) {
      if (error.name !== 'AbortError') fill(line, notice('bad', problemText(error)));
      if (error.name !== 'AbortError') return;
    }
    if (mine === controller) draw(false);
  }

  function draw(busy) {
    const failed = Object.entries(progress?.failed || {});
    fill(line, busy && h('span.spin'),
      h('span', progress ? t('checked {looked} of {total}, {found} found', { looked: count(progress.looked_at), total: count(progress.total), found: count(progress.found) }) : t('starting')),
      progress?.seen_ms && h('span', t('reached {time}', { time: time(progress.seen_ms) })),
      progress?.done && !busy && badge('ok', t('complete')),
      failed.length > 0 && badge('bad', t('{n} queues failed', { n: failed.length })),
      h('span.grow'),
      busy ? h('button.small', { type: 'button', onclick: () => controller.abort() }, t('Stop')) : progress?.cursor && h('button.small', { type: 'button', onclick: () => search(true) }, t('Go on')), selected);
  }

  function exportSelected() {
    const rows = table.rows().filter((row) => table.selected.has(messageKey(row)));
    const record = { record: 'completeness', topic: item, conditions: read(), looked_at: progress?.looked_at, total: progress?.total, found: progress?.found, exported: rows.length, complete: Boolean(progress?.done), failed_queues: progress?.failed };
    download(`${item}.jsonl`, [...rows, record].map((one) => JSON.stringify(one)).join('\n'), 'application/x-ndjson');
  }

  const more = h('details', { open: Boolean(given.get('json') || given.get('property') || given.get('since') || given.get('until') || given.get('offset') || given.get('queue')) }, h('summary.muted', t('More conditions')),
    h('div.form', { style: { marginTop: '8px' } }, field(t('JSON in the body'), json), field(t('Property'), property), field(t('From'), since), field(t('To'), until), field(t('Queue'), queue), field(t('From offset'), offset)));
  fill(body, h('form.card', { onsubmit: (event) => { event.preventDefault(); search(false); } }, h('div.body.stack',
    h('div.form', field(t('Key or id'), key), field(t('Tag'), tag), field(t('Text in the body'), text), field(t('Order'), direction), h('button.primary', { type: 'submit' }, icon('search'), t('Search'))), more)),
  h('section.card', line, table.el));
  page.keys(table);
  page.cleanup(() => controller?.abort());
  const place = given.get('m')?.match(/^(.+):(\d+)@(\d+)$/);
  search(false);
  if (place) openMessage(page, { topic: item, broker: place[1], queue_id: place[2], queue_offset: place[3] }).catch((error) => toast('bad', problemText(error)));
}

async function live(page, body) {
  const { at, item } = page;
  const tag = h('input', { placeholder: 'paid || new' });
  const text = h('input');
  const json = h('input', { placeholder: '$.order.total > 100' });
  const line = h('div.progress-line', { 'aria-live': 'off' });
  const table = makeTable({
    caption: t('Live messages'), rowKey: messageKey, columns: messageColumns(page), keepHead: true,
    onopen: (row) => openMessage(page, { ...row, topic: item }).catch((error) => toast('bad', problemText(error))),
    empty: () => empty(t('Waiting for messages'), t('New messages appear here. No group is joined and no offset is moved.')),
  });
  let controller = null;
  let ring = [];
  let seen = 0;
  let since = 0;
  let dropped = null;
  let frame = 0;
  const ends = new Map();

  function draw() {
    frame = 0;
    table.update(ring.slice(-200).reverse());
    fill(line, controller ? badge('ok', t('following')) : badge('warn', t('paused')), h('span', t('{n} messages', { n: count(seen) })),
      since > 0 && h('span', t('since {time}', { time: clock(since) })), dropped && badge('warn', t('shown {shown}/s of {seen}/s', dropped)), h('span.grow'),
      h('button.small', { type: 'button', onclick: controller ? pause : () => follow(true) }, controller ? t('Pause') : t('Go on from here')),
      h('button.small', { type: 'button', onclick: () => { ring = []; seen = 0; table.update([]); draw(); } }, t('Clear')),
      h('button.small', { type: 'button', onclick: () => download(`${item}-live.jsonl`, ring.map((one) => JSON.stringify(one)).join('\n'), 'application/x-ndjson') }, t('Export')));
  }
  const soon = () => { frame = frame || requestAnimationFrame(draw); };

  function pause() {
    controller?.abort();
    controller = null;
    draw();
  }

  async function follow(again) {
    controller?.abort();
    const mine = (controller = new AbortController());
    since = since || Date.now();
    draw();
    const from = again ? [...ends].map(([queue, offset]) => `${queue}@${offset}`) : [];
    try {
      for await (const one of lines(`${at}/messages:tail`, { query: { topic: item, tag: tag.value.trim(), text: text.value, json: json.value.trim(), from }, signal: mine.signal })) {
        if (one.problem) throw new Error(one.problem.detail);
        if (one.rate) dropped = one.rate;
        if (one.message) {
          seen += 1;
          ends.set(`${one.message.broker}:${one.message.queue_id}`, Number(one.message.queue_offset) + 1);
          ring.push(one.message);
          if (ring.length > RING) ring = ring.slice(-RING * 0.9);
        }
        soon();
      }
    } catch (error) {
      if (error.name !== 'AbortError') toast('bad', problemText(error));
    }
    if (mine === controller) pause();
  }

  fill(body, h('form.card', { onsubmit: (event) => { event.preventDefault(); ring = []; follow(false); } }, h('div.body', h('div.form', field(t('Tag'), tag), field(t('Text in the body'), text), field(t('JSON in the body'), json), h('button.primary', { type: 'submit' }, t('Apply'))))),
    h('section.card', line, table.el));
  page.keys(table);
  page.cleanup(() => { controller?.abort(); cancelAnimationFrame(frame); });
  follow(false);
}

async function queues(page, body, found) {
  const { at, item } = page;
  const flow = chartBox(t('Messages per second'), [t('in')], rate);
  let list = found.queues;
  const columns = () => {
    const most = Math.max(1, ...list.map((one) => one.messages));
    return [
      { key: 'queue', label: t('Queue'), cell: (row) => `${row.broker}:${row.queue_id}` },
      { key: 'min', label: t('First'), align: 'right', cell: (row) => count(row.min) },
      { key: 'max', label: t('End'), align: 'right', cell: (row) => count(row.max) },
      { key: 'messages', label: t('Kept'), align: 'right', cell: (row) => count(row.messages) },
      { key: 'skew', label: t('Share'), cell: (row) => { const part = h('span.skew'); part.style.width = `${Math.round((row.messages / most) * 120)}px`; return part; } },
      { key: 'last', label: t('Last message'), align: 'right', cell: (row) => h('span', { title: time(row.last_ms) }, ago(row.last_ms)) },
    ];
  };
  const table = makeTable({ caption: t('Queues'), rowKey: (row) => `${row.broker}:${row.queue_id}`, columns: columns() });
  fill(body, card(t('Messages per second'), null, flow.el), h('section.card', table.el));
  async function load() {
    const [now, past] = await Promise.all([api(`${at}/topics/${seg(item)}`), api(`${at}/history`, { query: { series: `topic/${item}/in` } })]);
    if (!page.alive()) return;
    list = now.queues;
    table.update(list);
    flow.update(past);
  }
  table.update(list);
  page.keys(table);
  await load();
  page.onsample(() => load().catch(() => {}));
}

async function groups(page, body, found) {
  const { path } = page;
  const table = makeTable({
    caption: t('Groups'), rowKey: (row) => row.group, onopen: (row) => page.go(path(`groups/${seg(row.group)}`)),
    columns: [
      { key: 'group', label: t('Group'), cell: (row) => h('a.name', { href: path(`groups/${seg(row.group)}`) }, row.group) },
      { key: 'lag', label: t('Lag here'), align: 'right', cell: (row) => (row.lag === null ? h('span', { title: reasonText(row.reason) }, badge('info', t('unknown'))) : lagCell({ state: 'known', lag: row.lag })) },
      { key: 'reason', label: t('Why'), cell: (row) => h('span.muted', reasonText(row.reason)) },
      { key: 'members', label: t('Members'), align: 'right', cell: (row) => row.members ?? '–' },
    ],
    empty: () => empty(t('Nobody reads this topic'), t('No group has committed an offset or is connected.')),
  });
  fill(body, h('section.card', table.el));
  table.update(found.groups);
  page.keys(table);
}

async function producers(page, body, found) {
  const table = makeTable({
    caption: t('Producers'), rowKey: (row) => `${row.group} ${row.client_id}`,
    columns: [
      { key: 'group', label: t('Producer group'), cell: (row) => row.group }, { key: 'client', label: t('Client'), cls: 'cut', cell: (row) => row.client_id },
      { key: 'addr', label: t('Address'), cell: (row) => row.addr }, { key: 'language', label: t('Language'), cell: (row) => row.language }, { key: 'version', label: t('Version'), cell: (row) => row.version },
    ],
    empty: () => empty(t('No producer is connected'), t('Producers that are connected to the brokers of this topic are listed here.')),
  });
  fill(body, notice('', t('Brokers know which producers are connected, not which topics they send to: these are all producers on the brokers of this topic.')), h('section.card', table.el));
  table.update(found.producers);
  page.keys(table);
}

async function config(page, body, found) {
  const rows = [['read_queues', t('Read queues')], ['write_queues', t('Write queues')], ['perm', t('Permission')], ['order', t('Ordered')]];
  const names = [...new Set(found.configs.flatMap((one) => Object.keys(one.attributes)))];
  const line = (label, read) => {
    const values = found.configs.map(read);
    const differs = new Set(values.map(String)).size > 1;
    return h('tr', h('td', label, differs ? h('span', ' ', badge('warn', t('differs'))) : null), values.map((value) => h('td.mono', String(value ?? '–'))));
  };
  fill(body, h('section.card', h('div.table-wrap', h('table', h('thead', h('tr', h('th', { scope: 'col' }, t('Setting')), found.configs.map((one) => h('th', { scope: 'col' }, one.broker)))),
    h('tbody', rows.map(([name, label]) => line(label, (one) => one[name])), names.map((name) => line(name, (one) => one.attributes[name])))))));
}

/** Ask for a message to send. */
function sendForm(topic, kind, queues) {
  const kept = JSON.parse(localStorage.getItem(`rocketq.sent.${topic}`) || 'null') || {};
  return ask(t('Send to {name}', { name: topic }), (content) => {
    const body = h('textarea', { rows: 10, value: kept.body || '{\n  "id": 1\n}', autofocus: true });
    const said = h('span.muted');
    const check = () => { try { JSON.parse(body.value); fill(said, t('valid JSON')); } catch (error) { fill(said, t('text, not JSON')); } };
    body.addEventListener('input', check);
    check();
    const tag = h('input', { value: kept.tag || '' });
    const keys = h('input', { value: (kept.keys || []).join(' ') });
    const properties = h('textarea', { rows: 2, placeholder: 'name=value', value: '' });
    const queue = select([['', t('any queue')], ...queues.map((one) => [`${one.broker}:${one.queue_id}`, `${one.broker}:${one.queue_id}`])], '');
    const sharding = h('input', { required: kind === 'fifo' });
    const level = h('input', { type: 'number', min: 0, max: 18, value: 0 });
    const later = h('input', { type: 'number', min: 0, value: '' });
    const number = h('input', { type: 'number', min: 1, max: 10000, value: 1 });
    const per = h('input', { type: 'number', min: 0, value: '' });
    fill(content, field(t('Body'), body), said, h('div.form', field(t('Tag'), tag), field(t('Keys'), keys), field(t('Queue'), queue), field(t('Sharding key'), sharding), field(t('Delay level'), level), field(t('Deliver after seconds'), later), field(t('How many'), number), field(t('Per second'), per)),
      field(t('Properties'), properties), h('p.muted', t('{{n}} in body and keys is replaced by the number of the message.')));
    return () => {
      const given = { body: body.value, tag: tag.value.trim() || null, keys: keys.value.split(/\s+/).filter(Boolean), properties: parseProperties(properties.value), queue: queue.value || null, sharding_key: sharding.value || null, delay_level: Number(level.value || 0), delay_ms: later.value ? Number(later.value) * 1000 : null, count: Number(number.value || 1), per_second: per.value ? Number(per.value) : null };
      localStorage.setItem(`rocketq.sent.${topic}`, JSON.stringify({ body: given.body, tag: given.tag, keys: given.keys }));
      return given;
    };
  });
}
export { short };
