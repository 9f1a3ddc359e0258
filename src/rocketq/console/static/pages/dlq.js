// Dead letters: which groups have some.
import { h, fill, badge, empty, card } from '../dom.js';
import { t, count, ago, time } from '../i18n.js';
import { api, seg } from '../api.js';
import { makeTable } from '../table.js';

export const runBadge = (state) => badge({ running: 'info', done: 'ok', stopped: 'warn', 'broken-off': 'bad' }[state] || '', { running: () => t('running'), done: () => t('done'), stopped: () => t('stopped'), 'broken-off': () => t('broken off') }[state]?.() || state);

export default async function dlq(page) {
  const { main, at, path } = page;
  const table = makeTable({
    caption: t('Dead letters'), rowKey: (row) => row.group, onopen: (row) => page.go(path(`dlq/${seg(row.group)}`)),
    columns: [
      { key: 'group', label: t('Group'), cls: 'cut', cell: (row) => h('a.name', { href: path(`dlq/${seg(row.group)}`) }, row.group) },
      { key: 'count', label: t('Dead letters'), align: 'right', cell: (row) => (row.count === null ? h('span', { title: row.reason }, badge('info', t('unknown'))) : count(row.count)) },
      { key: 'newest', label: t('Newest'), align: 'right', cell: (row) => h('span', { title: time(row.newest_ms) }, ago(row.newest_ms)) },
      { key: 'topic', label: t('Topic'), cls: 'cut', cell: (row) => h('span.mono', row.topic) },
    ],
    empty: () => empty(t('No dead letters'), t('A message becomes a dead letter when a group has failed on it as often as it may.')),
  });
  const runs = h('div');
  fill(main, h('div.page-head', h('div.titles', h('h1', t('Dead letters')), h('p.sub', t('Messages that a group could not process. They stay until the retention of their topic deletes them.')))), h('section.card', table.el), runs);
  async function load() {
    const [found, past] = await Promise.all([api(`${at}/dlq`), api(`${at}/runs`)]);
    if (!page.alive()) return;
    table.update(found.items.filter((one) => one.count !== 0));
    fill(runs, past.items.length > 0 && card(t('Replays'), null, h('ul.findings', past.items.slice(0, 20).map((one) => h('li', h('a', { href: path(`dlq/${seg(one.group)}`, { run: one.id }) }, runBadge(one.state), h('span.grow', t('{group}: {sent} of {total} sent', { group: one.group, sent: count(one.counts.sent || 0), total: count(one.counts.total) })), h('span.muted', t('{user}, {time}', { user: one.user, time: ago(one.started_ms) }))))))));
  }
  page.keys(table);
  await load();
  page.onsample(() => load().catch(() => {}));
}
