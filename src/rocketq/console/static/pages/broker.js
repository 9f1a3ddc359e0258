// One broker: runtime, configuration, replicas, maintenance.
import { h, fill, badge, card, notice, empty, field, facts, debounce } from '../dom.js';
import { t, count, rate, percent, time, ago, bytes } from '../i18n.js';
import { api, seg } from '../api.js';
import { makeTable } from '../table.js';
import { ask, change } from '../change.js';
import { chartBox } from '../chart.js';
import { tabs } from './parts.js';

export default async function broker(page) {
  const { main, at, item, can, path } = page;
  const tab = page.query.get('tab') || 'runtime';
  const found = await api(`${at}/brokers/${seg(item)}`);
  if (!page.alive()) return;
  const { broker: one } = found;
  const body = h('div.stack');
  const tile = (label, value) => h('div.tile', h('div.label', label), h('div.value', value));
  fill(main, h('div.page-head', h('div.titles', h('div.crumbs', h('a', { href: path('brokers') }, t('Brokers')), '/'), h('h1', item, ' ', one.reachable ? badge('ok', t('up')) : badge('bad', t('no answer'))), h('p.sub', [one.addr, one.product && `RocketQ ${one.product}`, one.version].filter(Boolean).join(' · '))),
    can('admin') && h('button', { type: 'button', onclick: () => maintain(false) }, t('Start maintenance')), can('admin') && h('button', { type: 'button', onclick: () => maintain(true) }, t('End maintenance'))),
  Object.values(found.reasons).map((reason) => notice('warn', reason)), one.reason && notice('bad', one.reason),
  h('div.tiles', tile(t('In'), rate(one.in_tps)), tile(t('Out'), rate(one.out_tps)), tile(t('Disk'), percent(one.disk_ratio)), tile(t('Producers'), one.producers ?? '–'), tile(t('Oldest message'), ago(one.earliest_ms)), tile(t('Started'), ago(one.boot_ms))),
  tabs(page, [['runtime', t('Runtime')], ['config', t('Configuration')], ['ha', t('Replicas')], ['clean', t('Clean up')]], tab), body);

  async function maintain(writable) {
    await change({ title: writable ? t('Give write permission back') : t('Take write permission for maintenance'), path: `${at}/brokers/${seg(item)}:maintenance`, query: { writable: String(writable) } });
  }

  if (tab === 'config') return settings();
  if (tab === 'ha') return replicas();
  if (tab === 'clean') return clean();
  const flow = chartBox(t('Messages per second'), [t('in'), t('out')], rate);
  const disk = chartBox(t('Disk'), [t('used')], percent);
  fill(body, h('div.grid.two', card(t('Messages per second'), null, flow.el), card(t('Disk'), null, disk.el)), card(t('Figures of the broker'), null, h('div.body', facts(Object.entries(one.runtime).map(([name, value]) => [name, h('span.mono', /(Timestamp|TimeStamp)$/.test(name) && Number(value) > 1e12 ? time(Number(value)) : value)])))));
  const load = async () => {
    const past = await api(`${at}/history`, { query: { series: `broker/${item}/in,broker/${item}/out,broker/${item}/disk` } });
    flow.update({ ...past, series: past.series.slice(0, 2) });
    disk.update({ ...past, series: past.series.slice(2) });
  };
  await load();
  return page.onsample(() => load().catch(() => {}));

  function settings() {
    const names = [...new Set(found.settings.flatMap((row) => Object.keys(row.values)))];
    let text = '';
    let differs = page.query.get('differs') === 'true';
    const search = h('input.search', { type: 'search', placeholder: t('Filter by name or value'), 'aria-label': t('Filter by name or value'), 'data-filter': true, oninput: debounce(() => { text = search.value.toLowerCase(); draw(); }) });
    const table = makeTable({
      caption: t('Configuration'), rowKey: (row) => row.key, onopen: can('admin') ? edit : undefined,
      columns: [{ key: 'key', label: t('Setting'), cell: (row) => [h('span.mono', row.key), row.differs ? h('span', ' ', badge('warn', t('differs'))) : null] }, ...names.map((name) => ({ key: name, label: name, cls: 'cut', cell: (row) => h('span.mono', row.values[name] ?? '–') }))],
      empty: () => empty(t('No setting matches')),
    });
    function draw() {
      table.update(found.settings.filter((row) => (!differs || row.differs) && (!text || row.key.toLowerCase().includes(text) || Object.values(row.values).some((value) => value.toLowerCase().includes(text)))));
    }
    async function edit(row) {
      const value = await ask(t('Change {name}', { name: row.key }), (content) => { const input = h('input', { value: row.values[item], autofocus: true }); fill(content, field(t('Value on {name}', { name: item }), input)); return () => input.value; }, t('Preview'));
      if (value !== undefined && (await change({ title: t('Change {name}', { name: row.key }), path: `${at}/brokers/${seg(item)}/config`, body: { changes: { [row.key]: value } } }))) page.go(location.href, { replace: true });
    }
    fill(body, h('section.card', h('header', search, h('label.check', h('input', { type: 'checkbox', checked: differs, onchange: (event) => { differs = event.target.checked; page.setQuery({ differs: differs ? 'true' : '' }); draw(); } }), t('only differences between brokers'))), table.el));
    page.keys(table);
    draw();
  }

  function replicas() {
    const state = found.replication;
    if (!state) return fill(body, h('section.card', empty(t('The broker does not tell about replicas'))));
    return fill(body, card(t('Replicas'), badge('', state.is_master ? t('master') : t('replica')), h('div.body.stack', facts([[t('Log end'), count(state.log_end)], [t('In sync'), state.in_sync_count], [t('Addresses'), Object.entries(one.replicas).map(([number, addr]) => h('div.mono', `${number}: ${addr}`))]]),
      state.replicas.length ? h('div.table-wrap', h('table', h('thead', h('tr', [t('Address'), t('State'), t('Confirmed to'), t('Behind'), t('Bytes/s')].map((name) => h('th', { scope: 'col' }, name)))), h('tbody', state.replicas.map((link) => h('tr', h('td.mono', link.addr), h('td', link.in_sync ? badge('ok', t('in sync')) : badge('warn', t('behind'))), h('td.num', count(link.confirmed_to)), h('td.num', bytes(link.behind_bytes)), h('td.num', bytes(link.bytes_per_second))))))) : empty(t('No replica is connected'), t('A second broker with the same name makes the data safe.'), 'rocketq up --replicas 3'))));
  }

  function clean() {
    const row = (what, title, text) => h('li', h('div.row', h('span.grow', h('strong', title), h('div.muted', text)), can('admin') && h('button.danger', { type: 'button', onclick: () => change({ title, path: `${at}/brokers/${seg(item)}:clean`, query: { what }, danger: true, verb: title }) }, t('Clean'))));
    fill(body, h('section.card', h('ul.findings', row('consume-queues', t('Expired consume queues'), t('Index files of queues whose messages are gone.')), row('commit-log', t('Expired commit log files'), t('Files older than the retention, now instead of at the usual hour.')), row('unused-topics', t('Queues of unused topics'), t('Files of topics that no longer exist.')))));
  }
}
