// Makes elements. Text of tools only ever becomes text: nothing here reads markup.

import { now } from './api.js';

export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) el.addEventListener(key.slice(2), value);
    else if (key === 'class') el.className = value;
    else if (key === 'value' || key === 'checked' || key === 'disabled' || key === 'hidden') el[key] = value;
    else el.setAttribute(key, value === true ? '' : value);
  }
  put(el, children);
  return el;
}

export function put(el, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    el.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return el;
}

export const replace = (el, ...children) => { el.replaceChildren(); return put(el, children); };

// set changes a text only if it differs, so that a selection in it lasts.
export function set(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

export function svg(tag, props, ...children) {
  const el = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(props || {})) el.setAttribute(key, value);
  el.append(...children);
  return el;
}

// The states: each has a word, a colour by its class, and a shape.
const shapes = {
  ready: () => [svg('circle', { cx: 8, cy: 8, r: 5.5, class: 'fill' })],
  busy: () => [svg('circle', { cx: 8, cy: 8, r: 5, class: 'ring faint' }), svg('path', { d: 'M8 3a5 5 0 0 1 5 5', class: 'ring' })],
  crashed: () => [svg('path', { d: 'M8 1.6 15 14H1z', class: 'fill' }), svg('path', { d: 'M8 6v4M8 11.600v1', class: 'mark' })],
  stopped: () => [svg('rect', { x: 3, y: 3, width: 10, height: 10, rx: 2, class: 'ring' })],
  simple: () => [svg('path', { d: 'M3 8h10', class: 'ring' })],
};
const looks = {
  READY: ['ready', 'Ready'], STARTING: ['busy', 'Starting'], RELOADING: ['busy', 'Reloading'], CREATED: ['stopped', 'Not started'],
  CRASHED: ['crashed', 'Crashed'], STOPPING: ['busy', 'Stopping'], STOPPED: ['stopped', 'Stopped'],
};
export const look = (state) => (state ? looks[state] || ['stopped', state] : ['simple', 'On call']);

export function badge(state) {
  const [kind, word] = look(state);
  return h('span', { class: 'badge ' + kind, 'data-state': state || '' }, shape(kind), h('span', {}, word));
}

export function shape(kind) {
  const icon = svg('svg', { viewBox: '0 0 16 16', width: 14, height: 14, 'aria-hidden': 'true', class: 'shape ' + kind });
  icon.append(...shapes[kind]());
  return icon;
}

const paths = {
  close: 'M4 4l8 8M12 4l-8 8', tools: 'M3 4h10M3 8h10M3 12h10', calls: 'M2 8h3l2-5 3 10 2-5h2', clients: 'M8 8a2.700 2.700 0 1 0 0-5.400A2.700 2.700 0 0 0 8 8zM3 14c.6-3 2.600-4.300 5-4.300s4.400 1.300 5 4.300',
  approvals: 'M3 8.500 6.500 12 13 4.500', restart: 'M13 8a5 5 0 1 1-1.600-3.700M13 2v3h-3', stop: 'M4 4h8v8H4z', start: 'M5 3l8 5-8 5z', back: 'M10 3 5 8l5 5', copy: 'M5 5h8v8H5zM3 11V3h8', search: 'M7 11.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9zM10.500 10.500 14 14', pause: 'M5 3v10M11 3v10', numbers: 'M3 13V8M8 13V3M13 13V6', packages: 'M8 1.800 13.500 5v6L8 14.200 2.500 11V5zM2.500 5 8 8.200 13.500 5M8 8.200v6', audit: 'M4 2h8v12H4zM6.500 5.500h3M6.500 8h3M6.500 10.500h1.500', logs: 'M3 3h10M3 6.300h6M3 9.600h9M3 13h5',
};
export function icon(name) {
  return svg('svg', { viewBox: '0 0 16 16', width: 16, height: 16, 'aria-hidden': 'true', class: 'icon' }, svg('path', { d: paths[name] }));
}

export function button(name, text, onclick, more = {}) {
  return h('button', { type: 'button', onclick, ...more }, name && icon(name), h('span', {}, text));
}

