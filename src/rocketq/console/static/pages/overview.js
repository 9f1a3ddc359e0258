// Overview: is it healthy, what is wrong, who is behind.
import { h, fill, icon, badge, card, notice, empty } from '../dom.js';
import { t, plural, count, short, rate, percent, duration, ago } from '../i18n.js';
import { api, seg } from '../api.js';
import { chartBox } from '../chart.js';
import { lagCell } from './parts.js';

const FINDINGS = {
  'broker-missing': (f) => t('Broker {broker} does not answer at {addr}: {reason}', f),
  disk: (f) => t('The disk of {broker} is {used} full', { broker: f.broker, used: percent(f.ratio) }),
  'replica-behind': (f) => t('A replica of {broker} is behind', f),
  'group-behind': (f) => t('{group} is {lag} messages behind, {time}, most on {topic} queue {queue}', { ...f, lag: count(f.lag), time: duration(f.delay_ms) }),
  'group-offline': (f) => t('{group} has no members and {lag} messages wait', { ...f, lag: count(f.lag) }),
  conflict: (f) => t('Members of {group} subscribe to different things', f),
  'dead-letters': (f) => t('{count} new dead letters in the last hour', { count: count(f.count) }),
  'groups-unknown': (f) => t('The lag of {count} groups is unknown, such as {group}', f),
};
const KINDS = { critical: ['bad', () => t('critical')], warning: ['warn', () => t('warning')], info: ['info', () => t('note')] };

