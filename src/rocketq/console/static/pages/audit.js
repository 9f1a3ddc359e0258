// The log of changes.
import { h, fill, badge, notice, empty, debounce, download } from '../dom.js';
import { t, time, ago } from '../i18n.js';
import { api } from '../api.js';
import { makeTable } from '../table.js';

export default async function audit(page) {
  const { main, setQuery } = page;
  const state = { q: page.query.get('q') || '' };
  const said = h('div');
  let found = { items: [] };
  const search = h('input.search', { type: 'search', value: state.q, placeholder: t('User, action or target'), 'aria-label': t('User, action or target'), 'data-filter': true, oninput: debounce(() => { state.q = search.value; setQuery(state); load(); }) });
  const table = makeTable({
    caption: t('Audit'), rowKey: (row) => row.hash,
    columns: [
      { key: 'time', label: t('Time'), cls: 'nowrap', cell: (row) => h('span', { title: ago(row.at_ms) }, time(row.at_ms)) }, { key: 'user', label: t('User'), cell: (row) => h('span', { title: row.source }, row.user) },
      { key: 'cluster', label: t('Cluster'), cell: (row) => row.cluster }, { key: 'action', label: t('Action'), cell: (row) => h('strong', row.action) }, { key: 'target', label: t('Target'), cls: 'cut', cell: (row) => row.target },
      { key: 'results', label: t('Result'), cell: (row) => Object.entries(row.results).map(([name, number]) => badge(name === 'done' ? 'ok' : name === 'failed' ? 'bad' : '', `${name} ${number}`)) },
      { key: 'failures', label: t('Why'), cls: 'cut', cell: (row) => row.failures.join('; ') }, { key: 'hash', label: t('Hash'), cell: (row) => h('span.mono.muted', { title: row.hash }, row.hash.slice(0, 8)) },
    ],
    empty: () => empty(t('Nothing was changed yet'), t('Every change made with this console is listed here.')),
  });
  async function load() {
    found = await api('/audit', { query: { ...state, n: 500 } });
    if (!page.alive()) return;
    fill(said, found.intact ? null : notice('bad', found.reason));
    table.update(found.items);
  }
  fill(main, h('div.page-head', h('div.titles', h('h1', t('Audit')), h('p.sub', t('Changes made with this console. Each line carries the hash of the one before it.')))), said, h('section.card', h('header', search, h('span.grow'), h('button.small', { type: 'button', onclick: () => download('audit.jsonl', found.items.map((one) => JSON.stringify(one)).join('\n'), 'application/x-ndjson') }, t('Export'))), table.el));
  page.keys(table);
  await load();
}
