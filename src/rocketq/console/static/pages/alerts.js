// Alerts: what fires, rules, webhooks.
import { h, fill, icon, badge, card, empty, select, field, download } from '../dom.js';
import { t, time, ago, short } from '../i18n.js';
import { api } from '../api.js';
import { ask, problemText, toast } from '../change.js';

const severityBadge = (severity) => badge({ critical: 'bad', warning: 'warn', info: 'info' }[severity] || '', { critical: () => t('critical'), warning: () => t('warning'), info: () => t('note') }[severity]?.() || severity);
const stateBadge = (state) => badge({ firing: 'bad', pending: 'warn', resolved: 'ok' }[state], { firing: () => t('firing'), pending: () => t('pending'), resolved: () => t('resolved') }[state]());

export default async function alerts(page) {
  const { main, at, can } = page;
  const boxes = { active: h('div'), rules: h('div'), hooks: h('div'), past: h('div') };
  let found;
  async function send(path, method, body) {
    try { await api(`${at}/alerts${path}`, { method, body }); await load(); return true; } catch (error) { toast('bad', problemText(error)); return false; }
  }
  const cells = (...list) => h('tr', list.map((one) => h('td', one)));
  const head = (...list) => h('thead', h('tr', list.map((one) => h('th', { scope: 'col' }, one))));

  async function rule(known) {
    const value = await ask(known ? t('Change a rule') : t('Make a rule'), (content) => {
      const name = h('input', { required: true, value: known?.name || '' });
      const metric = select(found.metrics.map((one) => [one, one]), known?.metric || 'group.lag');
      const scope = h('input', { value: known?.scope || '*' });
      const above = select([['true', t('above')], ['false', t('below')]], String(known?.above ?? true));
      const threshold = h('input', { type: 'number', step: 'any', value: known?.threshold ?? 1000 });
      const seconds = h('input', { type: 'number', min: 0, value: known?.for_s ?? 60 });
      const severity = select([['critical', t('critical')], ['warning', t('warning')], ['info', t('note')]], known?.severity || 'warning');
      fill(content, field(t('Name'), name), h('div.form', field(t('Figure'), metric), field(t('Of (pattern)'), scope), field(t('Is'), above), field(t('Threshold'), threshold), field(t('For seconds'), seconds), field(t('Severity'), severity)));
      return () => ({ ...known, name: name.value, metric: metric.value, scope: scope.value || '*', above: above.value === 'true', threshold: Number(threshold.value), for_s: Number(seconds.value), severity: severity.value });
    }, t('Save'));
    if (value) await send('/rules', 'POST', value);
  }

  async function hook(known) {
    const value = await ask(known ? t('Change a webhook') : t('Make a webhook'), (content) => {
      const name = h('input', { required: true, value: known?.name || '' });
      const url = h('input', { type: 'url', required: true, value: known?.url || '', placeholder: 'https://' });
      const kind = select(found.kinds.map((one) => [one, one]), known?.kind || 'rocketq');
      const secret = h('input', { type: 'password', autocomplete: 'new-password', placeholder: known?.has_secret ? t('unchanged') : '' });
      fill(content, field(t('Name'), name), field(t('Address'), url), h('div.form', field(t('Kind'), kind), field(t('Secret'), secret)));
      return () => ({ id: known?.id, name: name.value, url: url.value, kind: kind.value, secret: secret.value || (known ? null : ''), enabled: known?.enabled ?? true, severities: known?.severities || ['warning', 'critical'] });
    }, t('Save'));
    if (value) await send('/webhooks', 'POST', value);
  }

  async function test(one) {
    try { await api(`${at}/alerts/webhooks:test`, { method: 'POST', body: { id: one.id, name: one.name, url: one.url, kind: one.kind } }); toast('ok', t('The receiver accepted it')); } catch (error) { toast('bad', problemText(error)); }
  }

  async function acknowledge(one) {
    const note = await ask(t('Acknowledge'), (content) => { const input = h('input', { autofocus: true }); fill(content, field(t('Note'), input)); return () => input.value; });
    if (note !== undefined) await send(':acknowledge', 'POST', { key: `${one.rule}/${one.subject}`, note });
  }

  async function load() {
    found = await api(`${at}/alerts`);
    if (!page.alive()) return;
    fill(boxes.active, card(t('Now'), null, found.active.length ? h('div.table-wrap', h('table', head(t('State'), t('Severity'), t('Rule'), t('Of'), t('Value'), t('Since'), ''), h('tbody', found.active.map((one) => cells(stateBadge(one.state), severityBadge(one.severity), one.name, h('strong', one.subject), `${short(one.value)} (${short(one.threshold)})`, ago(one.fired_ms || one.since_ms), one.acknowledged_by ? h('span.muted', t('{user}: {note}', { user: one.acknowledged_by, note: one.note })) : can('operator') && h('button.small', { type: 'button', onclick: () => acknowledge(one) }, t('Acknowledge'))))))) : empty(t('Nothing fires'), t('{n} rules are watched.', { n: found.rules.filter((one) => one.enabled).length }))));
    fill(boxes.rules, card(t('Rules'), can('operator') && h('span.bar', h('button.small', { type: 'button', onclick: () => download('alert-rules.json', JSON.stringify(found.rules, null, 2)) }, t('Export')), h('button.small', { type: 'button', onclick: () => rule() }, icon('plus'), t('Make a rule'))), h('div.table-wrap', h('table', head(t('Name'), t('Condition'), t('Severity'), t('On'), ''), h('tbody', found.rules.map((one) => cells(one.name, h('span.mono', `${one.metric} ${one.above ? '>' : '<'} ${one.threshold} · ${one.scope} · ${one.for_s} s`), severityBadge(one.severity), h('input', { type: 'checkbox', checked: one.enabled, disabled: !can('operator'), 'aria-label': t('On'), onchange: (event) => send('/rules', 'POST', { ...one, enabled: event.target.checked }) }), can('operator') && h('span.bar', h('button.small', { type: 'button', onclick: () => rule(one) }, t('Change')), h('button.small.danger', { type: 'button', onclick: () => send(`/rules/${one.id}`, 'DELETE') }, t('Delete')))))))))); 
    fill(boxes.hooks, card(t('Webhooks'), can('admin') && h('button.small', { type: 'button', onclick: () => hook() }, icon('plus'), t('Make a webhook')), found.webhooks.length ? h('div.table-wrap', h('table', head(t('Name'), t('Address'), t('Kind'), t('Signed'), ''), h('tbody', found.webhooks.map((one) => cells(one.name, h('span.mono', one.url), one.kind, one.has_secret ? badge('ok', t('yes')) : badge('warn', t('no')), can('admin') && h('span.bar', h('button.small', { type: 'button', onclick: () => test(one) }, t('Send a test')), h('button.small', { type: 'button', onclick: () => hook(one) }, t('Change')), h('button.small.danger', { type: 'button', onclick: () => send(`/webhooks/${one.id}`, 'DELETE') }, t('Delete')))))))) : empty(t('No webhook'), t('Alerts are shown here only. A webhook sends them to a chat or an on-call service.')),
      found.deliveries.length > 0 && h('div.table-wrap', h('table', head(t('Delivery'), t('State'), t('Attempts'), t('Why'), t('Time')), h('tbody', found.deliveries.slice(0, 20).map((one) => cells(one.summary, badge({ delivered: 'ok', waiting: 'warn', dead: 'bad' }[one.state], one.state), one.attempts, one.reason || '', ago(one.created_s * 1000))))))));
    fill(boxes.past, found.resolved.length > 0 && card(t('Resolved'), null, h('div.table-wrap', h('table', head(t('Rule'), t('Of'), t('Fired'), t('Resolved')), h('tbody', found.resolved.map((one) => cells(one.name, one.subject, time(one.fired_ms), time(one.resolved_ms))))))));
  }
  fill(main, h('div.page-head', h('div.titles', h('h1', t('Alerts')), h('p.sub', t('Rules are checked after every sample; no Prometheus is needed.')))), boxes.active, boxes.rules, boxes.hooks, boxes.past);
  await load();
  page.onsample(() => { if (!document.querySelector('dialog[open]')) load().catch(() => {}); });
}
