// Elements, icons and small pieces of pages. Text always becomes a text node: nothing a broker says is parsed as HTML.
import { t } from './i18n.js';

/**
 * Make an element: h('a.item', {href, onclick}, 'text', child). null and false children are left out.
 * @param {string} spec tag and classes
 * @param {...any} rest attributes (optional) and children
 * @returns {HTMLElement}
 */
export function h(spec, ...rest) {
  const [tag, ...classes] = spec.split('.');
  const element = document.createElement(tag || 'div');
  if (classes.length) element.className = classes.join(' ');
  const first = rest[0];
  const isAttributes = first && typeof first === 'object' && !(first instanceof Node) && !Array.isArray(first);
  if (isAttributes) setAttributes(element, rest.shift());
  append(element, rest);
  return element;
}

function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'style') Object.assign(element.style, value);
    else if (name === 'value' || name === 'checked' || name === 'disabled') element[name] = value;
    else if (name === 'class') element.className += ` ${value}`;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
}

/** @param {Node} parent @param {any} children */
export function append(parent, children) {
  for (const child of [children].flat(9)) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replace what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

const SVG = 'http://www.w3.org/2000/svg';

/** An SVG element with attributes. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  append(element, children);
  return element;
}

const ICONS = {
  overview: 'M2.500 8.500 8 3l5.500 5.500M4 7.500V13h8V7.500',
  topics: 'M2.500 4h11M2.500 8h11M2.500 12h7',
  groups: 'M6 7.500a2.200 2.200 0 1 0 0-4.400 2.200 2.200 0 0 0 0 4.400zM2 13c0-2.200 1.800-3.500 4-3.500s4 1.300 4 3.500M11 7.200a1.800 1.800 0 1 0 0-3.600M11.500 9.700c1.600.3 2.600 1.500 2.600 3.300',
  dlq: 'M2.500 5.500 8 9l5.500-3.500M2.500 4h11v8.500h-11zM10 10l2.500 2.500',
  retry: 'M13 8a5 5 0 1 1-1.600-3.700M13 2.500V5h-2.500',
  delays: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3.200l2 1.600',
  transactions: 'M3 5.500h9L9.500 3M13 10.500H4L6.500 13',
  trace: 'M3 3v10h10M5.500 10.500 8 7l2 2 3-4',
  brokers: 'M2.500 3h11v4h-11zM2.500 9h11v4h-11zM5 5h.01M5 11h.01',
  spark: 'M9 2 4 9h3.500L7 14l5-7H8.500z',
  access: 'M4 7.500h8V14H4zM5.500 7.500V5a2.500 2.500 0 0 1 5 0v2.500',
  alerts: 'M8 2.500a3.500 3.500 0 0 0-3.500 3.500c0 3.500-1.500 4.500-1.500 4.500h10s-1.500-1-1.500-4.500A3.500 3.500 0 0 0 8 2.500zM6.800 13a1.300 1.300 0 0 0 2.400 0',
  audit: 'M4 2.500h6l2.500 2.500v8.500h-8.500zM6 8h4.500M6 10.500h4.500',
  settings: 'M8 10a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM8 2v2M8 12v2M2 8h2M12 8h2M3.800 3.800l1.400 1.400M10.800 10.800l1.400 1.400M12.200 3.800l-1.400 1.400M5.200 10.800l-1.400 1.400',
  api: 'M6 4 2.500 8 6 12M10 4l3.500 4L10 12',
  search: 'M7 11.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9zM10.300 10.300 13.500 13.500',
  close: 'M4 4l8 8M12 4l-8 8',
  copy: 'M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3',
  warn: 'M8 2.500 14 13H2zM8 6.500v3M8 11.300v.2',
  ok: 'M3 8.500 6.500 12 13 4.500',
  info: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 7.500V11M8 5v.2',
  theme: 'M13 9.500A5.500 5.500 0 0 1 6.500 3a5.500 5.500 0 1 0 6.500 6.500z',
  menu: 'M2.500 4h11M2.500 8h11M2.500 12h11',
  plus: 'M8 3v10M3 8h10',
  send: 'M2.500 8 13.500 3l-3 10.500-3-4z',
  star: 'M8 2.200l1.800 3.700 4 .6-2.900 2.800.7 4L8 11.400l-3.600 1.900.7-4L2.200 6.500l4-.6z',
  help: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM6.300 6.300a1.700 1.700 0 1 1 2.500 1.500c-.6.3-.8.7-.8 1.300M8 11.300v.2',
  down: 'M8 3v7M5 7.500 8 10.500l3-3M3 13h10',
  back: 'M10 3.500 5.500 8l4.500 4.500',
};

/** A decorative icon of 16 pixels. */
export function icon(name) {
  const path = svg('path', { d: ICONS[name] || ICONS.info, fill: 'none', stroke: 'currentColor', 'stroke-width': 1.4, 'stroke-linecap': 'round', 'stroke-linejoin': 'round' });
  return svg('svg', { viewBox: '0 0 16 16', width: 16, height: 16, 'aria-hidden': 'true' }, path);
}

/** The mark of the product. */
export function mark() {
  return svg('svg', { viewBox: '0 0 32 32', width: 24, height: 24, 'aria-hidden': 'true' },
    svg('rect', { width: 32, height: 32, rx: 8, fill: '#2f5bea' }), svg('path', { d: 'M16 6c4 2.600 6 6.400 6 10.500l-3 3.500h-6l-3-3.500C10 12.400 12 8.600 16 6z', fill: '#fff' }),
    svg('circle', { cx: 16, cy: 14, r: 2.2, fill: '#2f5bea' }), svg('path', { d: 'M13 22h6l-3 5z', fill: '#ffb454' }));
}

export const badge = (kind, ...content) => h(`span.badge${kind ? `.${kind}` : ''}`, ...content);
export const notice = (kind, ...content) =>
  h(`div.notice${kind ? `.${kind}` : ''}`, { role: kind === 'bad' ? 'alert' : 'status' }, icon(kind === 'ok' ? 'ok' : kind ? 'warn' : 'info'), h('div', ...content));

/** A card with a heading. */
export function card(title, actions, ...body) {
  return h('section.card', title && h('header', h('h2', title), h('span.grow'), actions), ...body);
}

/** What a list shows when it has nothing; `command` is the next step. */
export function empty(title, text, command) {
  return h('div.empty', icon('info'), h('strong', title), text && h('span', text), command && copyable(command));
}

/** A command with a button that copies it. */
export function copyable(text) {
  return h('div.command', h('pre.code', text), copyButton(text));
}

export function copyButton(text, label = t('Copy')) {
  const button = h('button.icon', { type: 'button', title: label, 'aria-label': label, onclick: copy }, icon('copy'));
  async function copy(event) {
    event.stopPropagation();
    try {
      await navigator.clipboard.writeText(text);
      toast('ok', t('Copied'));
    } catch {
      toast('bad', t('The browser did not allow copying'));
    }
  }
  return button;
}

let toasts;

/** A short message in the corner; errors stay longer. */
export function toast(kind, text) {
  if (!toasts) {
    toasts = h('div.toasts', { 'aria-live': 'polite' });
    document.body.appendChild(toasts);
  }
  const shown = notice(kind, text);
  shown.classList.add('fade');
  toasts.appendChild(shown);
  setTimeout(() => shown.remove(), kind === 'bad' ? 9000 : 3000);
}

/** A labelled control. */
export function field(label, control, wide) {
  return h(`label.field${wide ? '.wide' : ''}`, h('span', label), control);
}

/** @param {Array<[string, string]>} options value and label */
export function select(options, value, onchange, attributes = {}) {
  const element = h('select', { onchange: () => onchange?.(element.value), ...attributes },
    options.map(([each, label]) => h('option', { value: each, selected: each === value }, label)));
  return element;
}

/** Name and value pairs. */
export function facts(pairs) {
  return h('dl.facts', pairs.filter(Boolean).map(([name, value]) => [h('dt', name), h('dd', value ?? h('span.muted', '–'))]));
}

/** Call with a pause after the last event. */
export function debounce(work, wait = 180) {
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...args), wait);
  };
}

/** Offer bytes or text as a file. */
export function download(name, content, kind = 'application/json') {
  const url = URL.createObjectURL(new Blob([content], { type: kind }));
  const link = h('a', { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 5000);
}
