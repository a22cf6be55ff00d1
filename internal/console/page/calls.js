// The last calls of all tools.

import { now } from './api.js';
import { h, replace, clock, took, bytes, plural, empty, shape, button, svg, heading, searchBox } from './dom.js';
import { List } from './list.js';
import { Kept, keptBanner, keepSwitch, keptOf } from './kept.js';
import { indented, visible } from './json.js';

const most = 2000;

// Calls keeps the last calls that the stream tells of. A stream that begins again tells of calls that are here already; if it tells
// of none of them, others are missing in between, and those that are here go.
export class Calls {
  constructor() { this.list = []; this.ids = new Set(); this.n = 0; this.joined = true; }
  live() { this.joined = false; }
  add(batch) {
    for (const line of batch.lines) {
      if (line.msg !== 'call') continue;
      const here = this.ids.has(line.call_id);
      if (!here && !this.joined) { this.list = []; this.ids.clear(); }
      this.joined = true;
      if (here) continue;
      this.ids.add(line.call_id);
      this.list.push(Object.assign(line, { n: ++this.n }));
    }
    for (const { call_id } of this.list.splice(0, Math.max(0, this.list.length - most))) this.ids.delete(call_id);
  }
}

export const callParams = { lines: 500, event: 'call' };

export function callsView(app) {
  const calls = new Calls(), leaving = new AbortController();
  const kept = new Kept(app, leaving.signal, draw), banner = keptBanner(app);
  let words = '', failedOnly = false, chosen = null, heard = false;
  const totals = h('p', { class: 'totals' });
  const search = h('input', { type: 'search', placeholder: 'Search calls', 'aria-label': 'Search calls', oninput: () => { words = search.value.toLowerCase(); draw(); } });
  const only = h('button', { type: 'button', class: 'chip', 'aria-pressed': 'false', onclick: () => { failedOnly = !failedOnly; only.setAttribute('aria-pressed', String(failedOnly)); draw(); } }, 'Failed only');
  const list = new List({ row, key: (c) => c.n, label: 'Calls', height: 40, role: 'rowgroup' });
  const table = h('div', { class: 'table calls', role: 'table', 'aria-label': 'Calls' }, h('div', { class: 'tr head', role: 'row', 'aria-rowindex': '1' }, [['Result', ''], ['Time', ''], ['Tool', 'c-name'], ['Caller', ''], ['Took', 'num'], ['Answer', 'num']].map(([text, kind]) => h('span', { role: 'columnheader', class: kind }, text))), list.el);
  const chart = h('div', { class: 'chart' });
  const detail = h('div', { class: 'detail', hidden: true });
  const none = h('div', { hidden: true });
  const el = h('section', { class: 'view fill' }, heading('Calls', totals, h('div', { class: 'controls' }, searchBox(search), h('div', { class: 'chips' }, only))), banner.el, chart, table, detail, none);

  function row(c) {
    const ok = c.ok !== false, args = kept.of(c.call_id)?.arguments;
    return h('div', { class: 'tr' + (chosen === c.n ? ' chosen' : ''), role: 'row', onclick: () => choose(c) },
      h('span', { role: 'cell', class: ok ? 'ok' : 'bad' }, shape(ok ? 'ready' : 'crashed'), h('b', {}, ok ? 'ok' : c.code || 'failed')),
      h('span', { role: 'cell' }, clock(c.time, true)), h('span', { role: 'cell', class: 'c-name' }, h('button', { type: 'button', class: 'link', onclick: (e) => { e.stopPropagation(); choose(c); } }, c.tool), args && h('code', { class: 'dim' }, visible(args.slice(0, 300).replace(/\s*[\n\r\t]\s*/g, ' ')))),
      h('span', { role: 'cell' }, c.caller), h('span', { role: 'cell', class: 'num' }, took(c.duration_ms)), h('span', { role: 'cell', class: 'num' }, bytes(c.response_bytes)));
  }

  function choose(c) {
    chosen = chosen === c.n ? null : c.n;
    draw();
  }

  // The call that is chosen. It is drawn again only if something of it is new, so that a selection in it lasts.
  let shownDetail = '', keeps = null;
  function drawDetail() {
    const c = chosen !== null && calls.list.find((one) => one.n === chosen);
    detail.hidden = !c;
    const known = c && kept.of(c.call_id), text = known?.arguments;
    const key = c ? JSON.stringify([c.n, known?.n, Boolean(keptOf(app, c.tool)), app.operates]) : '';
    keeps?.draw();
    if (key === shownDetail) return;
    shownDetail = key;
    if (!c) return;
    const { n: _, ...rest } = c;
    const of = [...app.tools.values()].find((t) => t.name === c.tool) || [...app.tools.values()].find((t) => c.tool.startsWith(t.name + '__'));
    keeps = keepSwitch(app, c.tool);
    replace(detail, h('div', { class: 'bar' }, h('strong', {}, c.tool), h('span', { class: 'dim' }, c.call_id),
      of && app.operates && h('a', { class: 'button', href: `#/try/${encodeURIComponent(of.name)}/${encodeURIComponent(c.tool)}`, onclick: () => { app.repeat = text && { tool: c.tool, text }; } }, text ? 'Repeat' : 'Call it again'),
      of && h('a', { class: 'button', href: '#/tool/' + encodeURIComponent(of.name) + '/logs' }, 'Its log'), keeps.el, button('', 'Close', () => choose(c), { class: 'quiet' })),
    c.reason && h('p', { class: 'why' }, c.reason),
    text ? [h('h3', {}, 'Arguments'), h('pre', { class: 'arguments', tabindex: '0' }, indented(text))] : h('p', { class: 'dim' }, known ? `Its arguments have ${bytes(known.bytes)}, more than are kept.` : !app.operates && keptOf(app, c.tool) ? 'Operators see its arguments.' : 'Its arguments are not kept.'),
    h('pre', { tabindex: '0' }, JSON.stringify(rest, null, 2)));
  }

  function draw() {
    const asked = words.trim().split(/\s+/);
    const shown = calls.list.filter((c) => (!failedOnly || c.ok === false) && asked.every((w) => `${c.tool} ${c.caller} ${c.code || ''} ${c.call_id} ${c.session || ''}`.toLowerCase().includes(w))).reverse();
    list.show(shown);
    const bad = calls.list.filter((c) => c.ok === false).length;
    replace(totals, calls.list.length ? `the last ${plural(calls.list.length, 'call')}` : '', bad > 0 && h('span', { class: 'total crashed' }, shape('crashed'), `${bad} failed`));
    table.hidden = chart.hidden = !shown.length;
    none.hidden = Boolean(shown.length) || !heard;
    if (!shown.length) replace(none, calls.list.length ? empty('No call matches', 'Another word may find it.') : empty('There was no call yet', 'Connect an MCP client to ' + (app.status?.url || 'Orla') + ', or try a tool here. Each call appears with what it took.', h('a', { class: 'button', href: '#/tools' }, 'All tools')));
    drawChart();
    drawDetail();
  }

  // Calls over the time that the list covers, the failed ones below in another colour and hatched by their place.
  function drawChart() {
    const all = calls.list;
    if (all.length < 2) { replace(chart); return; }
    const begin = Date.parse(all[0].time), end = Math.max(now(), begin + 1000), bins = 60;
    const good = new Array(bins).fill(0), bad = new Array(bins).fill(0);
    for (const c of all) (c.ok === false ? bad : good)[Math.min(bins - 1, Math.floor((Date.parse(c.time) - begin) / (end - begin) * bins))]++;
    const top = Math.max(1, ...good, ...bad);
    const picture = svg('svg', { viewBox: `0 0 ${bins * 10} 48`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `Calls since ${clock(begin)}, at most ${top} in one bar` });
    for (let i = 0; i < bins; i++) {
      if (good[i]) picture.append(svg('rect', { x: i * 10 + 1, width: 8, y: 34 - Math.max(1.5, good[i] / top * 32), height: Math.max(1.5, good[i] / top * 32), class: 'bar-ok' }));
      if (bad[i]) picture.append(svg('rect', { x: i * 10 + 1, width: 8, y: 36, height: Math.max(2, bad[i] / top * 12), class: 'bar-bad' }));
    }
    replace(chart, picture, h('div', { class: 'scale dim' }, h('span', {}, clock(begin)), h('span', {}, 'now')));
  }

  let due = false;
  return {
    el, title: 'Calls', params: callParams,
    change() { banner.draw(); kept.look(); drawDetail(); if (!heard && app.live === 'live') setTimeout(() => { heard = true; draw(); }, 300); },
    lines(batch) {
      heard = true;
      calls.add(batch);
      kept.called(batch.lines);
      if (due) return;
      due = true;
      requestAnimationFrame(() => { due = false; draw(); });
    },
    live(on) { if (on) calls.live(); },
    tick() { banner.draw(); drawDetail(); },
    leave() { leaving.abort(); },
  };
}
