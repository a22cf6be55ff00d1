// Who calls: the callers that the configuration knows, and what the last calls tell.

import { h, replace, plural, empty, day, bytes, count, heading, pairs } from './dom.js';
import { Calls, callParams } from './calls.js';

export function clientsView(app) {
  const calls = new Calls();
  const totals = h('p', { class: 'totals' });
  const body = h('div', { class: 'cards' });
  const el = h('section', { class: 'view' }, heading('Clients', totals), body);

  function draw() {
    if (!app.status) return;
    const seen = new Map();
    const of = (name) => seen.get(name) || seen.set(name, { name, calls: 0, errors: 0, tools: new Set(), sessions: new Set() }).get(name);
    for (const c of app.status.callers || []) if (c.name) of(c.name).known = c;
    for (const c of calls.list) {
      const one = of(c.caller || 'unknown');
      one.calls++;
      if (c.ok === false) one.errors++;
      one.tools.add(c.tool);
      if (c.session) one.sessions.add(c.session);
      one.last = c.time;
    }
    replace(totals, app.status.sessions !== undefined && plural(app.status.sessions, 'session') + ' over HTTP', h('span', {}, plural(app.status.in_flight || 0, 'call') + ' in flight'));
    if (!seen.size) {
      replace(body, empty('No client has called yet', 'Give this address to an MCP client, as docs/CLIENTS.md says for each:', h('pre', { class: 'command' }, app.status.url)));
      return;
    }
    const list = [...seen.values()].sort((a, b) => (b.last || '').localeCompare(a.last || '') || a.name.localeCompare(b.name));
    replace(body, list.map((c) => {
      const k = c.known || {};
      const facts = [['Last call', c.last ? day(c.last) : 'none that is kept'], ['Calls that are kept', count(c.calls) + (c.errors ? `, ${c.errors} failed` : '')], c.tools.size && ['Tools', [...c.tools].slice(0, 8).join(', ') + (c.tools.size > 8 ? ' …' : '')],
        k.sessions && ['Sessions', count(k.sessions)], k.in_flight && ['In flight', count(k.in_flight)], k.tools !== undefined && ['May call', plural(k.tools, 'tool')], k.roles && ['Roles', k.roles.join(', ')], k.toolsets && ['Toolsets', k.toolsets.join(', ')], k.may_speak_for && ['May act for', k.may_speak_for.join(', ')], k.kept_bytes && ['Kept answers', bytes(k.kept_bytes)]].filter(Boolean);
      return h('article', { class: 'item' }, h('h2', {}, c.name, h('small', { class: 'dim' }, { console: 'this page', cli: 'orla call', anonymous: 'clients without a token', stdio: 'the client on stdin and stdout' }[c.name] || '')), pairs(facts));
    }));
  }
  let due = false;
  const soon = () => { if (!due) { due = true; requestAnimationFrame(() => { due = false; draw(); }); } };
  return { el, title: 'Clients', params: callParams, change: soon, lines(batch) { calls.add(batch); soon(); }, live(on) { if (on) calls.live(); } };
}
