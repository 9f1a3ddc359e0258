// Dialogs, the drawer, and changes: preview, confirm, result.
import { h, icon, fill, badge, notice, copyable, field, toast } from './dom.js';
import { t, count, time, duration } from './i18n.js';
import { api, Problem } from './api.js';

/** Open a modal dialog; resolves with the value given to close(). */
export function dialog(title, build) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const element = h('dialog', { 'aria-label': title, onclose: () => { element.remove(); before?.focus?.(); resolve(element.result); } });
    const close = (value) => { element.result = value; element.close(); };
    const content = h('div.content');
    const footer = h('footer');
    element.append(h('form', { method: 'dialog', onsubmit: (event) => event.preventDefault() },
      h('header', h('h2', title), h('button.icon', { type: 'button', 'aria-label': t('Close'), onclick: () => close() }, icon('close'))), content, footer));
    build({ content, footer, close });
    document.body.append(element);
    element.showModal();
  });
}

/** What an error says, in the reader's language where its code is known. */
export function problemText(error) {
  if (!(error instanceof Problem)) return String(error.message || error);
  const known = {
    offline: () => t('The console does not answer'),
    role: () => t('This needs the role {needs}', error.fields),
    'state-changed': () => t('The state has changed since the preview'),
    'sign-in-failed': () => t('The name or the password is wrong'),
    'sign-in-paused': () => t('Too many failures: try again in {wait_s} s', error.fields),
    'no-sample': () => t('No sample of the cluster yet: {detail}', error.fields),
    'forbidden-by-broker': () => t('The broker refused it: {detail}', error.fields),
    'topic-forbidden': () => t('You may not use topic {topic}', error.fields),
  }[error.code];
  return known ? known() : error.message;
}

const WARNINGS = {
  'queues-unreachable': (f) => t('Queues {from} to {to} on {broker} can no longer be read', f),
  'one-broker': (f) => t('Only {broker} gets it: without that broker it cannot be used', f),
  'messages-lost': (f) => t('{count} messages are lost; the last was sent {time}', { count: count(f.count), time: f.last_ms ? time(f.last_ms) : t('never') }),
  'read-by': (f) => t('These groups read it: {groups}', { groups: f.groups.join(', ') }),
  'members-online': (f) => t('{count} members are connected', f),
  replayed: (f) => t('{count} messages are delivered again', { count: count(f.count) }),
  skipped: (f) => t('{count} messages are skipped and will not be delivered', { count: count(f.count) }),
  'members-told': (f) => t('{count} connected members are told to move', f),
  'group-offline': () => t('No member is connected: the group starts there when it comes back'),
  'replayed-before': (f) => t('{count} of them were replayed before', f),
  edited: (f) => t('{count} are changed before they are sent', f),
  delivered: (f) => t('Consumers of {topic} get the message', f),
  discarded: () => t('Nobody gets the message'),
};

const STATUS = {
  done: ['ok', () => t('done')], unchanged: ['', () => t('unchanged')], failed: ['bad', () => t('failed')],
  unknown: ['warn', () => t('unknown')], 'not-attempted': ['', () => t('not attempted')],
  sent: ['ok', () => t('sent')], 'would-send': ['info', () => t('would be sent')], refused: ['bad', () => t('refused')],
  'origin-unknown': ['warn', () => t('origin unknown')], gone: ['warn', () => t('gone')],
};

/** A badge for the status of an item. */
export function statusBadge(status) {
  const [kind, label] = STATUS[status] || ['', () => status];
  return badge(kind, label());
}

const shape = (value) => {
  if (value === null || value === undefined) return h('span.muted', '–');
  if (typeof value === 'number') return count(value);
  if (typeof value === 'object') return Object.entries(value).map(([name, each]) => h('div', `${name}: ${each}`));
  return String(value);
};

function itemTable(items) {
  const shown = items.slice(0, 200);
  return h('div.table-wrap', h('table', h('thead', h('tr', [t('Item'), t('Before'), t('After')].map((label) => h('th', { scope: 'col' }, label)))),
    h('tbody', shown.map((one) => h('tr', h('td', one.name), h('td', shape(one.before)), h('td', shape(one.after), one.note && h('div.muted', one.note)))))),
    items.length > shown.length && h('p.muted', t('and {n} more', { n: count(items.length - shown.length) })));
}

/**
 * Preview a change, have it confirmed, carry it out and show what came of each item.
 * @param {{title: string, path: string, method?: string, body?: any, query?: any, danger?: boolean, verb?: string}} change
 * @returns {Promise<any>} the result, or undefined when it was not done
 */
