// Tables: sortable, selectable, used with the keyboard, updated in place without moving rows under the pointer.
import { h, fill } from './dom.js';
import { t, plural, count } from './i18n.js';

/**
 * @param {{columns: Array<{key: string, label: string, cell: (row: any) => any, sort?: string|boolean, align?: string, cls?: string}>,
 *   rowKey: (row: any) => string, caption: string, sort?: string, onsort?: (sort: string) => void, onopen?: (row: any) => void,
 *   onselect?: (keys: Set<string>) => void, empty?: () => Node, wave?: boolean}} options
 */
export function makeTable(options) {
  const { columns, rowKey, onopen, onselect } = options;
  const selected = new Set();
  const rows = new Map();
  let shown = [];
  const head = h('tr');
  const body = h('tbody');
  const table = h('table', h('caption.visually-hidden', options.caption), h('thead', head), body);
  const wrap = h('div.table-wrap', { tabindex: -1 }, table);
  const none = h('div');
  const element = h('div.table-box', wrap, none);

  const all = onselect && h('input', { type: 'checkbox', 'aria-label': t('Select all'), onchange: () => selectAll(all.checked) });

  function drawHead() {
    fill(head, onselect && h('th.check', { scope: 'col' }, all), columns.map((column) => {
      const name = column.sort === true ? column.key : column.sort;
      const now = (options.sort || '').replace(/^-/, '');
      const state = name && now === name ? (options.sort.startsWith('-') ? 'descending' : 'ascending') : undefined;
      const label = name && options.onsort
        ? h('button', { type: 'button', onclick: () => sortBy(name, column.align === 'right') }, column.label, state === 'ascending' ? ' ▲' : state === 'descending' ? ' ▼' : '')
        : column.label;
      return h(`th${column.align ? `.${column.align}` : ''}`, { scope: 'col', 'aria-sort': state }, label);
    }));
  }

  function sortBy(name, largestFirst) {
    const was = options.sort;
    options.sort = was === name ? `-${name}` : was === `-${name}` ? name : largestFirst ? `-${name}` : name;
    drawHead();
    options.onsort(options.sort);
  }

  function selectAll(on) {
    selected.clear();
    if (on) for (const row of shown) selected.add(rowKey(row));
    for (const [key, entry] of rows) mark(key, entry);
    onselect(selected);
  }

  function mark(key, entry) {
    const on = selected.has(key);
    entry.tr.setAttribute('aria-selected', onselect ? String(on) : 'false');
    if (entry.box) entry.box.checked = on;
  }

  function toggle(key) {
    if (selected.has(key)) selected.delete(key);
    else selected.add(key);
    const entry = rows.get(key);
    if (entry) mark(key, entry);
    if (all) all.checked = shown.length > 0 && selected.size >= shown.length;
    onselect(selected);
  }

  function makeRow(key) {
    const entry = { cells: columns.map((column) => h(`td${column.align ? `.${column.align}` : ''}${column.cls ? `.${column.cls}` : ''}`)), row: null, texts: [] };
    entry.box = onselect && h('input', { type: 'checkbox', 'aria-label': t('Select'), onclick: (event) => event.stopPropagation(), onchange: () => toggle(key) });
    entry.tr = h(`tr${onopen ? '.open-able' : ''}`, { tabindex: -1, onclick: open, onkeydown: keys }, entry.box && h('td.check', entry.box), entry.cells);
    function open(event) {
      if (event.target.closest('a, button, input, summary') || String(getSelection())) return;
      onopen?.(entry.row);
    }
    function keys(event) {
      if (event.target !== entry.tr) return;
      if (event.key === 'Enter' && onopen) onopen(entry.row);
      else if (event.key === ' ' && onselect) toggle(key);
      else return;
      event.preventDefault();
    }
    return entry;
  }

  function drawRow(entry, row) {
    entry.row = row;
    columns.forEach((column, at) => {
      const content = column.cell(row);
      const text = content instanceof Node ? content.outerHTML : Array.isArray(content) ? content.map((each) => each?.outerHTML ?? each).join('') : String(content ?? '');
      if (entry.texts[at] === text) return;
      entry.texts[at] = text;
      fill(entry.cells[at], content);
      if (column.cls?.includes('cut') || column.cls?.includes('body')) entry.cells[at].title = entry.cells[at].textContent;
    });
  }

  return {
    el: element,
    selected,
    rows: () => shown,
    clearSelection: () => selectAll(false),
    /** Show these rows. While the pointer is over the table, rows stay where they are. */
    update(list) {
      const hold = wrap.matches(':hover') && shown.length === list.length && list.every((row) => rows.has(rowKey(row)));
      const keys = new Set(list.map(rowKey));
      for (const [key, entry] of rows) {
        if (keys.has(key)) continue;
        entry.tr.remove();
        rows.delete(key);
      }
      list.forEach((row, at) => {
        const key = rowKey(row);
        let entry = rows.get(key);
        if (!entry) rows.set(key, (entry = makeRow(key)));
        drawRow(entry, row);
        mark(key, entry);
        if (!hold && body.children[at] !== entry.tr) body.insertBefore(entry.tr, body.children[at] || null);
      });
      shown = list;
      const first = body.querySelector('tr');
      if (first && !body.querySelector('tr[tabindex="0"]')) first.tabIndex = 0;
      fill(none, !list.length && (options.empty?.() ?? h('div.empty', t('Nothing here'))));
      wrap.hidden = !list.length && !options.keepHead;
    },
    /** Add rows at the end without looking at those before. */
    push(list) {
      for (const row of list) {
        const key = rowKey(row);
        if (rows.has(key)) continue;
        const entry = makeRow(key);
        rows.set(key, entry);
        drawRow(entry, row);
        body.appendChild(entry.tr);
        shown.push(row);
      }
      wrap.hidden = !shown.length && !options.keepHead;
      if (shown.length) fill(none);
    },
    move(step) {
      const list = [...body.children];
      const now = list.indexOf(document.activeElement);
      const next = list[Math.max(0, Math.min(list.length - 1, now < 0 ? 0 : now + step))];
      if (!next) return;
      for (const each of list) each.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    },
    init() { drawHead(); return this; },
  }.init();
}

/** Previous and next for windows of a long list. */
export function pager(from, size, total, onmove) {
  if (total <= size && !from) return h('div.pager', plural(total, t('1 row'), t('{n} rows', { n: count(total) })));
  return h('div.pager',
    h('span', t('{from} to {to} of {total}', { from: count(from + 1), to: count(Math.min(from + size, total)), total: count(total) })),
    h('button.small', { type: 'button', disabled: from === 0, onclick: () => onmove(Math.max(0, from - size)) }, t('Previous')),
    h('button.small', { type: 'button', disabled: from + size >= total, onclick: () => onmove(from + size) }, t('Next')));
}

/** Rows as CSV text. */
export function csv(names, rows) {
  const cell = (value) => {
    const text = String(value ?? '');
    const safe = /^[=+\-@\t]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [names.join(','), ...rows.map((row) => row.map(cell).join(','))].join('\n');
}
