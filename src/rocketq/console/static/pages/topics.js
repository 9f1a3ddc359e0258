// Topics: find, sort, make, change, delete.
import { h, fill, icon, badge, card, notice, empty, select, field, debounce, download } from '../dom.js';
import { t, short, rate, ago } from '../i18n.js';
import { api, seg } from '../api.js';
import { makeTable, pager, csv } from '../table.js';
import { ask, change } from '../change.js';
import { partialNotice } from './parts.js';

const SIZE = 100;
const KINDS = { normal: '', fifo: 'accent', delay: 'info', transaction: 'info', retry: 'warn', dlq: 'bad', system: '' };
export const kindLabel = (kind) => ({ normal: () => t('normal'), fifo: () => t('FIFO'), delay: () => t('delay'), transaction: () => t('transaction'), retry: () => t('retry'), dlq: () => t('dead letters'), system: () => t('system') }[kind] || (() => kind))();
export const kindBadge = (kind) => badge(KINDS[kind] ?? '', kindLabel(kind));

export default async function topics(page) {
  const { main, at, path, setQuery, can } = page;
  const given = page.query;
  const state = { q: given.get('q') || '', kind: given.get('kind') || '', show: given.get('show') || '', broker: given.get('broker') || '', system: given.get('system') === 'true', sort: given.get('sort') || 'name', from: Number(given.get('from') || 0) };
  const stars = new Set(JSON.parse(localStorage.getItem('rocketq.stars') || '[]'));
  const search = h('input.search', { type: 'search', placeholder: t('Filter by name'), value: state.q, 'data-filter': true, 'aria-label': t('Filter by name'), oninput: debounce(() => move({ q: search.value, from: 0 })) });
  const table = makeTable({
    caption: t('Topics'), rowKey: (row) => row.name, sort: state.sort, onsort: (sort) => move({ sort, from: 0 }), onopen: (row) => page.go(path(`topics/${seg(row.name)}`)),
    columns: [
      { key: 'star', label: '', cell: (row) => h('button.icon', { type: 'button', 'aria-pressed': String(stars.has(row.name)), 'aria-label': t('Star {name}', { name: row.name }), onclick: () => star(row.name) }, icon('star')) },
      { key: 'name', label: t('Name'), sort: true, cls: 'cut', cell: (row) => [h('a.name', { href: path(`topics/${seg(row.name)}`) }, row.name), row.differs ? h('span', ' ', badge('warn', t('differs'))) : null] },
      { key: 'kind', label: t('Kind'), sort: true, cell: (row) => kindBadge(row.kind) },
      { key: 'queues', label: t('Queues'), sort: 'write_queues', align: 'right', cell: (row) => (row.read_queues === row.write_queues ? row.write_queues : `${row.read_queues} / ${row.write_queues}`) },
      { key: 'perm', label: t('Permission'), cell: (row) => h('span.mono', row.perm) },
      { key: 'brokers', label: t('Brokers'), sort: true, align: 'right', cell: (row) => h('span', { title: row.brokers.join(', ') }, row.brokers.length) },
      { key: 'in_tps', label: t('In'), sort: true, align: 'right', cell: (row) => rate(row.in_tps) },
      { key: 'messages', label: t('Kept'), sort: true, align: 'right', cell: (row) => short(row.messages) },
      { key: 'last_ms', label: t('Last message'), sort: true, align: 'right', cell: (row) => ago(row.last_ms) },
      { key: 'groups', label: t('Groups'), sort: true, align: 'right', cell: (row) => row.groups.length },
      { key: 'max_lag', label: t('Largest lag'), sort: true, align: 'right', cell: (row) => short(row.max_lag) },
    ],
    empty: () => (state.q || state.kind || state.show ? empty(t('No topic matches')) : empty(t('No topics yet'), t('Make one, send a message and read it:'), 'rocketq topic create Orders\nrocketq send Orders \'{"id": 1}\'\nrocketq tail Orders --from earliest')),
  });
  const foot = h('div');
  const bars = h('div.stack');
  let total = 0;

  function star(name) {
    if (!stars.delete(name)) stars.add(name);
    localStorage.setItem('rocketq.stars', JSON.stringify([...stars]));
    load();
  }

  function move(changes) {
    Object.assign(state, changes);
    setQuery({ ...state, sort: state.sort === 'name' ? '' : state.sort, from: state.from || '' });
    return load();
  }

  async function load() {
    const query = { ...state, n: SIZE };
    if (state.show === 'starred') Object.assign(query, { show: '', names: [...stars].join(',') || ' ', system: true });
    const found = await api(`${at}/topics`, { query });
    if (!page.alive()) return;
    total = found.total;
    table.update(found.items);
    fill(foot, pager(state.from, SIZE, found.total, (from) => move({ from })));
    fill(bars, partialNotice(found.partial, notice));
  }

  async function exportList(kind) {
    const found = await api(`${at}/topics`, { query: { ...state, from: 0, n: 1000 } });
    const names = ['name', 'kind', 'read_queues', 'write_queues', 'perm', 'brokers', 'in_tps', 'messages', 'groups', 'max_lag'];
    if (kind === 'json') download('topics.json', JSON.stringify(found, null, 2));
    else download('topics.csv', csv(names, found.items.map((row) => names.map((name) => row[name]))), 'text/csv');
  }

  fill(main, h('div.page-head', h('div.titles', h('h1', t('Topics'))), can('operator') && h('button.primary', { type: 'button', onclick: create }, icon('plus'), t('Make a topic'))),
    bars,
    h('section.card', h('header', h('div.bar', search,
      select([['', t('All kinds')], ['normal', t('normal')], ['fifo', t('FIFO')], ['delay', t('delay')], ['transaction', t('transaction')], ['retry', t('retry')], ['dlq', t('dead letters')], ['system', t('system')]], state.kind, (kind) => move({ kind, from: 0 }), { 'aria-label': t('Kind') }),
      select([['', t('All topics')], ['starred', t('Starred')], ['unread', t('Nobody reads it')], ['quiet', t('Nothing written for 7 days')], ['behind', t('Groups are behind')], ['differs', t('Differs between brokers')]], state.show, (show) => move({ show, from: 0 }), { 'aria-label': t('Show') }),
      h('label.check', h('input', { type: 'checkbox', checked: state.system, onchange: (event) => move({ system: event.target.checked, from: 0 }) }), t('system topics'))), h('span.grow'),
    h('button.small', { type: 'button', onclick: () => exportList('csv') }, 'CSV'), h('button.small', { type: 'button', onclick: () => exportList('json') }, 'JSON')),
    table.el, foot));

  async function create() {
    const body = await topicForm(t('Make a topic'), {});
    if (body && (await change({ title: t('Make a topic'), path: `${at}/topics`, body, verb: t('Make') }))) await load();
  }

  page.keys(table);
  await load();
  page.onsample(() => load().catch(() => {}));
  return total;
}