export function change(change) {
  return dialog(change.title, ({ content, footer, close }) => {
    const cancel = h('button', { type: 'button', onclick: () => close() }, t('Cancel'));
    preview();

    async function preview(note) {
      fill(content, h('div.bar', h('span.spin'), t('Looking at the present state …')));
      fill(footer, cancel);
      let plan;
      try {
        plan = await api(change.path, { method: change.method || 'POST', body: change.body, query: { ...change.query, dryRun: true } });
      } catch (error) {
        fill(content, notice('bad', problemText(error)));
        fill(footer, cancel, h('button', { type: 'button', onclick: () => preview() }, t('Try again')));
        return;
      }
      const typed = h('input', { autocomplete: 'off', spellcheck: 'false', oninput: check });
      const go = h(`button.primary${change.danger || plan.confirm ? '.danger' : ''}`, { type: 'button', onclick: () => carryOut(plan, typed.value) }, change.verb || t('Do it'));
      function check() { go.disabled = Boolean(plan.confirm) && typed.value !== plan.confirm; }
      check();
      fill(content, note && notice('warn', note), plan.items.length > 0 && itemTable(plan.items),
        plan.warnings.map((one) => notice('warn', (WARNINGS[one.code] || (() => one.code))(one.fields))),
        h('div', h('h3', t('The same on the command line')), copyable(plan.command)),
        plan.confirm && field(t('Type {name} to confirm', { name: plan.confirm }), typed));
      fill(footer, cancel, go);
      (plan.confirm ? typed : go).focus();
    }

    async function carryOut(plan, typed) {
      fill(footer, h('button', { type: 'button', disabled: true }, h('span.spin'), t('Working …')));
      try {
        const result = await api(change.path, { method: change.method || 'POST', body: change.body, query: { ...change.query, token: plan.token, confirm: plan.confirm ? typed : undefined }, key: crypto.randomUUID() });
        show(result);
      } catch (error) {
        if (error.code === 'state-changed') preview(problemText(error));
        else {
          fill(content, notice('bad', problemText(error)));
          fill(footer, h('button', { type: 'button', onclick: () => close() }, t('Close')));
        }
      }
    }

    function show(result) {
      const bad = result.items.filter((one) => one.status === 'failed' || one.status === 'unknown').length;
      fill(content, bad ? notice('bad', t('{bad} of {total} did not succeed', { bad, total: result.items.length })) : notice('ok', t('Done')),
        resultTable(result.items));
      fill(footer, h('button.primary', { type: 'button', onclick: () => close(result) }, t('Close')));
      footer.querySelector('button').focus();
    }
  });
}

/** Name, status and reason of each item. */
export function resultTable(items) {
  const shown = items.slice(0, 500);
  return h('div.table-wrap', h('table', h('thead', h('tr', [t('Item'), t('Result'), t('Details')].map((label) => h('th', { scope: 'col' }, label)))),
    h('tbody', shown.map((one) => h('tr', h('td', one.name), h('td', statusBadge(one.status)), h('td', one.reason || (one.value && typeof one.value === 'object' ? detail(one.value) : one.value !== null && one.value !== undefined ? String(one.value) : '')))))));
}

const detail = (value) => Object.entries(value).filter(([, each]) => each !== null).map(([name, each]) => `${name} ${each}`).join(' · ');

let open = null;

/** Show details at the side; Esc closes, focus returns to where it was. */
export function drawer(title, content, onclose, actions) {
  closeDrawer(true);
  const before = document.activeElement;
  const element = h('aside.drawer.fade', { role: 'dialog', 'aria-label': title, tabindex: -1 },
    h('header', h('h2', title), actions, h('button.icon', { type: 'button', 'aria-label': t('Close'), onclick: () => closeDrawer() }, icon('close'))),
    h('div.content', content));
  document.body.append(element);
  element.focus();
  open = { element, before, onclose };
  return element;
}

export function closeDrawer(silent) {
  if (!open) return false;
  const { element, before, onclose } = open;
  open = null;
  element.remove();
  if (!silent) {
    onclose?.();
    if (before?.isConnected) before.focus();
  }
  return true;
}

/** Ask for values with a form; resolves with the values or undefined. */
export function ask(title, build, verb) {
  return dialog(title, ({ content, footer, close }) => {
    const read = build(content);
    const go = h('button.primary', { type: 'submit' }, verb || t('Continue'));
    fill(footer, h('button', { type: 'button', onclick: () => close() }, t('Cancel')), go);
    setTimeout(() => content.closest('form').addEventListener('submit', () => {
      const value = read();
      if (value !== undefined) close(value);
    }));
  });
}

export { toast, duration };
