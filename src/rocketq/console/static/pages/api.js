// A reader of the OpenAPI document, with try-it for what only reads.
import { h, fill, badge, debounce, copyable, notice } from '../dom.js';
import { t } from '../i18n.js';
import { api, base } from '../api.js';
import { problemText } from '../change.js';

const KINDS = { get: 'ok', post: 'info', delete: 'bad' };

export default async function reader(page) {
  const { main, setQuery } = page;
  const found = await api('/openapi.json');
  if (!page.alive()) return;
  const list = h('div.stack');
  const search = h('input.search', { type: 'search', value: page.query.get('q') || '', placeholder: t('Filter by path or text'), 'aria-label': t('Filter by path or text'), 'data-filter': true, oninput: debounce(draw) });
  const routes = Object.entries(found.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, one]) => ({ path, method, ...one })));

  function draw() {
    const text = search.value.toLowerCase();
    setQuery({ q: search.value });
    fill(list, routes.filter((one) => `${one.path} ${one.description || ''}`.toLowerCase().includes(text)).map(route));
  }

  function route(one) {
    const body = h('div.body.stack');
    const details = h('details.card', { ontoggle: () => details.open && !body.children.length && detail(one, body) }, h('summary.row', { style: { padding: '10px 16px', cursor: 'pointer' } }, badge(KINDS[one.method] || '', one.method.toUpperCase()), ' ', h('span.mono', one.path), ' ', h('span.muted', (one.description || '').split('\n')[0])), body);
    return details;
  }

  function detail(one, body) {
    const inputs = new Map();
    const result = h('div');
    const rows = (one.parameters || []).map((each) => {
      const input = h('input', { 'aria-label': each.name, value: each.name === 'cluster' ? page.cluster || '' : '' });
      inputs.set(each, input);
      return h('tr', h('td.mono', each.name, each.required ? ' *' : ''), h('td.muted', each.in), h('td', each.description || ''), h('td', one.method === 'get' && each.in !== 'header' && input));
    });
    const schema = one.requestBody?.content?.['application/json']?.schema;
    fill(body, one.description && h('p', one.description), rows.length > 0 && h('div.table-wrap', h('table', h('tbody', rows))), schema && [h('h3', t('Body')), h('pre.code', JSON.stringify(resolve(schema), null, 2))],
      one.method === 'get' && h('div', h('button', { type: 'button', onclick: run }, t('Try it'))), copyable(`curl -H "Authorization: Bearer $TOKEN" ${one.method === 'get' ? '' : `-X ${one.method.toUpperCase()} `}${location.origin}${base}${one.path.slice(1)}`), result);
    async function run() {
      let path = one.path.replace(/^\/api\/v1/, '');
      const query = {};
      for (const [each, input] of inputs) {
        if (each.in === 'path') path = path.replace(new RegExp(`\\{${each.name}(:path)?\\}`), encodeURIComponent(input.value));
        else if (each.in === 'query' && input.value) query[each.name] = input.value;
      }
      try {
        const response = await fetch(`${base}api/v1${path}?${new URLSearchParams(query)}`);
        const text = await response.text();
        let shown = text;
        try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* lines of JSON stay as they are */ }
        fill(result, badge(response.ok ? 'ok' : 'bad', response.status), h('pre.code', shown.slice(0, 20000)));
      } catch (error) {
        fill(result, notice('bad', problemText(error)));
      }
    }
  }

  function resolve(schema, depth = 0) {
    if (!schema || depth > 4) return '…';
    if (schema.$ref) return resolve(found.components.schemas[schema.$ref.split('/').pop()], depth);
    if (schema.properties) return Object.fromEntries(Object.entries(schema.properties).map(([name, each]) => [name, resolve(each, depth + 1)]));
    if (schema.type === 'array') return [resolve(schema.items, depth + 1)];
    if (schema.anyOf) return schema.anyOf.map((each) => each.type || resolve(each, depth + 1)).join(' | ');
    return schema.type || 'any';
  }

  fill(main, h('div.page-head', h('div.titles', h('h1', t('API')), h('p.sub', t('Everything these pages do. Make a token with rocketq console token NAME.')))), h('div.bar', search, h('span.grow'), h('a.button', { href: `${base}api/v1/openapi.json`, target: '_blank', rel: 'noopener' }, 'OpenAPI 3.1')), list);
  draw();
}
