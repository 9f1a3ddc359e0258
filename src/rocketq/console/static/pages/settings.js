// Language, theme, time zone; the clusters that are served.
import { h, fill, badge, card, select, field, facts } from '../dom.js';
import { t, currentLanguage, setLanguage, isUtc, setUtc } from '../i18n.js';
import { api, me } from '../api.js';
import { redraw, setTheme } from '../main.js';

export default async function settings(page) {
  const { main } = page;
  const found = await api('/clusters');
  if (!page.alive()) return;
  fill(main, h('div.page-head', h('div.titles', h('h1', t('Settings')))),
    card(t('This browser'), null, h('div.body', h('div.form',
      field(t('Language'), select([['en', 'English'], ['zh', '中文']], currentLanguage(), async (value) => { await setLanguage(value); redraw(); })),
      field(t('Theme'), select([['', t('as the system')], ['light', t('light')], ['dark', t('dark')]], localStorage.getItem('rocketq.theme') || '', setTheme)),
      field(t('Times'), select([['', t('local')], ['1', 'UTC']], isUtc() ? '1' : '', (value) => { setUtc(Boolean(value)); redraw(); }))))),
    card(t('Clusters'), null, h('div.table-wrap', h('table', h('thead', h('tr', [t('Name'), t('NameServers'), t('State')].map((one) => h('th', { scope: 'col' }, one)))), h('tbody', found.items.map((one) => h('tr', h('td', one.name), h('td.mono', one.name_servers.join('; ')), h('td', one.error ? [badge('bad', t('not reachable')), ' ', one.error] : badge('ok', t('up'))))))))),
    card(t('This console'), null, h('div.body', facts([[t('Version'), me.version], [t('Signed in as'), me.user], [t('Role'), me.role], [t('Sign-in'), me.login], [t('Read-only'), me.read_only ? t('yes') : t('no')], [t('Sample every'), t('{n} s', { n: me.sample_s })]]))));
}
