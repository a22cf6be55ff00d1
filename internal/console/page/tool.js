// One tool: its state and why, what happened to it, its log, what it offers.

import { get, lines, post, path, now, serial } from './api.js';
import { h, set, replace, badge, ago, span, bytes, count, took, button, clock, day, empty, failed, toast, command, icon, svg, look, plain, plural, pairs } from './dom.js';
import { logPanel } from './logs.js';
import { keepSwitch, keptBanner } from './kept.js';

const told = ['created', 'state', 'started', 'ended', 'operator request', 'replacing', 'replaced', 'crashed; waiting for a change', 'offers', 'installing dependencies', 'dependencies are installed', 'dependencies were not installed'];

export function toolView(app, name = '', tab = 'activity') {
  const events = [], known = new Set(); // oldest first
  const control = new AbortController();
  const panel = logPanel({ withTool: false, changed: watch, asked: () => query() });
  const banner = keptBanner(app, (tool) => tool === name || tool.startsWith(name + '__'));
  const title = h('h1', {}, name), state = h('div', { class: 'now' }), actions = h('div', { class: 'actions' }), facts = h('dl', { class: 'facts' });
  const band = h('div', { class: 'band' }), story = h('ol', { class: 'story' }), offers = h('div', {}), details = h('div', {}), manifest = h('div', {});
  const body = h('div', { class: 'tabbody', role: 'tabpanel', id: 'tabbody', 'aria-labelledby': 'tab-' + tab });
  const tabs = [['activity', 'Activity'], ['logs', 'Logs'], ['offers', 'Offers'], ['about', 'Details']];
  const bodies = { activity: [h('div', { class: 'timeline' }, band), story], logs: [panel.el, h('p', {}, h('a', { href: '#/logs/' + encodeURIComponent(name) }, 'With the lines of other tools'))], offers: [offers], about: [details, manifest] };
  if (!bodies[tab]) tab = 'activity';
  const bar = h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Parts' }, tabs.map(([key, text]) => h('button', { type: 'button', role: 'tab', id: 'tab-' + key, 'aria-controls': 'tabbody', onclick: () => show(key), onkeydown: turn }, text)));
  const el = h('section', { class: 'view fill tool' },
    h('a', { class: 'back', href: '#/tools' }, icon('back'), 'Tools'),
    h('div', { class: 'top' }, h('div', { class: 'who' }, title, state), actions), banner.el, facts, bar, body);
  const whole = [...el.children];

  function show(key) {
    tab = key;
    for (const b of bar.children) {
      const on = b.id === 'tab-' + key;
      b.setAttribute('aria-selected', String(on));
      b.tabIndex = on ? 0 : -1;
    }
    body.setAttribute('aria-labelledby', 'tab-' + key);
    body.className = 'tabbody ' + key;
    replace(body, bodies[key]);
    if (watched !== (key === 'logs')) watch();
    history.replaceState(null, '', `#/tool/${encodeURIComponent(name)}/${key}`);
    if (key === 'offers' || key === 'about') loadOffers();
    if (key === 'about') loadManifest();
    if (key === 'activity') drawStory();
  }

  // The log has filters; what happened to the tool has none.
  let watched = tab === 'logs';
  const query = () => (tab === 'logs' ? { ...panel.query(), tool: name } : { tool: name, lines: 500 });
  function watch() {
    watched = tab === 'logs';
    app.watch(query());
  }

  function turn(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const i = (tabs.findIndex(([key]) => key === tab) + step + tabs.length) % tabs.length;
    show(tabs[i][0]);
    bar.children[i].focus();
  }

  async function operate(action, done) {
    for (const b of actions.querySelectorAll('button')) b.disabled = true;
    try {
      await post(path(['capsules', name, action]), {}, control.signal);
      toast(`${name}: ${done}`);
    } catch (error) {
      failed(error);
    }
    drawn = '';
    draw();
  }

  let drawn = '';
  function drawActions(t) {
    const can = !t.state || !app.operates ? '' : t.state === 'STOPPED' || t.state === 'CREATED' ? 'start' : 'stop';
    if (drawn === can + app.operates) return;
    drawn = can + app.operates;
    replace(actions, app.operates && h('a', { class: 'button primary', href: '#/try/' + encodeURIComponent(name) }, icon('start'), 'Try it'),
      can && button('restart', 'Restart', () => operate('restart', 'restarted')),
      can === 'stop' && button('stop', 'Stop', () => operate('stop', 'stopped; it stays so until it is started')),
      can === 'start' && button('start', 'Start', () => operate('start', 'started')));
  }

  let factRows;
  function drawFacts(t) {
    const list = [
      t.pid && ['Process', String(t.pid) + (t.processes > 1 ? ` and ${t.processes - 1} more` : '')], t.started && ['Running for', ago(t.started)],
      t.state && ['Restarts', count(t.restarts)], ['Calls', count(t.calls) + (t.in_flight ? `, ${t.in_flight} now` : '') + (t.waiting ? `, ${t.waiting} waiting` : '')], ['Errors', count(t.errors), t.errors > 0],
      t.calls > 0 && ['Median / 99 %', took(t.p50_ms) + ' / ' + took(t.p99_ms)], t.memory_bytes && ['Memory', bytes(t.memory_bytes)], t.cpu_seconds && ['Processor', t.cpu_seconds.toFixed(1) + ' s'],
      t.next_start && ['Next start', Date.parse(t.next_start) > now() ? 'in ' + span(Date.parse(t.next_start) - now()) : 'now'], t.last_exit && ['Last exit', t.last_exit],
    ].filter(Boolean);
    const keys = list.map(([key]) => key).join();
    if (factRows !== keys) replace(facts, list.map(([key]) => h('div', {}, h('dt', {}, key), h('dd', {}))));
    factRows = keys;
    list.forEach(([, value, bad], i) => { set(facts.children[i].lastChild, value); facts.children[i].classList.toggle('bad', Boolean(bad)); });
  }

  let shownState;
  function draw() {
    const t = app.tools.get(name);
    if (!t) {
      if (app.status && app.live === 'live' && app.tools.size && el.firstChild === whole[0]) replace(el, empty('There is no tool ' + name, 'It was removed, or has another name now.', h('a', { class: 'button', href: '#/tools' }, 'All tools')));
      return;
    }
    if (el.firstChild !== whole[0]) replace(el, whole); // it is back
    const text = JSON.stringify([t.state, t.reason, t.version, t.kind, t.need_login]);
    if (shownState !== text) {
      shownState = text;
      replace(state, badge(t.state), h('span', { class: 'dim' }, [t.version && 'version ' + t.version, t.kind].filter(Boolean).join(' · ')),
        t.reason && t.state !== 'READY' && h('p', { class: 'why' }, plain(t.reason)), t.need_login && command('orla login ' + name));
    }
    drawActions(t);
    drawFacts(t);
    drawBand(t);
    banner.draw();
    for (const one of switches) one.draw();
    drawDetails(t);
  }

  // The band of states, from the first change that is known until now.
  function drawBand(t) {
    if (!t.state || tab !== 'activity') { if (!t.state) replace(band); return; }
    const changes = events.filter((e) => e.msg === 'state').slice(-200);
    if (!changes.length) return;
    const end = now(), least = end - 3600_000;
    const parts = changes.map((e, i) => ({ state: e.to, from: Date.parse(e.time), to: i + 1 < changes.length ? Date.parse(changes[i + 1].time) : end, e })).filter((p) => p.to > least);
    const begin = Math.max(least, parts[0].from), all = Math.max(1, end - begin);
    const picture = svg('svg', { viewBox: '0 0 1000 28', preserveAspectRatio: 'none', role: 'img', 'aria-label': `States of the last ${span(all)}` });
    for (const p of parts) {
      const x = (Math.max(begin, p.from) - begin) / all * 1000, width = Math.max(1.5, (p.to - Math.max(begin, p.from)) / all * 1000);
      const kind = look(p.state)[0], top = { ready: 6, busy: 10, crashed: 0, stopped: 12 }[kind] ?? 6;
      const bar = svg('rect', { x, y: top, width, height: 28 - top, class: 'seg ' + kind });
      bar.append(svg('title', {}, document.createTextNode(`${look(p.state)[1]} from ${clock(p.from)} for ${span(p.to - p.from)}`)));
      picture.append(bar);
    }
    replace(band, picture, h('div', { class: 'scale dim' }, h('span', {}, clock(begin)), h('span', {}, [...new Set(parts.map((p) => look(p.state)[1]))].map((word) => {
      const kind = Object.values({ r: 'READY', b: 'STARTING', c: 'CRASHED', s: 'STOPPED', l: 'RELOADING', p: 'STOPPING', n: 'CREATED' }).map(look).find(([, w]) => w === word)[0];
      return h('span', { class: 'total ' + kind }, h('i', { class: 'swatch ' + kind }), word);
    })), h('span', {}, 'now')));
  }

  let storyDue = false;
  function drawStory() {
    if (tab !== 'activity') return;
    const t = app.tools.get(name);
    if (!events.length) { replace(story, h('li', { class: 'none' }, t && !t.state ? empty('Nothing to tell yet', 'This tool has a process for each call. Its calls are in Calls and Logs.') : empty('Nothing is known yet', 'States, starts, exits and reloads appear here as they happen.'))); return; }
    replace(story, events.slice(-150).reverse().map((e) => {
      const [what, why, kind] = tell(e);
      return h('li', { class: kind }, h('time', { datetime: e.time }, day(e.time)), h('div', {}, h('p', {}, h('strong', {}, what), why && h('span', {}, plain(why))), e.stderr && h('pre', {}, plain(e.stderr))));
    }));
  }

  async function past() {
    try {
      learn(await lines(path(['logs'], { tool: name, n: 400, event: told }), control.signal));
      drawStory();
      draw();
    } catch { /* the tool may be gone: the view says so */ }
  }

  // learn keeps what the log tells of the tool. The log and the stream may both tell it.
  function learn(list) {
    const fresh = list.filter((l) => told.includes(l.msg) && !known.has(l.time + l.msg));
    for (const { n: _, shown: __, ...l } of fresh) { known.add(l.time + l.msg); events.push(l); }
    events.sort((a, b) => (a.time < b.time ? -1 : a.time > b.time ? 1 : 0));
    if (events.length > 600) for (const l of events.splice(0, events.length - 500)) known.delete(l.time + l.msg);
    return fresh.length > 0;
  }

  let listed, switches = [], shownOffers;
  const loadOffers = serial(async () => {
    try { listed = (await get('/v1/tools', control.signal)).tools.filter((o) => o.of === name); } catch (error) { failed(error); return; }
    const text = JSON.stringify(listed);
    if (text === shownOffers) return;
    shownOffers = text;
    switches = listed.map((o) => keepSwitch(app, o.name));
    replace(offers, listed.length ? h('ul', { class: 'offers' }, listed.map((o, i) => h('li', {}, h('div', {}, h('strong', {}, o.name), o.title && h('span', { class: 'dim' }, ' ' + plain(o.title)),
      h('p', {}, plain(o.description || 'It has no description.')), args(o.input_schema), switches[i].el), h('a', { class: 'button', href: `#/try/${encodeURIComponent(name)}/${encodeURIComponent(o.name)}` }, icon('start'), 'Try it'))))
      : empty('It offers nothing now', 'What a capsule offers is known when it has been ready once.'));
    drawDetails(app.tools.get(name) || {});
  });

  function args(schema) {
    const properties = Object.entries(schema?.properties || {});
    if (!properties.length) return h('p', { class: 'dim' }, 'It takes no named arguments.');
    return h('ul', { class: 'args' }, properties.slice(0, 12).map(([key, s]) => h('li', {}, h('code', {}, key), h('span', { class: 'dim' }, [[].concat(s?.type || 'any').join(' or '), (schema.required || []).includes(key) && 'required'].filter(Boolean).join(', ')))),
      properties.length > 12 && h('li', { class: 'dim' }, plural(properties.length - 12, 'more')));
  }

  async function loadManifest() {
    try {
      const { source, text } = await get(path(['manifests', name]), control.signal);
      replace(manifest, h('h3', {}, source), h('pre', { class: 'part', tabindex: '0' }, plain(text)));
    } catch (error) { if (!control.signal.aborted) replace(manifest, h('p', { class: 'dim' }, error.message)); }
  }

  let shownDetails;
  function drawDetails(t) {
    const one = listed?.[0] || {};
    const list = [['Manifest', t.source], ['Kind', t.kind], ['Version', t.version], ['Runs', one.path], ['Interpreter', one.interpreter], ['Service', one.service], ['Timeout of a call', one.timeout], ['Isolation', t.isolation || 'none'], ['Limits', t.limits || 'none'],
      ['Login', t.login], ['Failures in a row', t.state && count(t.failures)], ['Last exit', t.last_exit], ['Stopped manually', t.held && 'yes: it stays stopped until it is started']].filter(([, v]) => v);
    const text = JSON.stringify(list);
    if (text === shownDetails) return;
    shownDetails = text;
    replace(details, pairs(list));
  }

  show(tab);
  return {
    el, title: name, params: query(),
    change(change) { draw(); if (listed && change.tools?.some((t) => t.name === name) && tab === 'offers') loadOffers(); },
    lines(batch) {
      panel.add(batch);
      if (!learn(batch.lines) || storyDue) return;
      storyDue = true;
      requestAnimationFrame(() => { storyDue = false; drawStory(); const t = app.tools.get(name); if (t) drawBand(t); });
    },
    live(on, query) { if (on) { panel.live(query); past(); } },
    tick: draw,
    leave() { control.abort(); },
  };
}

