// Brokers and NameServers.
import { h, fill, badge, card, notice } from '../dom.js';
import { t, count, rate, percent, ago, time, bytes, duration } from '../i18n.js';
import { api, seg } from '../api.js';
import { makeTable } from '../table.js';
import { partialNotice } from './parts.js';

export default async function brokers(page) {
  const { main, at, path } = page;
  const bars = h('div.stack');
  const names = h('div');
  const table = makeTable({
    caption: t('Brokers'), rowKey: (row) => row.name, onopen: (row) => page.go(path(`brokers/${seg(row.name)}`)),
    columns: [
      { key: 'name', label: t('Name'), cell: (row) => h('a.name', { href: path(`brokers/${seg(row.name)}`) }, row.name) },
      { key: 'state', label: t('State'), cell: (row) => (row.reachable ? badge('ok', t('up')) : h('span', { title: row.reason }, badge('bad', t('no answer')))) },
      { key: 'addr', label: t('Address'), cell: (row) => row.addr }, { key: 'version', label: t('Version'), cell: (row) => [row.product && `RocketQ ${row.product} · `, row.version] },
      { key: 'in', label: t('In'), align: 'right', cell: (row) => rate(row.in_tps) }, { key: 'out', label: t('Out'), align: 'right', cell: (row) => rate(row.out_tps) },
      { key: 'today', label: t('Today in'), align: 'right', cell: (row) => count(row.in_today) },
      { key: 'p99', label: t('Store p99'), align: 'right', cell: (row) => (row.put_p99_ms === null ? '–' : duration(row.put_p99_ms)) },
      { key: 'disk', label: t('Disk'), align: 'right', cell: (row) => (row.disk_ratio >= 0.75 ? badge(row.disk_ratio >= 0.85 ? 'bad' : 'warn', percent(row.disk_ratio)) : percent(row.disk_ratio)) },
      { key: 'replicas', label: t('Replicas'), align: 'right', cell: (row) => (row.replica_count === null ? '–' : `${row.in_sync ?? '–'} / ${row.replica_count}`) },
      { key: 'up', label: t('Started'), align: 'right', cell: (row) => h('span', { title: time(row.boot_ms) }, ago(row.boot_ms)) },
    ],
  });
  fill(main, h('div.page-head', h('div.titles', h('h1', t('Brokers')))), bars, h('section.card', table.el), names);
  async function load() {
    const [found, servers] = await Promise.all([api(`${at}/brokers`), api(`${at}/nameservers`)]);
    if (!page.alive()) return;
    table.update(found.items);
    fill(bars, partialNotice(found.partial, notice), !servers.agree && notice('bad', t('The NameServers disagree about the brokers.')));
    fill(names, card(t('NameServers'), null, h('div.table-wrap', h('table', h('thead', h('tr', [t('Address'), t('State'), t('Brokers it knows')].map((one) => h('th', { scope: 'col' }, one)))), h('tbody', servers.items.map((one) => h('tr', h('td.mono', one.addr), h('td', one.reachable ? badge('ok', t('up')) : badge('bad', t('no answer'))), h('td', one.reachable ? Object.entries(one.brokers).map(([name, addrs]) => h('div', `${name}: ${Object.entries(addrs).map(([number, addr]) => `${addr} (${number === '0' ? t('master') : number})`).join(', ')}`)) : one.reason))))))));
  }
  page.keys(table);
  await load();
  page.onsample(() => load().catch(() => {}));
}
export { bytes };
