// The life of one message: a waterfall with a table behind it.
import { h, fill, icon, badge, card, notice, empty, facts, field } from '../dom.js';
import { t, time, duration } from '../i18n.js';
import { api, seg } from '../api.js';
import { problemText } from '../change.js';

const KINDS = { born: ['k4', () => t('born')], sent: ['k1', () => t('sent')], stored: ['k2', () => t('stored')], delivered: ['k3', () => t('delivered')], transaction: ['k4', () => t('transaction')], recalled: ['k4', () => t('taken back')] };
const STATES = {
  found: ['ok', () => t('traced')], 'no-trace': ['info', () => t('no trace')], 'tracing-off': ['warn', () => t('tracing was off')], 'query-failed': ['bad', () => t('the query failed')],
};

export default async function trace(page) {
  const { main, at, setQuery, query } = page;
  const id = h('input', { value: query.get('id') || '', 'data-filter': true });
  const key = h('input', { value: query.get('key') || '' });
  const topic = h('input', { value: query.get('topic') || '' });
  const results = h('div.stack');
  async function find() {
    const asked = { id: id.value.trim(), key: key.value.trim(), topic: topic.value.trim() };
    setQuery(asked);
    if (!asked.id && !asked.key) return fill(results, h('section.card', empty(t('Which message?'), t('Give a message id, or a key. With the topic the stored message is looked up too.'))));
    fill(results, h('div.bar', h('span.spin'), t('looking')));
    try {
      const found = await api(`${at}/traces`, { query: asked });
      fill(results, found.traces.length ? found.traces.map((one) => view(page, one)) : h('section.card', empty(t('No traced message has this key'))));
    } catch (error) {
      fill(results, notice('bad', problemText(error)));
    }
    return undefined;
  }
  fill(main, h('div.page-head', h('div.titles', h('h1', t('Trace')), h('p.sub', t('When a message was sent, stored and delivered, to whom, and with which result.')))),
    h('form.card', { onsubmit: (event) => { event.preventDefault(); find(); } }, h('div.body', h('div.form', field(t('Message id'), id), field(t('Key'), key), field(t('Topic'), topic), h('button.primary', { type: 'submit' }, icon('search'), t('Find'))))), results);
  await find();
}

function view(page, one) {
  const { path } = page;
  const starts = one.events.map((event) => event.start_ms);
  const first = Math.min(...starts);
  const last = Math.max(...one.events.map((event) => event.start_ms + (event.cost_ms || 0)), first + 1);
  const [kind, label] = STATES[one.state];
  return card(one.message_id, badge(kind, label()), h('div.body.stack',
    one.reason && notice(one.state === 'query-failed' ? 'bad' : 'warn', one.reason),
    facts([[t('Topic'), one.topic && h('a', { href: path(`topics/${seg(one.topic)}`, { key: one.message_id }) }, one.topic)], [t('Keys'), one.keys.join(' ') || null], [t('Tag'), one.tag], one.traceparent && ['traceparent', h('span.mono', one.traceparent)], one.events.length > 0 && [t('Takes'), duration(last - first)]]),
    one.events.length > 0 && h('div.table-wrap', h('table.wave', h('thead', h('tr', [t('Event'), t('When'), t('Took'), t('Result'), t('Group'), t('Where'), t('Timeline')].map((name) => h('th', { scope: 'col' }, name)))),
      h('tbody', one.events.map((event) => {
        const part = h(`i.${KINDS[event.kind]?.[0] || 'k4'}`);
        part.style.left = `${((event.start_ms - first) / (last - first)) * 98}%`;
        part.style.width = `${Math.max(1, ((event.cost_ms || 0) / (last - first)) * 98)}%`;
        return h('tr', h('td', KINDS[event.kind]?.[1]() || event.kind, event.attempt ? ` #${event.attempt}` : ''), h('td.num.nowrap', { title: time(event.start_ms) }, `+${duration(event.start_ms - first)}`), h('td.num', event.cost_ms === null ? '–' : duration(event.cost_ms)),
          h('td', event.ok === null ? h('span.muted', t('unknown')) : event.ok ? badge('ok', t('ok')) : badge('bad', t('failed'))), h('td', event.group ? h('a', { href: path(`groups/${seg(event.group)}`) }, event.group) : '–'), h('td.cut', [event.place, event.client, event.detail].filter(Boolean).join(' · ')), h('td', h('div.track', part)));
      }))))));
}
