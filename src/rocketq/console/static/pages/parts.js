// What several pages show: lag, reasons, JSON, hex, and a message in the drawer.
import { h, fill, icon, badge, facts, copyButton, copyable, download, field, toast } from '../dom.js';
import { t, count, short, time, bytes, duration, ago, zoneName } from '../i18n.js';
import { api, seg, can } from '../api.js';
import { ask, change, drawer } from '../change.js';

const REASONS = {
  never_committed: () => t('nothing was committed yet'),
  offset_deleted: () => t('the message at the committed offset was deleted'),
  offset_ahead: () => t('the committed offset is beyond the end'),
  broker_unreachable: () => t('the broker does not answer'),
};

/** Why a lag is unknown. */
export function reasonText(reason) {
  if (!reason) return '';
  for (const [code, text] of Object.entries(REASONS)) if (reason.endsWith(code)) return reason.replace(code, text());
  return reason;
}

/** A number, "unknown" with its reason, or "not subscribed": never 0 for an unknown lag. */
export function lagCell(group) {
  if (group.state === 'known') {
    const kind = group.lag > 10000 || (group.delay_ms ?? 0) > 300000 ? 'bad' : group.lag > 1000 ? 'warn' : '';
    const text = h('span', { title: count(group.lag) }, short(group.lag));
    return kind && group.lag ? badge(kind, icon('warn'), text) : text;
  }
  if (group.state === 'not-subscribed') return h('span.muted', t('not subscribed'));
  return h('span', { title: reasonText(group.reason) }, badge('info', t('unknown')));
}

const TRENDS = { 'catching-up': ['ok', () => t('catching up')], steady: ['', () => t('steady')], 'falling-behind': ['bad', () => t('falling behind')] };

export function trendCell(group) {
  if (!group.trend) return h('span.muted', '–');
  const [kind, label] = TRENDS[group.trend];
  return h('span', badge(kind, label()), group.done_in_s ? h('span.muted', ` ${t('done in {time}', { time: duration(group.done_in_s * 1000) })}`) : null);
}

/** A folded tree of a JSON value. */
export function jsonTree(value, name, depth = 0) {
  const label = name === undefined ? null : [h('span.key', JSON.stringify(name)), ': '];
  if (value !== null && typeof value === 'object') {
    const list = Array.isArray(value);
    const entries = Object.entries(value);
    const summary = h('summary', label, h('span.muted', list ? `[${entries.length}]` : `{${entries.length}}`));
    const holder = h('div');
    const details = h('details', { open: depth < 3 && entries.length < 60, ontoggle: build }, summary, holder);
    function build() {
      if (details.open && !holder.children.length) fill(holder, entries.slice(0, 1000).map(([key, each]) => jsonTree(each, list ? Number(key) : key, depth + 1)));
    }
    build();
    return depth ? details : h('div.json', details);
  }
  const kind = typeof value === 'string' ? 'str' : typeof value === 'number' ? 'numb' : 'lit';
  const leaf = h('div.leaf', label, h(`span.${kind}`, JSON.stringify(value)));
  return depth ? leaf : h('div.json', leaf);
}

/** Offsets, hex and ASCII of bytes. */
export function hexText(data) {
  const rows = [];
  for (let at = 0; at < Math.min(data.length, 8192); at += 16) {
    const part = data.slice(at, at + 16);
    const hex = [...part].map((each) => each.toString(16).padStart(2, '0')).join(' ').padEnd(47);
    rows.push(`${at.toString(16).padStart(6, '0')}  ${hex}  ${[...part].map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : '.')).join('')}`);
  }
  return rows.join('\n') + (data.length > 8192 ? '\n…' : '');
}

export function bodyBytes(message) {
  if (message.body_base64 === null || message.body_base64 === undefined) return new TextEncoder().encode(message.body || '');
  return Uint8Array.from(atob(message.body_base64), (char) => char.charCodeAt(0));
}

