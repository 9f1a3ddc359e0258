// The REST API and the live socket. Pages use nothing else.
import { t } from './i18n.js';

export const base = new URL(document.baseURI).pathname;
const ROOT = `${base}api/v1`;

/** What the server says about itself and the user. @type {any} */
export let me = { user: null, role: null, clusters: [], token: null };

export class Problem extends Error {
  constructor(status, value) {
    super(value.detail || value.title || String(status));
    this.status = status;
    this.code = value.code || 'failed';
    this.fields = value;
  }
}

/** @param {string} path below /api/v1 @param {{method?: string, body?: any, query?: any, signal?: AbortSignal}} [options] */
export async function api(path, { method = 'GET', body, query, signal, key } = {}) {
  const headers = {};
  if (method !== 'GET') headers['X-RocketQ-Token'] = me.token || '';
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (key) headers['Idempotency-Key'] = key;
  let response;
  try {
    response = await fetch(ROOT + path + queryText(query), { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, { code: 'offline', detail: t('The console does not answer') });
  }
  if (response.ok) return response.json();
  const problem = new Problem(response.status, await response.json().catch(() => ({})));
  if (response.status === 401 && path !== '/login') window.dispatchEvent(new CustomEvent('rocketq-sign-in'));
  throw problem;
}

export function queryText(query) {
  const pairs = Object.entries(query || {}).flatMap(([name, value]) => [value].flat().map((each) => [name, each]))
    .filter(([, value]) => value !== undefined && value !== null && value !== '' && value !== false);
  return pairs.length ? `?${new URLSearchParams(pairs)}` : '';
}

export async function loadMe() {
  me = await api('/me');
  return me;
}

/** Lines of a JSON stream, one by one. @returns {AsyncGenerator<any>} */
export async function* lines(path, { query, signal } = {}) {
  const response = await fetch(ROOT + path + queryText(query), { signal });
  if (!response.ok) throw new Problem(response.status, await response.json().catch(() => ({})));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (left + value).split('\n');
    left = parts.pop();
    for (const part of parts) if (part) yield JSON.parse(part);
  }
}

export const seg = encodeURIComponent;
export const can = (role) => ({ viewer: 1, operator: 2, admin: 3 })[me.role] >= { viewer: 1, operator: 2, admin: 3 }[role];

/** One socket for the tab. `onsample` gets each note, `onstate` 'on', 'wait' or 'off' and since when. */
export class Live {
  constructor(onsample, onstate) {
    this.onsample = onsample;
    this.onstate = onstate;
    this.cluster = null;
    this.delay = 500;
    document.addEventListener('visibilitychange', () => (document.hidden ? this.pause() : this.connect()));
  }

  show(cluster) {
    this.cluster = cluster;
    if (this.socket?.readyState === 1) this.socket.send(JSON.stringify({ cluster }));
    else this.connect();
  }

  connect() {
    if (this.socket || document.hidden) return;
    clearTimeout(this.timer);
    this.onstate('wait');
    const url = new URL(`${ROOT}/live`, location.href);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = (this.socket = new WebSocket(url));
    socket.onopen = () => {
      this.delay = 500;
      this.onstate('on');
      if (this.cluster) socket.send(JSON.stringify({ cluster: this.cluster }));
    };
    socket.onmessage = (event) => this.onsample(JSON.parse(event.data));
    socket.onclose = () => {
      if (this.socket !== socket) return;
      this.socket = null;
      this.onstate(document.hidden ? 'paused' : 'off');
      if (document.hidden) return;
      this.timer = setTimeout(() => this.connect(), this.delay * (0.75 + Math.random() / 2));
      this.delay = Math.min(this.delay * 2, 15000);
    };
  }

  pause() {
    clearTimeout(this.timer);
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.onstate('paused');
  }
}