export default async function overview(page) {
  const { main, at, path } = page;
  const health = h('div');
  const tiles = h('div.tiles');
  const flow = chartBox(t('Messages per second'), [t('in'), t('out')], rate);
  const lag = chartBox(t('Lag of all groups'), [t('lag')], short);
  const brokers = h('div');
  const topics = h('div');
  const groups = h('div');
  const changes = h('div');
  const partial = h('div');
  let drawn = false;

  async function load() {
    const [found, past] = await Promise.all([api(`${at}/overview`), api(`${at}/history`, { query: { series: 'in,out,lag', span_s: 3600 } })]);
    if (!page.alive()) return;
    if (!drawn) {
      drawn = true;
      fill(main, h('div.page-head', h('div.titles', h('h1', t('Overview')), h('p.sub', t('{brokers} brokers, {topics} topics, {groups} groups', { ...found.figures })))),
        partial, health, tiles,
        h('div.grid.two', card(t('Messages per second'), null, flow.el), card(t('Lag of all groups'), null, lag.el)),
        h('div.grid.two', card(t('Groups that are furthest behind'), h('a', { href: path('groups') }, t('All groups')), groups), card(t('Busiest topics'), h('a', { href: path('topics') }, t('All topics')), topics)),
        h('div.grid.two', card(t('Brokers'), h('a', { href: path('brokers') }, t('All brokers')), brokers), card(t('Last changes'), h('a', { href: 'audit' }, t('Audit')), changes)));
    }
    draw(found);
    flow.update({ ...past, series: past.series.slice(0, 2) });
    lag.update({ ...past, series: past.series.slice(2) });
  }

  function draw(found) {
    const { figures } = found;
    fill(partial, found.error && notice('bad', t('The last sample failed: {reason}', { reason: found.error })), found.stale && notice('warn', t('These figures are from {time}', { time: ago(found.asOf) })));
    const worst = found.findings[0];
    fill(health, h('section.card', h('header', worst ? badge(KINDS[worst.severity][0], icon('warn'), KINDS[worst.severity][1]()) : badge('ok', icon('ok'), t('healthy')),
      h('h2', worst ? plural(found.findings.length, t('1 finding'), t('{n} findings', { n: found.findings.length })) : t('All checks passed')), h('span.grow'), h('span.muted', { title: t('{n} requests to the cluster', { n: found.requests }) }, ago(found.asOf))),
    worst && h('ul.findings', found.findings.slice(0, 8).map((one) => h('li', h('a', { href: path(one.link) }, badge(KINDS[one.severity][0], KINDS[one.severity][1]()), h('span.grow', FINDINGS[one.code]?.(one.fields) ?? one.code), icon('back'))))),
    found.findings.length > 8 && h('div.pager', t('and {n} more', { n: found.findings.length - 8 }))));
    for (const arrow of health.querySelectorAll('li svg:last-child')) arrow.style.rotate = '180deg';
    const tile = (label, value, more, href) => h(href ? 'a.tile' : 'div.tile', href ? { href } : {}, h('div.label', label), h('div.value', value), more && h('div.more', more));
    fill(tiles,
      tile(t('Messages in'), rate(figures.in_tps), null, path('topics', { sort: '-in_tps' })),
      tile(t('Messages out'), rate(figures.out_tps)),
      tile(t('Lag'), short(figures.lag), figures.lag_unknown_groups ? t('{n} groups unknown', { n: figures.lag_unknown_groups }) : t('all known'), path('groups')),
      tile(t('Dead letters'), figures.dead_letters === null ? t('unknown') : short(figures.dead_letters), null, path('dlq')),
      tile(t('Fullest disk'), percent(figures.disk_ratio), null, path('brokers')),
      tile(t('Brokers'), `${figures.brokers - figures.brokers_missing} / ${figures.brokers}`, figures.brokers_missing ? t('{n} do not answer', { n: figures.brokers_missing }) : t('all answer'), path('brokers')));
    fill(groups, found.groups.length ? h('div.table-wrap', h('table', h('thead', h('tr', h('th', { scope: 'col' }, t('Group')), h('th', { scope: 'col' }, t('Topics')), h('th.right', { scope: 'col' }, t('Lag')), h('th.right', { scope: 'col' }, t('Members')))),
      h('tbody', found.groups.slice(0, 8).map((one) => h('tr', h('td.cut', h('a', { href: path(`groups/${seg(one.name)}`) }, one.name)), h('td.cut', one.topics.join(', ')), h('td.right', lagCell(one)), h('td.right', one.members ?? '–'))))))
      : empty(t('No consumer groups yet'), t('A group appears when its first consumer connects.')));
    fill(topics, found.topics.length ? h('div.table-wrap', h('table', h('thead', h('tr', h('th', { scope: 'col' }, t('Topic')), h('th.right', { scope: 'col' }, t('In')), h('th.right', { scope: 'col' }, t('Kept')), h('th.right', { scope: 'col' }, t('Groups')))),
      h('tbody', found.topics.slice(0, 8).map((one) => h('tr', h('td.cut', h('a', { href: path(`topics/${seg(one.name)}`) }, one.name)), h('td.right', rate(one.in_tps)), h('td.right', short(one.messages)), h('td.right', one.groups.length))))))
      : empty(t('No topics yet'), t('Make one, send a message and read it:'), 'rocketq topic create Orders\nrocketq send Orders \'{"id": 1}\'\nrocketq tail Orders --from earliest'));
    fill(brokers, h('ul.findings', found.brokers.map((one) => h('li', h('a', { href: path(`brokers/${seg(one.name)}`) },
      one.reachable ? badge('ok', t('up')) : badge('bad', t('no answer')),
      h('span.grow', h('div', h('span.name', one.name), ' ', h('span.muted', one.addr)), h('div.bar-line', bar(one.disk_ratio))),
      h('span.muted.num.nowrap', t('{in} in, {out} out', { in: rate(one.in_tps), out: rate(one.out_tps) })))))));
    fill(changes, found.changes.length ? h('ul.findings', found.changes.map((one) => h('li', h('div.row', h('span.grow', h('strong', one.action), ' ', one.target), h('span.muted.nowrap', t('{user}, {time}', { user: one.user, time: ago(one.at_ms) })))))) : empty(t('Nothing was changed yet')));
  }

  await load();
  page.onsample(() => load().catch(() => {}));
}

function bar(ratio) {
  const part = h(`i${ratio >= 0.85 ? '.bad' : ratio >= 0.75 ? '.warn' : ''}`);
  part.style.width = `${Math.round((ratio || 0) * 100)}%`;
  return part;
}