/** The body as tree, text or hex, with a choice. */
export function bodyView(message) {
  let parsed;
  try { parsed = JSON.parse(message.body); } catch { parsed = undefined; }
  const kinds = [parsed !== undefined && typeof parsed === 'object' && ['tree', 'JSON'], message.body !== null && ['text', t('Text')], ['hex', t('Hex')], message.body_base64 && ['base64', 'Base64']].filter(Boolean);
  const shown = h('div');
  const buttons = kinds.map(([kind, label]) => h('button', { type: 'button', onclick: () => draw(kind) }, label));
  function draw(kind) {
    buttons.forEach((button, at) => button.setAttribute('aria-pressed', String(kinds[at][0] === kind)));
    fill(shown, kind === 'tree' ? h('pre.code', jsonTree(parsed)) : h('pre.code', kind === 'text' ? message.body : kind === 'hex' ? hexText(bodyBytes(message)) : message.body_base64));
  }
  draw(kinds[0][0]);
  return h('div.stack', h('div.bar', h('div.chips', buttons), h('span.grow'), message.compression && badge('', message.compression), h('span.muted', bytes(message.body_bytes)),
    copyButton(message.body ?? message.body_base64, t('Copy body')),
    h('button.icon', { type: 'button', 'aria-label': t('Download'), title: t('Download'), onclick: () => download(`${message.topic}-${message.queue_offset}`, bodyBytes(message), 'application/octet-stream') }, icon('down'))),
  message.masked && h('p.muted', t('Parts of the body are hidden for your role.')), message.body_fault && h('p.muted', message.body_fault),
  shown, message.truncated && h('p.muted', t('Only the first 64 KiB are shown.')));
}

const EXPLAINED = {
  UNIQ_KEY: () => t('the message id'), KEYS: () => t('keys'), TAGS: () => t('tag'), WAIT: () => t('the sender waited for the disk'), DELAY: () => t('delay level'),
  RETRY_TOPIC: () => t('topic before the retry'), DLQ_ORIGIN_TOPIC: () => t('topic before it died'), DLQ_ORIGIN_MESSAGE_ID: () => t('id before it died'), ROCKETQ_REPLAYED_FROM: () => t('copy of this dead letter'),
  TRACE_ON: () => t('traces enabled'), MSG_REGION: () => t('region'), PGROUP: () => t('producer group'), REAL_TOPIC: () => t('topic it is meant for'), TIMER_OUT_MS: () => t('time it is due'),
};

const HAD = { consumed: ['ok', () => t('consumed')], 'not-yet': ['warn', () => t('not yet')], filtered: ['', () => t('filtered')], unknown: ['info', () => t('unknown')] };

/** Open a message at the side: by place or by id. */
export async function openMessage(page, ref) {
  const { at, path } = page;
  const query = ref.id ? { id: ref.id, topic: ref.topic } : { topic: ref.topic, broker: ref.broker, queue: ref.queue_id, offset: ref.queue_offset };
  page.setQuery({ m: ref.id ? undefined : `${ref.broker}:${ref.queue_id}@${ref.queue_offset}` });
  const found = await api(`${at}/message`, { query });
  const { message } = found;
  const place = (offset) => openMessage(page, { topic: message.topic, broker: message.broker, queue_id: message.queue_id, queue_offset: offset });
  const actions = [
    h('button.small', { type: 'button', disabled: found.min_offset !== null && message.queue_offset <= found.min_offset, onclick: () => place(message.queue_offset - 1) }, t('Previous')),
    h('button.small', { type: 'button', disabled: found.max_offset !== null && message.queue_offset + 1 >= found.max_offset, onclick: () => place(message.queue_offset + 1) }, t('Next')),
  ];
  drawer(message.message_id, messageContent(page, found), () => page.setQuery({ m: undefined }), actions);
  return path;
}