// rest has the buttons of a part of a card take no click until the function that it returns is called: with true if nothing came
// of it. What has the focus would lose it, so the card has it meanwhile.
export function rest(box) {
  const card = box.closest('.item'), held = box.contains(document.activeElement) && document.activeElement;
  const all = [...box.querySelectorAll('button')].filter((b) => !b.disabled);
  if (held) card.focus({ preventScroll: true });
  for (const b of all) b.disabled = true;
  return (again) => {
    for (const b of all) b.disabled = false;
    if (again && held && document.activeElement === card) held.focus({ preventScroll: true });
  };
}

// What numbers and times look like.
export function ago(time) { return time ? span(now() - Date.parse(time)) : ''; }

export function span(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return '<1 s';
  if (s < 60) return Math.floor(s) + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min';
  if (s < 86400) return Math.floor(s / 3600) + ' h ' + Math.floor((s % 3600) / 60) + ' min';
  return Math.floor(s / 86400) + ' d ' + Math.floor((s % 86400) / 3600) + ' h';
}

export function took(ms) {
  if (ms === undefined || ms === null) return '';
  if (ms < 10) return ms.toFixed(1) + ' ms';
  if (ms < 1000) return Math.round(ms) + ' ms';
  if (ms < 60_000) return (ms / 1000).toFixed(1) + ' s';
  return span(ms);
}

export function bytes(n) {
  if (!n) return '';
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (n < 1024 || unit === 'GiB') return (n < 10 && unit !== 'B' ? n.toFixed(1) : Math.round(n)) + ' ' + unit;
    n /= 1024;
  }
  return '';
}

export const count = (n) => (n ? n.toLocaleString('en') : '0');
export const plural = (n, one, many = one + 's') => count(n) + ' ' + (n === 1 ? one : many);

const two = (n) => String(n).padStart(2, '0');
export function clock(time, exact) {
  const t = new Date(time);
  const text = two(t.getHours()) + ':' + two(t.getMinutes()) + ':' + two(t.getSeconds());
  return exact ? text + '.' + String(t.getMilliseconds()).padStart(3, '0') : text;
}
export function day(time) {
  const t = new Date(time);
  return t.toDateString() === new Date(now()).toDateString() ? clock(time) : t.getFullYear() + '-' + two(t.getMonth() + 1) + '-' + two(t.getDate()) + ' ' + clock(time);
}

// plain removes the colours and other commands of terminals.
// eslint-disable-next-line no-control-regex
const commands = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])/g;
export const plain = (text) => text.replace(commands, '').replace(/[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]/g, '\ufffd'); // eslint-disable-line no-control-regex

export function toast(text, bad) {
  const el = h('div', { class: 'toast' + (bad ? ' bad' : '') }, text);
  document.getElementById('toasts').append(el);
  setTimeout(() => el.remove(), bad ? 9000 : 4000);
}

// failed says why something failed that was still wanted.
export const failed = (error) => error.name === 'AbortError' || toast(error.message + (error.hint ? ' — ' + error.hint : ''), true);

export async function copy(text) {
  try { await navigator.clipboard.writeText(text); toast('Copied.'); } catch { toast('The browser does not let this page copy.', true); }
}

// command shows what to run in a terminal.
export function command(text) {
  return h('div', { class: 'command' }, h('code', {}, text), button('copy', 'Copy', () => copy(text), { class: 'quiet', 'aria-label': 'Copy ' + text }));
}

// heading is the top of a view.
export const heading = (title, about, ...more) => h('div', { class: 'top' }, h('div', {}, h('h1', {}, title), about), more);

// pairs is a list of names and what each is.
export const pairs = (list) => h('dl', { class: 'details' }, list.map(([key, value]) => [h('dt', {}, key), h('dd', {}, value)]));

export const searchBox = (input) => h('label', { class: 'search' }, icon('search'), input, h('kbd', { 'aria-hidden': 'true' }, '/'));

export function empty(title, text, ...more) {
  return h('div', { class: 'empty' }, h('h2', {}, title), h('p', {}, text), more);
}