// tell says in words what a line of the log says: what, why, and how it looks.
function tell(e) {
  switch (e.msg) {
    case 'state': return [look(e.to)[1], [e.reason, e.lasted_ms > 0 && e.from !== 'CREATED' && `after ${took(e.lasted_ms)} ${{ READY: 'of being ready', STARTING: 'of starting', CRASHED: 'of pause', RELOADING: 'of reloading', STOPPED: 'of being stopped', STOPPING: 'of stopping' }[e.from] || ''}`].filter(Boolean).join(', '), look(e.to)[0]];
    case 'crashed; waiting for a change': return ['Stopped', 'it failed too often, and waits for a change of its files', 'crashed'];
    case 'started': return ['Process started', 'pid ' + e.pid, 'note'];
    case 'ended': return ['Process ended', [e.exit, 'pid ' + e.pid].filter(Boolean).join(', '), 'note'];
    case 'operator request': return ['A person asked', e.reason, 'note'];
    case 'created': return ['Served', ['version ' + e.version, e.source].join(', '), 'note'];
    case 'offers': return ['Offers changed', plural([].concat(e.tools || []).length, 'tool'), 'note'];
  }
  return [e.msg[0].toUpperCase() + e.msg.slice(1), e.reason || e.err || e.step || '', 'note'];
}
