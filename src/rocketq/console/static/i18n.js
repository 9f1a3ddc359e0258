// Languages and number formats. English texts are the keys; the catalogue of another language maps them.
let catalogue = {};
let language = 'en';
let utc = false;

const STORED = { language: 'rocketq.language', utc: 'rocketq.utc' };

/** @returns {string} */
export const currentLanguage = () => language;
export const isUtc = () => utc;

/** The remembered language, else the browser's. */
export function preferredLanguage() {
  const kept = localStorage.getItem(STORED.language);
  if (kept) return kept;
  return navigator.languages?.some((each, at) => at === 0 && each.startsWith('zh')) ? 'zh' : 'en';
}

/** Load a language; texts made afterwards are in it. */
export async function setLanguage(wanted) {
  catalogue = wanted === 'zh' ? await (await fetch('static/i18n/zh.json')).json() : {};
  language = wanted;
  document.documentElement.lang = wanted === 'zh' ? 'zh-CN' : 'en';
  localStorage.setItem(STORED.language, wanted);
  formats.clear();
}

export function setUtc(value) {
  utc = value;
  localStorage.setItem(STORED.utc, value ? '1' : '');
  formats.clear();
}

utc = Boolean(localStorage.getItem(STORED.utc));

/**
 * A text in the reader's language. `{name}` is replaced by the field.
 * @param {string} key the English text
 * @param {Record<string, any>} [fields]
 */
export function t(key, fields) {
  const text = catalogue[key] ?? key;
  return fields ? text.replace(/\{(\w+)\}/g, (whole, name) => (name in fields ? String(fields[name]) : whole)) : text;
}

const formats = new Map();
function format(name, make) {
  if (!formats.has(name)) formats.set(name, make(language === 'zh' ? 'zh-CN' : 'en-GB'));
  return formats.get(name);
}

/** One of two texts, by the number `n` among the fields. */
export const plural = (n, one, many) => (n === 1 ? one : many);

/** A whole number with separators; decimal text beyond 2^53 keeps all its digits. */
export function count(value) {
  if (value === null || value === undefined) return '–';
  const exact = typeof value === 'string' ? BigInt(value) : Math.round(value);
  return format('count', (locale) => new Intl.NumberFormat(locale)).format(exact);
}

/** A number cut to three digits, such as 1.2 M. */
export function short(value) {
  if (value === null || value === undefined) return '–';
  if (Math.abs(value) < 10 && value % 1) return value.toFixed(1);
  return format('short', (locale) => new Intl.NumberFormat(locale, { notation: 'compact', maximumFractionDigits: 1 })).format(value);
}

export const rate = (value) => (value === null || value === undefined ? '–' : t('{n}/s', { n: short(value) }));

export function percent(value) {
  return value === null || value === undefined ? '–' : `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`;
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
export function bytes(value) {
  if (value === null || value === undefined) return '–';
  let number = Number(value), unit = 0;
  while (number >= 1024 && unit < UNITS.length - 1) { number /= 1024; unit += 1; }
  return `${number >= 100 || unit === 0 ? Math.round(number) : number.toFixed(1)} ${UNITS[unit]}`;
}

/** How long, in the largest fitting unit. */
export function duration(ms) {
  if (ms === null || ms === undefined) return '–';
  const seconds = ms / 1000;
  if (seconds < 1) return `${Math.round(ms)} ms`;
  if (seconds < 90) return t('{n} s', { n: seconds < 10 ? seconds.toFixed(1) : Math.round(seconds) });
  if (seconds < 5400) return t('{n} min', { n: Math.round(seconds / 60) });
  if (seconds < 129600) return t('{n} h', { n: (seconds / 3600).toFixed(seconds < 36000 ? 1 : 0) });
  return t('{n} d', { n: Math.round(seconds / 86400) });
}

export function ago(ms, now = Date.now()) {
  if (!ms) return '–';
  return now - ms < 1500 ? t('now') : t('{time} ago', { time: duration(now - ms) });
}

const zone = () => (utc ? { timeZone: 'UTC' } : {});

/** Date and time to the second, with the zone on hover of whatever shows it. */
export function time(ms) {
  if (!ms) return '–';
  return format(`time${utc}`, (locale) => new Intl.DateTimeFormat(locale, { year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false, ...zone() })).format(ms);
}

export function clock(ms) {
  return format(`clock${utc}`, (locale) => new Intl.DateTimeFormat(locale, { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false, ...zone() })).format(ms);
}

export function minute(ms) {
  return format(`minute${utc}`, (locale) => new Intl.DateTimeFormat(locale, { hour: '2-digit', minute: '2-digit', hour12: false, ...zone() })).format(ms);
}

export function day(ms) {
  return format(`day${utc}`, (locale) => new Intl.DateTimeFormat(locale, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', hour12: false, ...zone() })).format(ms);
}

export const zoneName = () => (utc ? 'UTC' : Intl.DateTimeFormat().resolvedOptions().timeZone);
