// The page as a whole: which view is shown, and the one stream that feeds it.

import { Stream, get, logout, now } from './api.js';
import { h, replace, set, icon, clock, span, failed, plural } from './dom.js';
import { toolsView } from './tools.js';
import { toolView } from './tool.js';
import { tryView } from './try.js';
import { logsView } from './logs.js';
import { callsView } from './calls.js';
import { clientsView } from './clients.js';
import { approvalsView } from './approvals.js';
import { numbersView } from './numbers.js';
import { packagesView } from './packages.js';
import { auditView } from './audit.js';

const main = document.getElementById('main');
const nav = document.getElementById('nav');
const about = document.getElementById('about');

// app is what all views share.
export const app = { status: null, tools: new Map(), live: 'connecting', operates: true, go: (hash) => { location.hash = hash; }, watch };
let view = null, heard = now(), refusal = '', first = true; // first: the next change has all tools

const entries = [
  ['tools', 'Tools', () => problems() || ''], ['logs', 'Logs', () => ''], ['calls', 'Calls', () => ''], ['clients', 'Clients', () => ''],
  ['approvals', 'Approvals', () => app.status?.approvals_waiting || ''], ['numbers', 'Numbers', () => ''], ['packages', 'Packages', () => ''], ['audit', 'Audit', () => ''],
];

function problems() {
  let n = (app.status?.problems || []).filter((p) => p.severity === 'error').length;
  for (const t of app.tools.values()) if (t.state === 'CRASHED') n++;
  return n;
}

const offline = h('div', { class: 'banner bad offline', role: 'alert', hidden: true });

const links = entries.map(([name, text]) => h('a', { href: '#/' + name, 'data-name': name }, icon(name), h('span', {}, text), h('span', { class: 'count' })));
replace(nav, links);
const dot = h('span', { class: 'dot' }), liveText = h('span', {}, 'Connecting'), where = h('span', { class: 'where dim' });
const waiting = h('p', { class: 'unseen', role: 'status' }); // for who does not see the number
replace(about, h('div', { class: 'live', role: 'status' }, dot, liveText), waiting, where,
  h('button', { type: 'button', class: 'link', onclick: () => logout().then(() => location.reload(), failed) }, 'Close the session'));

function drawSide(name) {
  links.forEach((link, i) => {
    if (name) link.toggleAttribute('data-on', link.dataset.name === name);
    if (name) link.dataset.name === name ? link.setAttribute('aria-current', 'page') : link.removeAttribute('aria-current');
    if (link.dataset.name === name) link.scrollIntoView({ inline: 'center', block: 'nearest' });
    const n = entries[i][2]();
    set(link.lastChild, n ? String(n) : '');
    link.lastChild.hidden = !n;
  });
  about.dataset.live = app.live;
  set(liveText, { live: 'Live', lost: 'Not connected; trying again', refused: 'Refused', connecting: 'Connecting' }[app.live]);
  if (app.status) set(where, `Orla ${app.status.version} · pid ${app.status.pid} · up\u00a0${span((app.live === 'live' ? now() : heard) - Date.parse(app.status.started)).replace(/ (?=[a-z])/g, '\u00a0')}`);
  const n = app.status?.approvals_waiting || 0;
  if (n || waiting.textContent) set(waiting, n ? plural(n, 'call waits', 'calls wait') + ' for an approval' : 'no call waits for an approval');
  document.body.dataset.live = app.live;
  offline.hidden = !['lost', 'refused'].includes(app.live) || !app.status;
  if (!offline.hidden) set(offline, `${app.live === 'lost' ? 'Orla cannot be reached' : 'Orla refuses this page: ' + refusal}. This is from ${clock(heard)}; the page tries again by itself.`);
}

const stream = new Stream({
  change(change) {
    heard = now();
    if (change.status) app.status = change.status;
    if (first) app.tools.clear();
    first = false;
    for (const t of change.tools || []) app.tools.set(t.name, t);
    for (const name of change.gone || []) app.tools.delete(name);
    drawSide();
    view?.change?.(change);
  },
  lines(batch) { heard = now(); view?.lines?.(batch); },
  state(state, error) {
    app.live = state;
    if (state === 'live') first = true; // until it comes, the tools that were there can be chosen
    if (error && error.message !== refusal) failed(error);
    refusal = error ? error.message : '';
    drawSide();
    view?.live?.(state === 'live', watched); // nobody told of what happened before
  },
  ended() {
    view?.leave?.();
    document.body.className = 'door';
    replace(document.body, h('main', { class: 'card' }, h('h1', {}, 'This session is over'),
      h('p', {}, 'Orla was started again, or the session was closed or is too old. To go on, run this on the machine of Orla:'),
      h('pre', { class: 'command' }, 'orla console'), h('p', {}, h('a', { href: '/' }, 'With a token, enter again.'))));
  },
});

const views = { tools: toolsView, logs: logsView, tool: toolView, try: tryView, calls: callsView, clients: clientsView, approvals: approvalsView, numbers: numbersView, packages: packagesView, audit: auditView };
const under = { tool: 'tools', try: 'tools' };
let watched;

// watch begins the stream again, with other lines.
function watch(params) {
  watched = JSON.stringify(params);
  stream.use(params);
}

function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, '').split('/');
  const known = views[name] ? name : 'tools';
  let args = [];
  try { args = rest.map(decodeURIComponent); } catch { /* a hash that somebody has typed */ }
  view?.leave?.();
  view = views[known](app, ...args);
  document.title = view.title + ' · Orla';
  replace(main, offline, view.el);
  main.scrollTop = 0;
  drawSide(under[known] || known);
  const params = view.params || {};
  if (JSON.stringify(params) !== watched || view.lines) watch(params);
  if (app.status) view.change?.({});
}

addEventListener('resize', () => nav.querySelector('[data-on]')?.scrollIntoView({ inline: 'center', block: 'nearest' }));
addEventListener('hashchange', () => { route(); main.focus({ preventScroll: true }); });
addEventListener('keydown', (event) => {
  if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const search = main.querySelector('input[type=search]');
  if (search) { event.preventDefault(); search.focus(); search.select(); }
});
get('/v1/visitor').then((who) => { app.operates = who.roles.includes('operator'); view?.change?.({}); }, () => {}); // the stream says what is wrong
setInterval(() => { drawSide(); view?.tick?.(); }, 1000);
route();
