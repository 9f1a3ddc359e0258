// Retries, delays and transactions: messages that are not visible yet.
import { h, fill, badge, card, notice, empty, debounce } from '../dom.js';
import { t, count, time, ago, duration, bytes } from '../i18n.js';
import { api, seg } from '../api.js';
import { makeTable } from '../table.js';
import { change } from '../change.js';

export default async function pending(page) {
  await { retry, delays, transactions }[page.name](page);
}

async function retry(page) {
  const { main, at, path } = page;
  const table = makeTable({
    caption: t('Retries'), rowKey: (row) => row.group, onopen: (row) => page.go(path(`topics/${seg(`%RETRY%${row.group}`)}`)),
    columns: [
      { key: 'group', label: t('Group'), cell: (row) => h('a.name', { href: path(`topics/${seg(`%RETRY%${row.group}`)}`) }, row.group) },
      { key: 'waiting', label: t('Waiting'), align: 'right', cell: (row) => count(row.waiting) },
      { key: 'max', label: t('Attempts before a dead letter'), align: 'right', cell: (row) => row.retry_max ?? '–' },
      { key: 'members', label: t('Members'), align: 'right', cell: (row) => row.members ?? '–' },
    ],
    empty: () => empty(t('Nothing waits for a retry'), t('A message waits here after a listener failed on it.')),
  });
  fill(main, h('div.page-head', h('div.titles', h('h1', t('Retries')), h('p.sub', t('Messages that a group failed on and gets again.')))), h('section.card', table.el));
  const load = async () => { const found = await api(`${at}/retries`); if (page.alive()) table.update(found.items); };
  page.keys(table);
  await load();
  page.onsample(() => load().catch(() => {}));
}

async function delays(page) {
  const { main, at, can, setQuery } = page;
  const state = { q: page.query.get('q') || '' };
  const search = h('input.search', { type: 'search', value: state.q, placeholder: t('Topic or id'), 'aria-label': t('Topic or id'), 'data-filter': true, oninput: debounce(() => { state.q = search.value; setQuery(state); load(); }) });
  const chart = h('div');
  const tiles = h('div.tiles');
  const table = makeTable({
    caption: t('Delays'), rowKey: (row) => `${row.broker_name} ${row.topic} ${row.unique_key} ${row.due_ms}`,
    columns: [
      { key: 'due', label: t('Due'), cls: 'nowrap', cell: (row) => h('span', { title: time(row.due_ms) }, row.due_ms > Date.now() ? t('in {time}', { time: duration(row.due_ms - Date.now()) }) : badge('warn', t('late'))) },
      { key: 'topic', label: t('Topic'), cls: 'cut', cell: (row) => row.topic }, { key: 'broker', label: t('Broker'), cell: (row) => row.broker_name },
      { key: 'id', label: t('Message id'), cls: 'cut', cell: (row) => h('span.mono', row.unique_key || '–') },
      { key: 'born', label: t('Sent'), align: 'right', cell: (row) => ago(row.born_ms) }, { key: 'size', label: t('Size'), align: 'right', cell: (row) => bytes(row.body_bytes) },
      { key: 'do', label: '', cell: (row) => can('operator') && row.handle && h('button.small', { type: 'button', onclick: () => cancel(row) }, t('Take back')) },
    ],
    empty: () => empty(t('Nothing waits for its time'), t('Messages with a delay in milliseconds or a delivery time wait here.')),
  });
  async function cancel(row) {
    if (await change({ title: t('Take back'), path: `${at}/timers:cancel`, body: { handle: row.handle }, verb: t('Take back') })) await load();
  }
  async function load() {
    const found = await api(`${at}/timers`, { query: state });
    if (!page.alive()) return;
    const most = Math.max(1, ...found.histogram);
    fill(tiles, h('div.tile', h('div.label', t('Waiting')), h('div.value', count(found.total))), h('div.tile', h('div.label', t('Due later than in 24 h')), h('div.value', count(found.later))), h('div.tile', h('div.label', t('Late')), h('div.value', count(found.late))));
    fill(chart, h('div.bars', { role: 'img', 'aria-label': t('Due in the next 24 hours, by hour') }, found.histogram.map((number, hour) => { const bar = h('i', { title: t('in {hour} h: {n}', { hour, n: count(number) }) }); bar.style.height = `${(number / most) * 100}%`; return bar; })), h('div.bar', h('span.muted', t('now')), h('span.grow'), h('span.muted', t('in 24 h'))));
    table.update(found.items);
  }
  fill(main, h('div.page-head', h('div.titles', h('h1', t('Delays')), h('p.sub', t('Messages that are delivered at a later time.')))), tiles, card(t('Due in the next 24 hours, by hour'), null, h('div.body', chart)), h('section.card', h('header', search), table.el));
  page.keys(table);
  await load();
  page.onsample(() => load().catch(() => {}));
}

async function transactions(page) {
  const { main, at, can } = page;
  const table = makeTable({
    caption: t('Transactions'), rowKey: (row) => `${row.broker_name}@${row.queue_offset}`,
    columns: [
      { key: 'age', label: t('Age'), cls: 'nowrap', cell: (row) => h('span', { title: time(row.born_ms) }, duration(Date.now() - row.born_ms)) },
      { key: 'topic', label: t('Topic'), cls: 'cut', cell: (row) => row.topic }, { key: 'group', label: t('Producer group'), cell: (row) => row.group },
      { key: 'online', label: t('Producers online'), align: 'right', cell: (row) => (producers[row.group] ? producers[row.group] : badge('warn', t('none'))) },
      { key: 'checks', label: t('Checks'), align: 'right', cell: (row) => row.checks }, { key: 'id', label: t('Message id'), cls: 'cut', cell: (row) => h('span.mono', row.unique_key) },
      { key: 'do', label: '', cls: 'nowrap', cell: (row) => h('span.bar', can('operator') && h('button.small', { type: 'button', onclick: () => act(row, 'check') }, t('Check now')), can('admin') && h('button.small', { type: 'button', onclick: () => act(row, 'decide', true) }, t('Commit')), can('admin') && h('button.small.danger', { type: 'button', onclick: () => act(row, 'decide', false) }, t('Roll back'))) },
    ],
    empty: () => empty(t('No undecided transaction'), t('Half messages that nobody committed or rolled back are listed here.')),
  });
  const given = h('div');
  let producers = {};
  async function act(row, what, commit) {
    const title = what === 'check' ? t('Check now') : commit ? t('Commit') : t('Roll back');
    if (await change({ title, path: `${at}/transactions:${what}`, body: { broker: row.broker_name, queue_offset: row.queue_offset }, query: what === 'decide' ? { commit: String(commit) } : {}, danger: what === 'decide', verb: title })) await load();
  }
  async function load() {
    const found = await api(`${at}/transactions`);
    if (!page.alive()) return;
    producers = found.producers;
    table.update(found.items);
    fill(given, found.given_up.length > 0 && card(t('Given up by the broker'), null, h('div.body.stack', notice('warn', t('No producer answered the checks: these messages were never delivered.')), h('div.table-wrap', h('table', h('tbody', found.given_up.map((row) => h('tr', h('td', time(row.store_ms)), h('td.mono', row.message_id), h('td.body', row.text)))))))));
  }
  fill(main, h('div.page-head', h('div.titles', h('h1', t('Transactions')), h('p.sub', t('Half messages whose producers have not decided yet.')))), h('section.card', table.el), given);
  page.keys(table);
  await load();
  page.onsample(() => load().catch(() => {}));
}
