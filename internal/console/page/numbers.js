// The numbers of the last hour. Orla has a sample only for a time in which something happened.

import { get } from './api.js';
import { h, replace, set, svg, empty, failed, clock, took, bytes, count, plural, heading } from './dom.js';

const hour = 3600_000, wide = 720;

export function numbersView(app) {
  const control = new AbortController();
  let numbers = null;
  const totals = h('p', { class: 'totals' });
  const charts = h('div', { class: 'charts' }), body = h('div', {});
  const el = h('section', { class: 'view' }, heading('Numbers', totals), charts, body);

  async function load() {
    try {
      numbers = await get('/v1/numbers', control.signal);
      draw();
    } catch (error) { if (!control.signal.aborted && app.live === 'live') failed(error); }
  }

  function draw() {
    const now = Date.parse(numbers.now), begin = now - hour;
    const all = numbers.samples.map((s) => ({ ...s, x: (Date.parse(s.at) - begin) / hour * wide })).filter((s) => s.x >= 0);
    const called = all.filter((s) => s.calls);
    const sum = (key) => called.reduce((n, s) => n + (s[key] || 0), 0);
    const calls = sum('calls'), errors = sum('errors');
    replace(totals, h('span', {}, 'the last hour: ' + plural(calls, 'call')), errors > 0 && h('span', { class: 'bad' }, `${count(errors)} failed, ${(errors / calls * 100).toFixed(errors / calls < 0.01 ? 2 : 1)} %`));
    const step = numbers.step_seconds * 1000 / hour * wide;
    const axes = h('div', { class: 'scale dim' }, h('span', {}, clock(begin)), h('span', {}, clock(now - hour / 2)), h('span', {}, 'now'));
    const most = Math.max(0, ...called.map((s) => s.calls)), slow = Math.max(0, ...called.map((s) => s.p99_ms || 0));
    const memory = all.filter((s) => s.memory_bytes || s.orla_bytes), big = Math.max(0, ...memory.map((s) => Math.max(s.memory_bytes || 0, s.orla_bytes || 0)));
    const newest = memory[memory.length - 1] || {}, last = called[called.length - 1] || {};
    replace(charts,
      chart('Calls', `at most ${count(most)} in ${numbers.step_seconds} s`, [['good', 'answered'], ['wrong', 'failed']], called.map((s) => bars(s, step, most)), count(most), axes.cloneNode(true)),
      chart('Latency', last.p50_ms ? `last: median ${took(last.p50_ms)}, 99 % ${took(last.p99_ms)}` : '', [['line1', 'median'], ['line2', '99 %']], [line(called, (s) => s.p99_ms, slow, 'line2', step, true), line(called, (s) => s.p50_ms, slow, 'line1', step, true)], took(slow), axes.cloneNode(true)),
      chart('Memory', newest.at ? `tools ${bytes(newest.memory_bytes) || '0 B'}, Orla ${bytes(newest.orla_bytes) || 'unknown'}` : '', [['line1', 'all tools'], ['line2', 'Orla']], [line(memory, (s) => s.memory_bytes, big, 'line1', step), line(memory, (s) => s.orla_bytes, big, 'line2', step)], bytes(big), axes));
    const list = numbers.tools.map((t) => {
      const one = { name: t.name, calls: 0, errors: 0, took: 0, max: 0, memory: 0, spark: [] };
      for (const s of t.samples) {
        one.calls += s.calls || 0;
        one.errors += s.errors || 0;
        one.took += (s.mean_ms || 0) * (s.calls || 0);
        one.max = Math.max(one.max, s.max_ms || 0);
        one.memory = s.memory_bytes || one.memory;
        one.spark.push({ x: (Date.parse(s.at) - begin) / hour * 120, n: s.calls || 0 });
      }
      return one;
    }).sort((a, b) => b.calls - a.calls || b.memory - a.memory);
    replace(body, list.length ? h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Numbers of each tool' }, h('table', { class: 'plain' }, h('thead', {}, h('tr', {}, ['Tool', 'Calls by minute', 'Calls', 'Errors', 'Mean', 'Longest', 'Memory'].map((t, i) => h('th', { scope: 'col', class: i > 1 && 'num' }, t)))),
      h('tbody', {}, list.slice(0, 200).map((t) => h('tr', {}, h('th', { scope: 'row' }, h('a', { href: '#/tool/' + encodeURIComponent(t.name) }, t.name)), h('td', {}, spark(t)), h('td', { class: 'num' }, count(t.calls)), h('td', { class: 'num' + (t.errors ? ' bad' : '') }, count(t.errors)), h('td', { class: 'num' }, t.calls ? took(t.took / t.calls) : ''), h('td', { class: 'num' }, t.calls ? took(t.max) : ''), h('td', { class: 'num' }, bytes(t.memory))))))) : empty('Nothing was called in the last hour', 'Calls, errors and latency appear here as clients call tools.'));
  }

  function chart(title, note, keys, marks, top, axes) {
    const picture = svg('svg', { viewBox: `0 0 ${wide} 100`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${title} of the last hour; ${note || 'nothing yet'}` });
    for (const y of [0.5, 50, 99.5]) picture.append(svg('path', { d: `M0 ${y}H${wide}`, class: 'grid' }));
    picture.append(...marks.flat().filter(Boolean));
    return h('figure', { class: 'panel' }, h('figcaption', {}, h('h2', {}, title), h('span', { class: 'dim' }, note), h('span', { class: 'keys' }, keys.map(([kind, text]) => h('span', { class: 'key ' + kind }, text)))), h('div', { class: 'plot' }, picture, top && h('span', { class: 'most dim', 'aria-hidden': 'true' }, top)), axes);
  }

  // bars draws a sample: what was answered from the bottom up, and what failed on top of it.
  function bars(s, step, most) {
    const errors = s.errors || 0, good = (s.calls - errors) / most * 96, wrong = errors / most * 96, width = Math.max(1.2, step - 0.5);
    return [good > 0 && svg('rect', { x: s.x, width, y: 99.5 - Math.max(1, good), height: Math.max(1, good), class: 'good' }), wrong > 0 && svg('rect', { x: s.x, width, y: 99.5 - good - Math.max(2, wrong), height: Math.max(2, wrong), class: 'wrong' })];
  }

  // line draws a line, which breaks off where there are no samples if gaps is set.
  function line(list, value, most, kind, step, gaps) {
    let d = '', before = -1e9;
    for (const s of list) {
      const v = value(s);
      if (!v) continue;
      const y = (99.5 - v / most * 94).toFixed(1), x = (s.x + step / 2).toFixed(1);
      d += d && (!gaps || s.x - before < step * 7) ? `L${x} ${y}` : `M${x} ${y}h.1`;
      before = s.x;
    }
    return d && svg('path', { d, class: 'stroke ' + kind, 'vector-effect': 'non-scaling-stroke' });
  }

  function spark(t) {
    const most = Math.max(1, ...t.spark.map((s) => s.n));
    const picture = svg('svg', { viewBox: '0 0 120 22', class: 'spark', 'aria-hidden': 'true' });
    for (const s of t.spark) if (s.n && s.x >= -2) picture.append(svg('rect', { x: Math.max(0, s.x), width: 1.6, y: 22 - Math.max(1.5, s.n / most * 21), height: Math.max(1.5, s.n / most * 21), class: 'good' }));
    return picture;
  }

  load();
  const again = setInterval(load, 10_000);
  set(totals, 'Loading.');
  return { el, title: 'Numbers', leave() { clearInterval(again); control.abort(); } };
}
