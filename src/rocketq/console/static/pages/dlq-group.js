// The workbench of one group: find, edit, replay, and the result of each message.
import { h, fill, icon, badge, card, notice, empty, select, field, debounce, download, copyable } from '../dom.js';
import { t, count, time, ago } from '../i18n.js';
import { api, seg } from '../api.js';
import { makeTable } from '../table.js';
import { ask, change, drawer, problemText, statusBadge, toast } from '../change.js';
import { bodyView, messageContent, parseProperties } from './parts.js';
import { runBadge } from './dlq.js';

const nameOf = (ref) => `${ref.broker}:${ref.queue_id}@${ref.offset}`;

export default async function workbench(page) {
  const { main, at, item, can, path, setQuery } = page;
  const given = page.query;
  const state = { text: given.get('q') || '', cause: given.get('cause') || '', origin: given.get('origin') || '' };
  const edits = new Map();
  const actions = h('div.bar');
  const facets = h('div.stack');
  const line = h('div.progress-line');
  const runBox = h('div');
  let found = { items: [], progress: {}, causes: {}, origins: {} };
  const search = h('input.search', { type: 'search', value: state.text, placeholder: t('Text in the body'), 'aria-label': t('Text in the body'), 'data-filter': true, oninput: debounce(() => move({ text: search.value }), 350) });
  const table = makeTable({
    caption: t('Dead letters of {name}', { name: item }), rowKey: (row) => nameOf(row.ref), onopen: open, onselect: drawActions,
    columns: [
      { key: 'died', label: t('Died'), cls: 'nowrap', cell: (row) => h('span', { title: time(row.message.store_ms) }, ago(row.message.store_ms)) },
      { key: 'origin', label: t('Came from'), cls: 'cut', cell: (row) => row.origin_topic || h('span.muted', t('unknown')) },
      { key: 'keys', label: t('Keys'), cls: 'cut', cell: (row) => row.message.keys.join(' ') },
      { key: 'tag', label: t('Tag'), cell: (row) => (row.message.tag ? badge('', row.message.tag) : '') },
      { key: 'retries', label: t('Retries'), align: 'right', cell: (row) => row.reconsume_times },
      { key: 'cause', label: t('Cause'), cls: 'cut', cell: (row) => row.cause },
      { key: 'body', label: t('Body'), cls: 'body.cut', cell: (row) => row.message.text },
      { key: 'state', label: '', cell: (row) => [edits.has(nameOf(row.ref)) ? badge('accent', t('edited')) : null, row.replayed.length ? badge('ok', t('replayed')) : null] },
    ],
    empty: () => empty(t('No dead letters'), t('The group has none, or none matches.')),
  });

  function move(changes) {
    Object.assign(state, changes);
    setQuery({ q: state.text, cause: state.cause, origin: state.origin });
    return load().catch((error) => toast('bad', problemText(error)));
  }

  async function load(cursor) {
    fill(line, h('span.spin'), t('looking'));
    const now = await api(`${at}/dlq/${seg(item)}/letters`, { query: { ...state, n: 500, cursor } });
    if (!page.alive()) return;
    found = cursor ? { ...now, items: [...found.items, ...now.items] } : now;
    table.update(found.items);
    drawFacets();
    drawActions();
    fill(line, h('span', t('checked {looked} of {total}, {found} found', { looked: count(now.progress.looked_at), total: count(now.progress.total), found: count(found.items.length) })), now.progress.done && badge('ok', t('complete')), h('span.grow'),
      now.progress.cursor && h('button.small', { type: 'button', onclick: () => load(now.progress.cursor) }, t('Go on')));
  }

  function drawFacets() {
    const chips = (label, counts, name) => Object.keys(counts).length > 0 && h('div.bar', h('span.muted', label), h('div.chips', Object.entries(counts).sort((a, b) => b[1] - a[1]).slice(0, 12).map(([value, number]) => h('button', { type: 'button', 'aria-pressed': String(state[name] === value), onclick: () => move({ [name]: state[name] === value ? '' : value }) }, `${value === '?' ? t('unknown') : value} · ${count(number)}`))));
    fill(facets, chips(t('Causes'), found.causes, 'cause'), chips(t('From'), found.origins, 'origin'));
  }

  function chosen() {
    const keys = table.selected.size ? table.selected : null;
    return found.items.filter((row) => !keys || keys.has(nameOf(row.ref)));
  }

  function drawActions() {
    const number = table.selected.size || found.items.length;
    fill(actions, h('span.muted', table.selected.size ? t('{n} selected', { n: count(number) }) : t('none selected: actions take all {n} listed', { n: count(number) })),
      can('operator') && h('button.primary', { type: 'button', disabled: !found.items.length, onclick: replay }, icon('retry'), t('Replay')),
      h('button', { type: 'button', disabled: !found.items.length, onclick: exportLetters }, icon('down'), t('Export')));
  }

  async function replay() {
    const rows = chosen();
    const options = await ask(t('Replay {n} dead letters', { n: count(rows.length) }), (content) => {
      const to = select([['origin', t('to the topic each came from')], ['retry', t('to {name} alone, through its retry topic', { name: item })], ['other', t('to another topic')]], 'origin', () => { other.disabled = to.value !== 'other'; });
      const other = h('input', { disabled: true, placeholder: t('topic') });
      const per = h('input', { type: 'number', min: 0, step: 'any', placeholder: t('no limit') });
      fill(content, h('div.form', field(t('Where'), to), field(t('Topic'), other), field(t('Per second'), per)), h('p.muted', t('The dead letters stay where they are. Each message gets a result, and nothing is sent twice.')));
      return () => ({ to: to.value === 'other' ? other.value.trim() : to.value, per_second: per.value ? Number(per.value) : null });
    }, t('Dry run'));
    if (!options) return;
    const list = rows.slice().reverse();
    const body = { letters: list.map((row) => row.ref), ...options, edits: list.filter((row) => edits.has(nameOf(row.ref))).map((row) => ({ letter: row.ref, ...edits.get(nameOf(row.ref)) })) };
    const result = await change({ title: t('Replay {n} dead letters', { n: count(rows.length) }), path: `${at}/dlq/${seg(item)}:replay`, body, verb: t('Replay') });
    const run = result?.items[0]?.value?.run;
    if (run) { setQuery({ run }); watch(run); }
  }

  let watched = null;
  async function watch(id) {
    watched = id;
    for (;;) {
      const run = await api(`${at}/runs/${id}`);
      if (!page.alive() || watched !== id) return;
      drawRun(run);
      if (run.state !== 'running') break;
      await new Promise((resolve) => setTimeout(resolve, 700));
    }
    await load();
  }

  function drawRun(run) {
    const counts = Object.entries(run.counts).filter(([name, number]) => name !== 'total' && number);
    const rows = Object.entries(run.results);
    const left = run.counts['not-attempted'] || 0;
    fill(runBox, card(t('Replay {id}', { id: run.id }), [runBadge(run.state), can('operator') && run.state === 'running' && h('button.small', { type: 'button', onclick: () => post('stop') }, t('Stop')),
      can('operator') && run.state !== 'running' && left > 0 && h('button.small', { type: 'button', onclick: () => post('continue') }, t('Continue with {n} that were not sent', { n: count(left) })),
      h('button.small', { type: 'button', onclick: () => download(`replay-${run.id}.jsonl`, [...rows.map(([letter, one]) => ({ letter, ...one })), { record: 'completeness', ...run.counts, state: run.state }].map((one) => JSON.stringify(one)).join('\n'), 'application/x-ndjson') }, t('Export')),
      h('button.icon', { type: 'button', 'aria-label': t('Close'), onclick: () => { watched = null; setQuery({ run: '' }); fill(runBox); } }, icon('close'))],
    h('div.body.stack', h('div.chips', counts.map(([name, number]) => h('span', statusBadge(name), ` ${count(number)}`)), h('span.muted', t('of {n}', { n: count(run.counts.total) }))), run.reason && notice('warn', run.reason),
      rows.length > 0 && h('details', h('summary', t('Result of each message')), h('div.table-wrap', { style: { maxHeight: '320px', overflowY: 'auto' } }, h('table', h('tbody', rows.slice(-500).map(([letter, one]) => h('tr', h('td.mono', letter), h('td', statusBadge(one.status)), h('td', one.target || ''), h('td.mono', one.message_id || ''), h('td.muted', one.reason || ''))))))))));
    async function post(what) {
      try { await api(`${at}/runs/${run.id}:${what}`, { method: 'POST' }); watch(run.id); } catch (error) { toast('bad', problemText(error)); }
    }
  }

  function exportLetters() {
    const rows = chosen();
    const record = { record: 'completeness', group: item, conditions: state, looked_at: found.progress.looked_at, total: found.progress.total, exported: rows.length, complete: Boolean(found.progress.done), failed_queues: found.progress.failed };
    download(`dead-letters-${item}.jsonl`, [...rows, record].map((one) => JSON.stringify(one)).join('\n'), 'application/x-ndjson');
  }

  async function open(row) {
    try {
      const { broker, queue_id: queue, offset } = row.ref;
      const one = await api(`${at}/dlq/${seg(item)}/letter`, { query: { broker, queue, offset } });
      drawer(t('Dead letter {name}', { name: nameOf(row.ref) }), [
        h('div.bar', can('operator') && h('button', { type: 'button', onclick: () => edit(row, one) }, t('Edit before the replay')), edits.has(nameOf(row.ref)) && h('button', { type: 'button', onclick: () => { edits.delete(nameOf(row.ref)); table.update([]); table.update(found.items); open(row); } }, t('Drop the edit')), one.replayed && badge('ok', t('replayed as {id}', { id: one.replayed }))),
        edits.has(nameOf(row.ref)) && h('section', h('h2', t('Edited')), diff(one.letter.body, edits.get(nameOf(row.ref)).body)),
        one.original && one.original.body !== one.letter.body && h('section', h('h2', t('Before it died')), bodyView(one.original)),
        ...messageContent(page, { message: one.letter, consumed: [] }),
        h('section', copyable(`rocketq dlq show ${item} ${nameOf(row.ref)}`)),
      ]);
    } catch (error) {
      toast('bad', problemText(error));
    }
  }

  async function edit(row, one) {
    const known = edits.get(nameOf(row.ref));
    const system = /^(UNIQ_KEY|WAIT|KEYS|TAGS|DLQ_|RETRY_TOPIC|ORIGIN_|REAL_|MSG_REGION|TRACE_ON|CLUSTER|DELAY|RECONSUME|MAX_RECONSUME|PGROUP)/;
    const value = await ask(t('Edit before the replay'), (content) => {
      const body = h('textarea', { rows: 14, value: known?.body ?? one.letter.body ?? '', disabled: one.letter.body === null });
      const tag = h('input', { value: known?.tag ?? one.letter.tag ?? '' });
      const keys = h('input', { value: (known?.keys ?? one.letter.keys).join(' ') });
      const properties = h('textarea', { rows: 4, value: Object.entries(known?.properties ?? one.letter.properties).filter(([name]) => !system.test(name)).map(([name, each]) => `${name}=${each}`).join('\n') });
      fill(content, h('div.form', field(t('Tag'), tag), field(t('Keys'), keys)), field(t('Body'), body), field(t('Properties'), properties), h('p.muted', t('The dead letter stays as it is; the copy says which one it comes from.')));
      return () => ({ body: one.letter.body === null ? null : body.value, tag: tag.value, keys: keys.value.split(/\s+/).filter(Boolean), properties: parseProperties(properties.value) });
    }, t('Keep the edit'));
    if (!value) return;
    edits.set(nameOf(row.ref), value);
    table.update([]);
    table.update(found.items);
    open(row);
  }

  const diff = (before, after) => h('div.diff', h('div', h('h3', t('Before')), h('pre.code', before ?? '')), h('div', h('h3', t('After')), h('pre.code', after ?? '')));

  fill(main, h('div.page-head', h('div.titles', h('div.crumbs', h('a', { href: path('dlq') }, t('Dead letters')), '/'), h('h1', item), h('p.sub', h('a', { href: path(`groups/${seg(item)}`) }, t('To the group'))))),
    runBox, h('section.card', h('header', h('div.bar', search), h('span.grow'), actions), h('div.body.stack', facets), line, table.el));
  page.keys(table);
  await load();
  if (given.get('run')) watch(given.get('run')).catch((error) => toast('bad', problemText(error)));
}
