// The shell: sign-in, navigation, router, palette, shortcuts, live state.
import { h, icon, mark, fill, notice, field, toast, select, debounce } from './dom.js';
import { t, setLanguage, preferredLanguage, currentLanguage, ago } from './i18n.js';
import { api, loadMe, me, base, queryText, seg, Live, can } from './api.js';
import { closeDrawer, dialog, problemText } from './change.js';

const PAGES = [
  { name: '', file: 'overview', icon: 'overview', label: () => t('Overview'), keys: 'o' },
  { name: 'topics', file: 'topics', detail: 'topic', icon: 'topics', label: () => t('Topics'), keys: 't' },
  { name: 'groups', file: 'groups', detail: 'group', icon: 'groups', label: () => t('Groups'), keys: 'g' },
  { name: 'dlq', file: 'dlq', detail: 'dlq-group', icon: 'dlq', label: () => t('Dead letters'), keys: 'd' },
  { section: () => t('Delivery') },
  { name: 'retry', file: 'pending', icon: 'retry', label: () => t('Retries'), keys: 'r' },
  { name: 'delays', file: 'pending', icon: 'delays', label: () => t('Delays'), keys: 'l' },
  { name: 'transactions', file: 'pending', icon: 'transactions', label: () => t('Transactions'), keys: 'x' },
  { name: 'trace', file: 'trace', icon: 'trace', label: () => t('Trace'), keys: 'm' },
  { section: () => t('Operate') },
  { name: 'brokers', file: 'brokers', detail: 'broker', icon: 'brokers', label: () => t('Brokers'), keys: 'b' },
  { name: 'alerts', file: 'alerts', icon: 'alerts', label: () => t('Alerts'), keys: 'a' },
  { name: 'access', file: 'access', icon: 'access', label: () => t('Access'), keys: 'c' },
  { name: 'spark', file: 'spark', icon: 'spark', label: () => t('Spark'), keys: 's' },
  { section: () => t('Console') },
  { name: 'audit', file: 'audit', icon: 'audit', label: () => t('Audit'), global: true, keys: 'u' },
  { name: 'settings', file: 'settings', icon: 'settings', label: () => t('Settings'), global: true, keys: 'e' },
  { name: 'api', file: 'api', icon: 'api', label: () => t('API'), global: true, keys: 'i' },
];

const app = document.getElementById('app');
let current = { cleanup: [] };
let content;
let side;
let liveMark;
let cluster = null;
let sample = null;
let lostAt = null;

export const state = { get cluster() { return cluster; }, get sample() { return sample; } };

/** Address of a page of the present cluster. */
export const path = (rest = '', query) => `${base}c/${seg(cluster)}${rest ? `/${rest}` : ''}${queryText(query)}`;

/** Go to an address of this console. */
export function go(href, { replace = false } = {}) {
  history[replace ? 'replaceState' : 'pushState'](null, '', href);
  route();
}

/** Change parameters of the address without leaving the page. */
export function setQuery(changes, { silent = true } = {}) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    url.searchParams.delete(name);
    for (const each of [value].flat()) if (each !== undefined && each !== null && each !== '' && each !== false) url.searchParams.append(name, each);
  }
  history.replaceState(null, '', url);
  if (!silent) route();
}

const live = new Live((note) => {
  if (note.cluster !== cluster) return;
  sample = note;
  drawLive('on');
  current.onsample?.(note);
}, (value) => {
  if (value === 'off' && !lostAt) lostAt = Date.now();
  if (value === 'on') lostAt = null;
  drawLive(value);
});

function drawLive(value) {
  if (!liveMark) return;
  const bad = sample?.error;
  liveMark.dataset.state = value === 'on' && !bad ? 'on' : value === 'off' || bad ? 'off' : 'wait';
  const text = bad ? t('cluster not reachable') : value === 'on' ? t('live') : value === 'off' ? t('not live for {time}', { time: ago(lostAt).replace(' ago', '') }) : t('connecting');
  fill(liveMark, h('span', text));
  liveMark.title = bad || '';
}

function parse() {
  const parts = location.pathname.slice(base.length).split('/').filter(Boolean).map(decodeURIComponent);
  const query = new URLSearchParams(location.search);
  if (parts[0] !== 'c') return { page: parts[0] || null, query, rest: parts.slice(1) };
  return { cluster: parts[1], page: parts[2] || '', item: parts.slice(3).join('/') || null, query };
}

let turn = 0;