export function messageContent(page, found) {
  const { message } = found;
  const { path } = page;
  return [
    h('div.bar', can('operator') && h('button', { type: 'button', onclick: () => sendAgain(page, message) }, icon('send'), t('Send again')),
      h('a.button', { href: path('trace', { id: message.message_id, topic: message.topic }) }, icon('trace'), t('Trace')),
      message.keys.length > 0 && h('a.button', { href: path(`topics/${seg(message.topic)}`, { key: message.keys[0] }) }, t('Same key')),
      copyButton(location.href, t('Copy link'))),
    h('section', h('h2', t('Body')), bodyView(message)),
    h('section', h('h2', t('Place and time')), facts([
      [t('Topic'), h('a', { href: path(`topics/${seg(message.topic)}`) }, message.topic)],
      [t('Queue'), `${message.broker}:${message.queue_id} @ ${message.queue_offset}`],
      [t('Born'), h('span', { title: zoneName() }, `${time(message.born_ms)} · ${message.born_host}`)],
      [t('Stored'), `${time(message.store_ms)} · ${message.store_host} (${ago(message.store_ms)})`],
      [t('Tag'), message.tag], [t('Keys'), message.keys.join(' ') || null],
      [t('Message id'), h('span.mono', message.message_id)], [t('Offset id'), h('span.mono', message.offset_message_id)],
      [t('Retries'), message.reconsume_times], [t('Size'), t('{body} body, {stored} stored', { body: bytes(message.body_bytes), stored: bytes(message.stored_bytes) })],
    ])),
    found.consumed.length > 0 && h('section', h('h2', t('Who had it')), h('div.table-wrap', h('table', h('tbody', found.consumed.map((one) => h('tr', h('td', h('a', { href: path(`groups/${seg(one.group)}`) }, one.group)), h('td', badge(HAD[one.state][0], HAD[one.state][1]())), h('td.muted', reasonText(one.reason)))))))),
    h('section', h('h2', t('Properties')), h('div.table-wrap', h('table', h('tbody', Object.entries(message.properties).map(([name, value]) => h('tr', h('td', h('div.mono', name), EXPLAINED[name] && h('div.muted', EXPLAINED[name]())), h('td.mono', value))))))),
    h('section', h('h2', t('On the command line')), copyable(`rocketq message get ${message.offset_message_id}`)),
  ];
}

/** Ask for what to send, then preview and send it. */
export async function sendAgain(page, message, title = t('Send again')) {
  const hidden = new Set(['UNIQ_KEY', 'WAIT', 'KEYS', 'TAGS', 'MSG_REGION', 'TRACE_ON', 'CLUSTER', 'DELAY', 'RETRY_TOPIC', 'REAL_TOPIC', 'REAL_QID', 'PGROUP', 'TIMER_OUT_MS', 'MIN_OFFSET', 'MAX_OFFSET']);
  const given = await ask(title, (content) => {
    const topic = h('input', { value: message.topic, required: true });
    const tag = h('input', { value: message.tag || '' });
    const keys = h('input', { value: message.keys.join(' ') });
    const body = h('textarea', { rows: 12, value: message.body ?? '', disabled: message.body === null });
    const properties = h('textarea', { rows: 3, value: Object.entries(message.properties).filter(([name]) => !hidden.has(name)).map(([name, value]) => `${name}=${value}`).join('\n'), placeholder: 'name=value' });
    fill(content, h('div.form', field(t('Topic'), topic), field(t('Tag'), tag), field(t('Keys'), keys)), field(t('Body'), body), field(t('Properties'), properties));
    return () => ({ topic: topic.value.trim(), body: { body: body.value, body_base64: message.body === null ? message.body_base64 : null, tag: tag.value.trim() || null, keys: keys.value.split(/\s+/).filter(Boolean), properties: parseProperties(properties.value) } });
  });
  if (!given) return;
  await change({ title, path: `${page.at}/topics/${seg(given.topic)}/send`, body: given.body, verb: t('Send') });
}

export function parseProperties(text) {
  return Object.fromEntries(text.split('\n').map((line) => line.trim()).filter((line) => line.includes('=')).map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]));
}

/** Links that choose one of several views of a page. */
export function tabs(page, list, now) {
  return h('div.tabs', { role: 'tablist' }, list.map(([name, label]) => {
    const query = new URLSearchParams();
    if (name !== list[0][0]) query.set('tab', name);
    const text = query.toString();
    return h('a', { role: 'tab', 'aria-selected': String(name === now), href: location.pathname + (text ? `?${text}` : '') }, label);
  }));
}

/** Text of the partial bar: which brokers are missing. */
export function partialNotice(partial, notice) {
  return partial.map((one) => notice('warn', t('{broker} did not answer at {addr}: {reason}. Its figures are missing here.', one)));
}

/** An input of local time; read with timeOf. */
export function timeInput(ms) {
  const local = ms ? new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, 19) : '';
  return h('input', { type: 'datetime-local', step: 1, value: local });
}

export const timeOf = (input) => (input.value ? new Date(input.value).getTime() : null);
export { toast };
