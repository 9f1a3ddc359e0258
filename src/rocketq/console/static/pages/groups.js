// Consumer groups: who is behind, and by how much.
import { h, fill, icon, badge, notice, empty, select, field, debounce } from '../dom.js';
import { t, short, rate, duration } from '../i18n.js';
import { api, seg } from '../api.js';
import { makeTable, pager } from '../table.js';
import { ask, change } from '../change.js';
import { lagCell, trendCell, partialNotice } from './parts.js';

const SIZE = 100;

export default async function groups(page) {
  const { main, at, path, setQuery, can } = page;
  const given = page.query;
  const state = { q: given.get('q') || '', show: given.get('show') || '', topic: given.get('topic') || '', sort: given.get('sort') || '-lag_known', from: Number(given.get('from') || 0), system: given.get('system') === 'true' };
  const search = h('input.search', { type: 'search', placeholder: t('Filter by name'), value: state.q, 'data-filter': true, 'aria-label': t('Filter by name'), oninput: debounce(() => move({ q: search.value, from: 0 })) });
  const table = makeTable({
    caption: t('Groups'), rowKey: (row) => row.name, sort: state.sort, onsort: (sort) => move({ sort, from: 0 }), onopen: (row) => page.go(path(`groups/${seg(row.name)}`)),
    columns: [
      { key: 'name', label: t('Name'), sort: true, cls: 'cut', cell: (row) => [h('a.name', { href: path(`groups/${seg(row.name)}`) }, row.name), row.conflicts ? h('span', ' ', badge('bad', t('conflict'))) : null, row.enabled ? null : h('span', ' ', badge('warn', t('paused')))] },
      { key: 'lag', label: t('Lag'), sort: 'lag_known', align: 'right', cell: lagCell },
      { key: 'delay', label: t('Oldest waits'), sort: 'delay_ms', align: 'right', cell: (row) => duration(row.delay_ms) },
      { key: 'trend', label: t('Trend'), cell: trendCell },
      { key: 'members', label: t('Members'), sort: true, align: 'right', cell: (row) => (row.members === 0 ? badge(row.lag_known ? 'warn' : '', t('offline')) : row.members ?? h('span.muted', '…')) },
      { key: 'mode', label: t('Mode'), cell: (row) => (row.mode ? `${row.mode === 'pull' ? t('pull') : t('push')}${row.model === 'broadcasting' ? ` · ${t('broadcast')}` : ''}` : '–') },
      { key: 'topics', label: t('Topics'), cls: 'cut', cell: (row) => row.topics.join(', ') || '–' },
      { key: 'consume_tps', label: t('Consumes'), sort: true, align: 'right', cell: (row) => rate(row.consume_tps) },
      { key: 'retry', label: t('Retries'), sort: 'retry_waiting', align: 'right', cell: (row) => short(row.retry_waiting) },
      { key: 'dead', label: t('Dead letters'), sort: 'dead_letters', align: 'right', cell: (row) => (row.dead_letters ? h('a', { href: path(`dlq/${seg(row.name)}`) }, short(row.dead_letters)) : short(row.dead_letters)) },
    ],
    empty: () => (state.q || state.show ? empty(t('No group matches')) : empty(t('No consumer groups yet'), t('A group appears when its first consumer connects.'), 'rocketq group set billing')),
  });
  const foot = h('div');
  const bars = h('div.stack');

  function move(changes) {
    Object.assign(state, changes);
    setQuery({ ...state, sort: state.sort === '-lag_known' ? '' : state.sort, from: state.from || '' });
    return load();
  }

  async function load() {
    const found = await api(`${at}/groups`, { query: { ...state, n: SIZE } });
    if (!page.alive()) return;
    table.update(found.items);
    fill(foot, pager(state.from, SIZE, found.total, (from) => move({ from })));
    fill(bars, partialNotice(found.partial, notice));
  }

  fill(main, h('div.page-head', h('div.titles', h('h1', t('Groups'))), can('operator') && h('button.primary', { type: 'button', onclick: create }, icon('plus'), t('Make a group'))), bars,
    h('section.card', h('header', h('div.bar', search,
      select([['', t('All groups')], ['behind', t('Behind')], ['unknown', t('Lag unknown')], ['offline', t('Offline with lag')], ['conflict', t('Conflicts')], ['empty', t('Without members')]], state.show, (show) => move({ show, from: 0 }), { 'aria-label': t('Show') }),
      state.topic && h('button.small', { type: 'button', onclick: () => { move({ topic: '' }); page.go(path('groups')); } }, t('topic {name}', { name: state.topic }), icon('close')),
      h('label.check', h('input', { type: 'checkbox', checked: state.system, onchange: (event) => move({ system: event.target.checked, from: 0 }) }), t('system groups')))), table.el, foot));

  async function create() {
    const body = await ask(t('Make a group'), (content) => {
      const name = h('input', { required: true, autofocus: true });
      const retries = h('input', { type: 'number', min: -1, value: 16 });
      fill(content, field(t('Name'), name), field(t('Deliveries before a message is a dead letter'), retries));
      return () => ({ group: name.value.trim(), retry_max: Number(retries.value) });
    });
    if (body && (await change({ title: t('Make a group'), path: `${at}/groups`, body, verb: t('Make') }))) await load();
  }

  page.keys(table);
  await load();
  page.onsample(() => load().catch(() => {}));
}
