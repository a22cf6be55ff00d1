// Live lines of the log, of some tools or of all. Orla filters, so that a rare line is not lost among others.

import { lines, path, now } from './api.js';
import { h, set, clock, day, failed, plain, count, button, replace, plural, icon } from './dom.js';
import { List } from './list.js';

const most = 5000; // lines that are kept
const few = 50; // tools that are offered at a time

// textOf is a line for people: what a tool wrote, or the message with its keys.
export function textOf(line) {
  if (line.msg === 'stderr') return plain(String(line.text));
  const parts = [];
  for (const [key, value] of Object.entries(line)) {
    if (!['time', 'level', 'msg', 'tool', 'stderr'].includes(key)) parts.push(key + '=' + (typeof value === 'string' ? (/[\s"=]/.test(value) || !value ? JSON.stringify(value) : value) : JSON.stringify(value)));
  }
  return plain(line.msg + (parts.length ? '  ' + parts.join(' ') : ''));
}

// logPanel makes the panel. changed is called when Orla is to be asked for other lines: those of query(). asked returns
// the same with the tools.
export function logPanel({ withTool, changed, asked }) {
  let kept = [], paused = null, missing = 0, n = 0, chosen = null, had = new Set(), newest = '', until = 0, of = '', turn = 0;
  const search = h('input', { type: 'search', placeholder: 'Filter lines', 'aria-label': 'Filter lines', maxlength: '200', oninput: soon });
  const level = h('select', { 'aria-label': 'Level', onchange: changed }, ['debug', 'info', 'warn', 'error'].map((l) => h('option', { value: l, selected: l === 'info' }, { debug: 'All levels', info: 'info and above', warn: 'warn and above', error: 'error and above' }[l])));
  const which = h('select', { 'aria-label': 'Stream', onchange: () => { draw(); changed(); } }, h('option', { value: '' }, 'Tool and Orla'), h('option', { value: 'stderr' }, 'stderr only'), h('option', { value: 'orla' }, 'Orla only'));
  const when = h('select', { 'aria-label': 'When', onchange: past }, [['', 'Live'], ['3600', 'Last hour'], ['86400', 'Last day'], ['604800', 'Last week']].map(([value, text]) => h('option', { value }, text)));
  const hold = button('pause', 'Pause', () => {
    turn++;
    paused = paused ? null : kept.slice();
    when.value = '';
    set(hold.lastChild, paused ? 'Continue' : 'Pause');
    hold.setAttribute('aria-pressed', String(Boolean(paused)));
    draw();
  }, { 'aria-pressed': 'false' });
  const info = h('span', { class: 'dim info', role: 'status' });
  const detail = h('div', { class: 'detail', hidden: true });
  const list = new List({ row, key: (l) => l.n, label: 'Lines of the log', height: 22, follow: true });
  list.el.classList.add('log');
  list.el.addEventListener('scroll', () => { down.hidden = list.atEnd; });
  const down = h('button', { type: 'button', class: 'down', hidden: true, onclick: () => { list.end(); down.hidden = true; } }, 'To the newest line');
  const el = h('div', { class: 'logs' }, h('div', { class: 'bar' }, search, level, which, when, hold, info), h('div', { class: 'frame' }, list.el, down), detail);

  function row(line) {
    const own = line.msg === 'stderr';
    return h('div', { class: 'line ' + (own ? 'own' : 'orla') + ' ' + line.level + (chosen === line.n ? ' chosen' : ''), role: 'listitem', onclick: () => choose(line) },
      h('time', {}, line.old ? day(line.time) : clock(line.time, true)), !own && h('b', { class: 'lvl' }, line.level), withTool && line.tool && h('i', {}, line.tool), h('span', {}, line.shown));
  }

  function choose(line) {
    chosen = chosen === line.n ? null : line.n;
    detail.hidden = chosen === null;
    const { n: _, shown: __, old: ___, ...rest } = line;
    if (chosen !== null) replace(detail, h('pre', { tabindex: '0' }, plain(line.msg === 'stderr' ? String(line.text) : JSON.stringify(rest, null, 2))));
    draw();
  }

  // past shows lines since a time, as they were then: the newest 5 000, from log_file too, also rotated.
  async function past() {
    if (!when.value) { turn++; if (paused) hold.click(); return; }
    const { lines: _, ...query } = asked(), seconds = when.value, mine = ++turn;
    try {
      const found = await lines(path(['logs'], { ...query, since: new Date(now() - seconds * 1000).toISOString(), n: String(most) }));
      if (mine !== turn) return; // something else was chosen meanwhile
      if (!paused) hold.click();
      when.value = seconds;
      paused = found.map((line) => ({ ...line, shown: textOf(line).slice(0, 2000), n: ++n, old: true }));
      draw();
      list.end();
    } catch (error) { if (mine === turn) { when.value = ''; failed(error); } }
  }

  let typing;
  function soon() {
    clearTimeout(typing);
    typing = setTimeout(() => { if (el.isConnected) { changed(); if (when.value) past(); } }, 200);
  }

  const same = (line) => line.time + line.shown;
  const passes = (line) => which.value !== 'orla' || line.msg !== 'stderr';

  function draw() {
    const shown = (paused || kept).filter(passes);
    list.show(shown);
    set(info, [plural(shown.length, 'line'), paused && !when.value && plural(kept.length ? kept[kept.length - 1].n - (paused[paused.length - 1]?.n || 0) : 0, 'new line'), missing && count(missing) + ' left out: too many at once'].filter(Boolean).join(' · '));
  }

  return {
    el,
    add(batch) {
      missing += batch.dropped || 0;
      for (const line of batch.lines) {
        line.shown = textOf(line).slice(0, 2000);
        const key = same(line);
        if (key === newest) newest = '';
        if (had.has(key) || (newest && Date.parse(line.time) < until)) continue;
        if (newest) { // lines before it did not come
          kept = [];
          had.clear();
          missing = batch.dropped || 0;
          newest = '';
        }
        line.n = ++n;
        kept.push(line);
      }
      if (kept.length > most * 1.2) kept = kept.slice(-most);
      draw();
    },
    // live is called when the stream of a query begins, with the last lines. What is here stays, unless it is of another one, or there are
    // none that join it to what comes. The order of lines tells which are new: a clock may be set back.
    live(query) {
      if (query !== of) { kept = []; missing = 0; }
      of = query;
      const last = kept.slice(-1000);
      had = new Set(last.map(same));
      newest = last.length ? same(last[last.length - 1]) : '';
      until = Math.min(Date.parse(last[last.length - 1]?.time) || 0, now());
      draw();
    },
    query: () => ({ lines: 500, grep: search.value.trim(), level: level.value === 'debug' ? '' : level.value, stream: which.value === 'stderr' ? 'stderr' : '' }),
    focus: () => list.el.focus(),
  };
}

// logsView shows the log of the tools that are chosen, or of all.
export function logsView(app, ...names) {
  const chosen = new Set(names.filter(Boolean).slice(0, 60));
  const panel = logPanel({ withTool: true, changed: watch, asked: query });
  const marks = h('ul', { class: 'marks', 'aria-label': 'Tools whose lines are shown' });
  const offered = h('datalist', { id: 'offered' });
  const pick = h('input', { type: 'search', list: 'offered', 'aria-label': 'Add a tool', maxlength: '200', onchange: add, oninput: (e) => { offer(); if (e.inputType === undefined || e.inputType === 'insertReplacementText') add(); } });
  const el = h('section', { class: 'view fill' }, h('div', { class: 'top' }, h('h1', {}, 'Logs'), h('div', { class: 'picked' }, marks, pick, offered)), panel.el);

  function query() { return { ...panel.query(), tool: [...chosen] }; }
  function watch() { app.watch(query()); }

  // add chooses the tool that is named, by what was typed or by what was picked of the list.
  function add() {
    if (!app.tools.has(pick.value) || chosen.has(pick.value)) return;
    chosen.add(pick.value);
    pick.value = '';
    move();
  }

  // offer lists tools whose names have what was typed.
  function offer() {
    const typed = pick.value.toLowerCase(), names = [...app.tools.keys()].filter((name) => !chosen.has(name) && name.toLowerCase().includes(typed)).sort().slice(0, few);
    const text = JSON.stringify(names);
    if (text === listed) return;
    listed = text;
    replace(offered, names.map((value) => h('option', { value })));
  }

  function move() {
    history.replaceState(null, '', '#/logs' + [...chosen].map((name) => '/' + encodeURIComponent(name)).join(''));
    mark();
    watch();
  }

  let listed;
  function mark() {
    pick.placeholder = chosen.size ? 'Add a tool' : 'All tools';
    offer();
    replace(marks, [...chosen].map((name) => h('li', {}, h('a', { href: '#/tool/' + encodeURIComponent(name) }, name), h('button', { type: 'button', class: 'quiet', 'aria-label': 'Without ' + name, onclick: () => { chosen.delete(name); move(); pick.focus(); } }, icon('close')))));
  }
  mark();
  return {
    el, title: 'Logs', params: query(), change: offer, lines: panel.add,
    live(on, query) { if (on) panel.live(query); },
  };
}
