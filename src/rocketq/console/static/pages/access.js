// Users and policies (ACL 2.0), accounts (ACL 1.0), and why somebody may not do something.
import { h, fill, icon, badge, card, notice, empty, select, field } from '../dom.js';
import { t, ago } from '../i18n.js';
import { api, seg } from '../api.js';
import { ask, change, problemText } from '../change.js';

const ACTIONS = ['Pub', 'Sub', 'Create', 'Update', 'Delete', 'Get', 'List'];

export default async function access(page) {
  const { main, at, can } = page;
  const boxes = h('div.stack');
  const head = (...list) => h('thead', h('tr', list.map((one) => h('th', { scope: 'col' }, one))));
  const cells = (...list) => h('tr', list.map((one) => h('td', one)));

  async function user(known) {
    const title = known ? t('Change {name}', { name: known.name }) : t('Make a user');
    const body = await ask(title, (content) => {
      const name = h('input', { required: true, value: known?.name || '', disabled: Boolean(known) });
      const password = h('input', { type: 'password', autocomplete: 'new-password', required: !known, placeholder: known ? t('unchanged') : '' });
      const superUser = h('input', { type: 'checkbox', checked: known?.kind === 'Super' });
      const enabled = h('input', { type: 'checkbox', checked: known?.enabled ?? true });
      fill(content, field(t('Name'), name), field(t('Password'), password), h('label.check', superUser, t('super user: may do everything')), known && h('label.check', enabled, t('enabled')));
      return () => ({ name: known?.name || name.value.trim(), password: password.value || null, super_user: superUser.checked, enabled: known ? enabled.checked : null });
    });
    if (body && (await change({ title, path: `${at}/access/users`, body }))) await load();
  }

  async function policy() {
    const title = t('Make a policy');
    const body = await ask(title, (content) => {
      const name = h('input', { required: true });
      const kind = select([['Topic', t('Topic')], ['Group', t('Group')], ['Cluster', t('Cluster')]], 'Topic');
      const resource = h('input', { required: true, value: '*' });
      const decision = select([['Allow', t('allow')], ['Deny', t('deny')]], 'Allow');
      const source = h('input', { placeholder: '10.0.0.0/8' });
      const boxesOf = ACTIONS.map((one) => [one, h('input', { type: 'checkbox', checked: one === 'Pub' || one === 'Sub' })]);
      fill(content, h('div.form', field(t('User'), name), field(t('Kind'), kind), field(t('Resource (name, prefix* or *)'), resource), field(t('Decision'), decision), field(t('From addresses'), source)), h('div.bar', boxesOf.map(([one, box]) => h('label.check', box, one))));
      return () => ({ user: name.value.trim(), resource: `${kind.value}:${resource.value.trim()}`, actions: boxesOf.filter(([, box]) => box.checked).map(([one]) => one), source_ips: source.value.split(/[\s,]+/).filter(Boolean), decision: decision.value });
    });
    if (body && (await change({ title, path: `${at}/access/policies`, body }))) await load();
  }

  function explainBox() {
    const name = h('input', { required: true });
    const action = select(ACTIONS.map((one) => [one, one]), 'Pub');
    const topic = h('input');
    const group = h('input');
    const source = h('input', { value: '127.0.0.1' });
    const said = h('div');
    return card(t('Why can somebody not do something?'), null, h('form.body.stack', { onsubmit: async (event) => {
      event.preventDefault();
      try {
        const found = await api(`${at}/access/explain`, { query: { user: name.value, action: action.value, topic: topic.value, group: group.value, from: source.value } });
        fill(said, notice(found.allowed ? 'ok' : 'bad', found.allowed ? t('Allowed by: {rule}', found) : t('Denied by: {rule}', found), found.reason && h('div', found.reason), found.beats.map((one) => h('div', t('stronger than: {rule}', { rule: one })))));
      } catch (error) {
        fill(said, notice('bad', problemText(error)));
      }
    } }, h('div.form', field(t('User'), name), field(t('Action'), action), field(t('Topic'), topic), field(t('Group'), group), field(t('From address'), source), h('button.primary', { type: 'submit' }, t('Explain'))), said));
  }

  async function load() {
    const found = await api(`${at}/access`);
    if (!page.alive()) return;
    if (found.model === 'none') {
      fill(boxes, h('section.card', empty(t('Access control is off'), t('Everybody who reaches the brokers may do everything. These settings of broker.conf switch it on:'), 'authenticationEnabled=true\nauthorizationEnabled=true')));
      return;
    }
    if (found.model === 'accounts') {
      fill(boxes, notice('', t('This cluster uses ACL 1.0: accounts are changed in plain_acl.yml or with mqadmin.')), h('section.card', h('div.table-wrap', h('table', head(t('Access key'), t('Kind'), t('Topics'), t('Groups'), t('White address')), h('tbody', found.accounts.map((one) => cells(h('span.mono', one.access_key), one.admin ? badge('accent', t('admin')) : '', [one.default_topic && `*=${one.default_topic}`, ...one.topics].filter(Boolean).join(', '), [one.default_group && `*=${one.default_group}`, ...one.groups].filter(Boolean).join(', '), one.white_addr || '')))))));
      return;
    }
    fill(boxes, Object.values(found.partial || {}).map((reason) => notice('warn', reason)),
      card(t('Users'), can('admin') && h('button.small', { type: 'button', onclick: () => user() }, icon('plus'), t('Make a user')), h('div.table-wrap', h('table', head(t('Name'), t('Kind'), t('State'), t('Last used'), t('Brokers'), ''), h('tbody', found.users.map((one) => cells(h('strong', one.name), one.kind === 'Super' ? badge('accent', t('super user')) : t('normal'), one.enabled ? badge('ok', t('enabled')) : badge('warn', t('disabled')), ago(one.last_used_ms), one.missing_on.length ? badge('bad', t('differs on {brokers}', { brokers: one.missing_on.join(', ') })) : badge('ok', t('the same everywhere')), can('admin') && h('span.bar', h('button.small', { type: 'button', onclick: () => user(one) }, t('Change')), h('button.small.danger', { type: 'button', onclick: async () => { if (await change({ title: t('Delete {name}', { name: one.name }), path: `${at}/access/users/${seg(one.name)}`, method: 'DELETE', danger: true, verb: t('Delete') })) await load(); } }, t('Delete'))))))))),
      card(t('Policies'), can('admin') && h('button.small', { type: 'button', onclick: policy }, icon('plus'), t('Make a policy')), found.policies.length ? h('div.table-wrap', h('table', head(t('User'), t('Resource'), t('Actions'), t('From addresses'), t('Decision'), ''), h('tbody', found.policies.map((one) => cells(h('strong', one.user), h('span.mono', one.resource), one.actions.join(', '), one.source_ips.join(', ') || t('any'), one.decision.toLowerCase() === 'deny' ? badge('bad', t('deny')) : badge('ok', t('allow')), can('admin') && h('button.small.danger', { type: 'button', onclick: async () => { if (await change({ title: t('Delete a policy'), path: `${at}/access/policies/${seg(one.user)}`, query: { resource: one.resource }, method: 'DELETE', danger: true, verb: t('Delete') })) await load(); } }, t('Delete'))))))) : empty(t('No policies'), t('Without a policy only super users may do something.'))),
      explainBox());
  }
  fill(main, h('div.page-head', h('div.titles', h('h1', t('Access')))), boxes);
  await load();
}
