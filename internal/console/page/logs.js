// Live lines of the log: filter, level, stream, pause.

import { h, set, clock, plain, count, button, replace, plural } from './dom.js';
import { List } from './list.js';

const most = 5000; // lines that are kept
const levels = ['debug', 'info', 'warn', 'error', 'fatal'];

// textOf is a line for people: what a tool wrote, or the message with its keys.
export function textOf(line) {
  if (line.msg === 'stderr') return plain(String(line.text));
  const parts = [];
  for (const [key, value] of Object.entries(line)) {
    if (!['time', 'level', 'msg', 'tool', 'stderr'].includes(key)) parts.push(key + '=' + (typeof value === 'string' ? (/[\s"=]/.test(value) || !value ? JSON.stringify(value) : value) : JSON.stringify(value)));
  }
  return plain(line.msg + (parts.length ? '  ' + parts.join(' ') : ''));
}

export function logPanel({ withTool }) {
  let kept = [], paused = null, missing = 0, n = 0, chosen = null;
  const search = h('input', { type: 'search', placeholder: 'Filter lines', 'aria-label': 'Filter lines', oninput: draw });
  const level = h('select', { 'aria-label': 'Level', onchange: draw }, ['debug', 'info', 'warn', 'error'].map((l) => h('option', { value: l, selected: l === 'info' }, { debug: 'All levels', info: 'info and above', warn: 'warn and above', error: 'error and above' }[l])));
  const which = h('select', { 'aria-label': 'Stream', onchange: draw }, h('option', { value: '' }, 'Tool and Orla'), h('option', { value: 'stderr' }, 'stderr only'), h('option', { value: 'orla' }, 'Orla only'));
  const hold = button('pause', 'Pause', () => {
    paused = paused ? null : kept.slice();
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
  const el = h('div', { class: 'logs' }, h('div', { class: 'bar' }, search, level, which, hold, info), h('div', { class: 'frame' }, list.el, down), detail);

  function row(line) {
    const own = line.msg === 'stderr';
    return h('div', { class: 'line ' + (own ? 'own' : 'orla') + ' ' + line.level + (chosen === line.n ? ' chosen' : ''), role: 'listitem', onclick: () => choose(line) },
      h('time', {}, clock(line.time, true)), !own && h('b', { class: 'lvl' }, line.level), withTool && line.tool && h('i', {}, line.tool), h('span', {}, line.shown));
  }

  function choose(line) {
    chosen = chosen === line.n ? null : line.n;
    detail.hidden = chosen === null;
    const { n: _, shown: __, low: ___, ...rest } = line;
    if (chosen !== null) replace(detail, h('pre', { tabindex: '0' }, plain(line.msg === 'stderr' ? String(line.text) : JSON.stringify(rest, null, 2))));
    draw();
  }

  function passes(line) {
    const word = search.value.trim().toLowerCase();
    return levels.indexOf(line.level) >= levels.indexOf(level.value)
      && (which.value !== 'stderr' || line.msg === 'stderr') && (which.value !== 'orla' || line.msg !== 'stderr') && (!word || line.low.includes(word));
  }

  function draw() {
    const shown = (paused || kept).filter(passes);
    list.show(shown);
    set(info, [plural(shown.length, 'line'), paused && plural(kept.length ? kept[kept.length - 1].n - (paused[paused.length - 1]?.n || 0) : 0, 'new line'), missing && count(missing) + ' left out: too many at once'].filter(Boolean).join(' · '));
  }

  return {
    el,
    add(batch) {
      missing += batch.dropped || 0;
      for (const line of batch.lines) {
        line.n = ++n;
        line.shown = textOf(line).slice(0, 2000);
        line.low = (line.shown + ' ' + (line.tool || '')).toLowerCase();
        kept.push(line);
      }
      if (kept.length > most * 1.2) kept = kept.slice(-most);
      draw();
    },
    clear() { kept = []; draw(); },
    focus: () => list.el.focus(),
  };
}