async function route() {
  const mine = (turn += 1);
  for (const done of current.cleanup || []) done();
  current = { cleanup: [] };
  closeDrawer(true);
  const place = parse();
  const global = PAGES.find((one) => one.global && one.name === place.page && !place.cluster);
  if (!place.cluster && !global) {
    cluster = me.clusters[0];
    if (cluster) go(path(), { replace: true });
    return;
  }
  cluster = place.cluster || cluster || me.clusters[0];
  if (cluster) live.show(cluster);
  const entry = PAGES.find((one) => one.name === place.page && !one.section);
  drawSide(entry);
  side.classList.remove('open');
  const main = h('main.page', { id: 'main', tabindex: -1 });
  fill(content, main);
  if (!entry) {
    fill(main, h('h1', t('There is no such page')), h('p', h('a', { href: path() }, t('Overview'))));
    return;
  }
  document.title = `${place.item ? `${place.item} · ` : ''}${entry.label()} · RocketQ`;
  const slow = setTimeout(() => mine === turn && !main.children.length && fill(main, h('div.bar', h('span.spin'), t('Waiting for the console …'))), 400);
  const context = {
    main, cluster, item: place.item, name: place.page, query: place.query, at: `/clusters/${seg(cluster)}`,
    go, path, setQuery, can,
    alive: () => mine === turn,
    onsample: (work) => { current.onsample = work; },
    cleanup: (work) => current.cleanup.push(work),
    keys: (map) => { current.keys = map; },
  };
  try {
    const file = place.item && entry.detail ? entry.detail : entry.file;
    const module = await import(`./pages/${file}.js`);
    if (mine !== turn) return;
    await module.default(context);
  } catch (error) {
    if (mine !== turn || error.name === 'AbortError') return;
    console.warn(error);
    fill(main, h('h1', place.item || entry.label()), notice('bad', problemText(error)), h('div', h('button', { type: 'button', onclick: route }, t('Try again'))));
  } finally {
    clearTimeout(slow);
  }
}

function drawSide(entry) {
  fill(side.querySelector('nav'), PAGES.map((one) => one.section
    ? h('div.group-label', one.section())
    : h('a.item', { href: one.global ? `${base}${one.name}` : path(one.name), 'aria-current': one === entry ? 'page' : undefined }, icon(one.icon), one.label())));
}

function shell() {
  side = h('aside.side', h('a.brand', { href: base }, mark(), 'RocketQ'), h('nav', { 'aria-label': t('Pages') }),
    h('div.foot', `${t('version')} ${me.version}`, me.read_only && h('div', t('read-only'))));
  liveMark = h('span.live', { role: 'status' });
  const who = me.login !== 'none' && h('button.plain', { type: 'button', onclick: signOut, title: t('Sign out') }, me.user);
  content = h('div');
  const clusters = me.clusters.length > 1
    ? select(me.clusters.map((one) => [one, one]), parse().cluster || me.clusters[0], (value) => go(`${base}c/${seg(value)}`), { 'aria-label': t('Cluster') })
    : h('strong', me.clusters[0] || '');
  const other = currentLanguage() === 'zh' ? 'en' : 'zh';
  fill(app, h('div.shell', side, h('div.main',
    h('header.top', h('button.icon.menu-button', { type: 'button', 'aria-label': t('Menu'), onclick: () => side.classList.toggle('open') }, icon('menu')),
      clusters, liveMark, h('span.grow'),
      h('button.find', { type: 'button', onclick: palette, 'aria-label': t('Find anything') }, icon('search'), h('span', t('Find anything')), h('kbd', 'Ctrl K')),
      h('button.icon', { type: 'button', 'aria-label': t('Light or dark'), title: t('Light or dark'), onclick: switchTheme }, icon('theme')),
      h('button.plain', { type: 'button', lang: other === 'zh' ? 'zh-CN' : 'en', onclick: async () => { await setLanguage(other); shell(); route(); } }, other === 'zh' ? '中文' : 'English'),
      h('button.icon', { type: 'button', 'aria-label': t('Keys'), title: t('Keys'), onclick: help }, icon('help')), who),
    content)));
  document.querySelector('.skip').textContent = t('Skip to the content');
  document.querySelector('.skip').href = `${location.pathname}#main`;
  drawLive('wait');
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  setTheme(dark ? 'light' : 'dark');
}

export function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  localStorage.setItem('rocketq.theme', theme || '');
}

export const redraw = () => { shell(); route(); };