/** The form of a topic; resolves with the body of the request. */
export function topicForm(title, known) {
  return ask(title, (content) => {
    const topic = h('input', { value: known.topic || '', required: true, pattern: '[a-zA-Z0-9_%\\|\\-]+', disabled: Boolean(known.topic), autofocus: true });
    const read = h('input', { type: 'number', min: 1, max: 65535, value: known.read_queues || 8 });
    const write = h('input', { type: 'number', min: 1, max: 65535, value: known.write_queues || 8 });
    const perm = select([['rw', t('read and write')], ['r', t('read only')], ['w', t('write only')]], { 'RW-': 'rw', 'R--': 'r', '-W-': 'w' }[known.perm] || 'rw');
    const kind = select([['', t('normal')], ['FIFO', t('FIFO')], ['DELAY', t('delay')], ['TRANSACTION', t('transaction')]], '');
    fill(content, field(t('Name'), topic), h('div.form', field(t('Read queues per broker'), read), field(t('Write queues per broker'), write), field(t('Permission'), perm), !known.topic && field(t('Kind'), kind)));
    return () => ({ topic: topic.value.trim(), read_queues: Number(read.value), write_queues: Number(write.value), perm: perm.value, attributes: kind.value ? { 'message.type': kind.value } : {} });
  });
}
export { card };