function palette() {
  if (document.querySelector('dialog.palette')) return;
  const before = document.activeElement;
  const list = h('ul.options', { role: 'listbox', id: 'options' });
  const input = h('input', { type: 'text', placeholder: t('Topic, group, broker, message id, page …'), role: 'combobox', 'aria-expanded': 'true', 'aria-controls': 'options', 'aria-label': t('Find anything'), oninput: debounce(find, 120), onkeydown: keys });
  const element = h('dialog.palette', { 'aria-label': t('Find anything'), onclose: () => { element.remove(); before?.focus?.(); } }, h('div.inner', input, list));
  let options = [];
  let at = 0;
  function draw() {
    fill(list, options.map((one, number) => h('li', { role: 'option', 'aria-selected': String(number === at), onclick: () => take(number) }, icon(one.icon), one.label, h('span.kind', one.kind))));
    list.children[at]?.scrollIntoView({ block: 'nearest' });
  }
  function take(number) {
    element.close();
    if (options[number]) go(options[number].href);
  }
  function keys(event) {
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') at = (at + (event.key === 'ArrowDown' ? 1 : -1) + options.length) % Math.max(1, options.length);
    else if (event.key === 'Enter') take(at);
    else return;
    event.preventDefault();
    draw();
  }
  async function find() {
    const text = input.value.trim();
    const pages = PAGES.filter((one) => !one.section && one.label().toLowerCase().includes(text.toLowerCase())).map((one) => ({ icon: one.icon, label: one.label(), kind: t('page'), href: one.global ? `${base}${one.name}` : path(one.name) }));
    let found = [];
    if (text) {
      const at2 = `/clusters/${seg(cluster)}`;
      const [topics, groups, brokers] = await Promise.all([
        api(`${at2}/topics`, { query: { q: text, n: 8, system: true } }), api(`${at2}/groups`, { query: { q: text, n: 8 } }), api(`${at2}/brokers`)]).catch(() => [{ items: [] }, { items: [] }, { items: [] }]);
      if (input.value.trim() !== text) return;
      found = [
        ...topics.items.map((one) => ({ icon: 'topics', label: one.name, kind: t('topic'), href: path(`topics/${seg(one.name)}`) })),
        ...groups.items.map((one) => ({ icon: 'groups', label: one.name, kind: t('group'), href: path(`groups/${seg(one.name)}`) })),
        ...brokers.items.filter((one) => one.name.includes(text)).map((one) => ({ icon: 'brokers', label: one.name, kind: t('broker'), href: path(`brokers/${seg(one.name)}`) })),
      ];
      if (/^[0-9A-Fa-f]{24,}$/.test(text)) found.unshift({ icon: 'trace', label: text, kind: t('message'), href: path('trace', { id: text }) });
    }
    options = [...found, ...pages].slice(0, 30);
    at = 0;
    draw();
  }
  document.body.append(element);
  element.showModal();
  find();
}

function help() {
  dialog(t('Keys'), ({ content: body, footer, close }) => {
    const rows = [['/', t('Filter')], ['Ctrl K', t('Find anything')], ['j k', t('Next and previous row')], ['Enter', t('Open')], ['Space', t('Select')], ['Esc', t('Close')], ['?', t('Keys')],
      ...PAGES.filter((one) => one.keys).map((one) => [`g ${one.keys}`, one.label()])];
    fill(body, h('table', h('tbody', rows.map(([keys, label]) => h('tr', h('td', h('kbd', keys)), h('td', label))))));
    fill(footer, h('button.primary', { type: 'button', onclick: () => close() }, t('Close')));
  });
}

let waiting = 0;

document.addEventListener('keydown', (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
    event.preventDefault();
    palette();
    return;
  }
  if (event.key === 'Escape' && !document.querySelector('dialog[open]') && closeDrawer()) return;
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.('input, textarea, select, dialog')) return;
  if (Date.now() - waiting < 1200) {
    waiting = 0;
    const page = PAGES.find((one) => one.keys === event.key);
    if (page) { event.preventDefault(); go(page.global ? `${base}${page.name}` : path(page.name)); }
    return;
  }
  if (event.key === 'g') { waiting = Date.now(); return; }
  if (event.key === '?') { help(); return; }
  if (event.key === '/') {
    const filter = document.querySelector('[data-filter]');
    if (filter) { event.preventDefault(); filter.focus(); filter.select?.(); }
    return;
  }
  if (event.key === 'j' || event.key === 'k') current.keys?.move?.(event.key === 'j' ? 1 : -1);
});

document.addEventListener('click', (event) => {
  const link = event.target.closest?.('a[href]');
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || link.target || link.hasAttribute('download')) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || !url.pathname.startsWith(base) || url.pathname.startsWith(`${base}api/`)) return;
  if (url.hash && url.pathname === location.pathname) return;
  event.preventDefault();
  go(url.href);
});

window.addEventListener('popstate', route);
window.addEventListener('rocketq-sign-in', () => { if (me.login !== 'none') signIn(); });

function signIn() {
  const name = h('input', { name: 'name', autocomplete: 'username', required: true });
  const password = h('input', { type: 'password', name: 'password', autocomplete: 'current-password', required: true });
  const said = h('div');
  const form = h('form.card.stack', { onsubmit: submit }, h('div.bar', mark(), h('h1', 'RocketQ')),
    field(me.login === 'cluster' ? t('User or access key') : t('Name'), name), field(t('Password'), password), said, h('button.primary', { type: 'submit' }, t('Sign in')));
  async function submit(event) {
    event.preventDefault();
    try {
      await api('/login', { method: 'POST', body: { name: name.value, password: password.value } });
      await start();
    } catch (error) {
      fill(said, notice('bad', problemText(error)));
    }
  }
  fill(app, h('main.login', { id: 'main' }, form));
  name.focus();
}

async function signOut() {
  await api('/logout', { method: 'POST' });
  await loadMe();
  signIn();
}

async function start() {
  await loadMe();
  if (!me.user) { signIn(); return; }
  shell();
  await route();
}

setTheme(localStorage.getItem('rocketq.theme') || '');
// Not awaited here: pages import this module, and would wait for it to end.
setLanguage(preferredLanguage()).then(start).catch((error) => fill(app, h('main.login', notice('bad', problemText(error)))));
export { toast };
