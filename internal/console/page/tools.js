// The table of orla status.

import { h, set, replace, badge, shape, look, ago, bytes, count, took, plural, empty, heading, searchBox } from './dom.js';
import { List } from './list.js';

const rank = { CRASHED: 0, STARTING: 1, RELOADING: 1, STOPPING: 1, STOPPED: 2, CREATED: 3, READY: 4 };
const filters = [
  ['all', 'All', () => true],
  ['trouble', 'With problems', (t) => t.state === 'CRASHED' || t.state === 'STOPPED' || t.need_login || t.failures > 0],
  ['live', 'Capsules', (t) => Boolean(t.state)],
];
let filter = 'all', words = '', order = 'name'; // they last while the page is open

const weight = ['crashed', 'busy', 'stopped', 'ready', 'simple'];
const columns = [
  ['name', 'Tool', 'name'], ['state', 'State', 'state'], ['since', 'For', 'num'], ['restarts', 'Restarts', 'num'], ['calls', 'Calls', 'num'],
  ['errors', 'Errors', 'num'], ['p50_ms', 'Median', 'num'], ['p99_ms', '99 %', 'num'], ['memory_bytes', 'Memory', 'num'],
];

export function toolsView(app) {
  const totals = h('p', { class: 'totals' });
  const trouble = h('div', {});
  const search = h('input', { type: 'search', placeholder: 'Search tools', 'aria-label': 'Search tools', value: words, oninput: () => { words = search.value; draw(); } });
  const chips = filters.map(([name, text]) => h('button', { type: 'button', class: 'chip', 'aria-pressed': String(filter === name), onclick: () => {
    filter = name;
    chips.forEach((c, i) => c.setAttribute('aria-pressed', String(filters[i][0] === name)));
    draw();
  } }, text));
  const heads = h('div', { class: 'tr head', role: 'row', 'aria-rowindex': '1' }, columns.map(([key, text, kind]) => h('span', { role: 'columnheader', class: kind + ' c-' + key, 'aria-sort': order === key ? 'ascending' : 'none' },
    h('button', { type: 'button', onclick: () => {
      order = key;
      heads.querySelectorAll('[role=columnheader]').forEach((el, i) => el.setAttribute('aria-sort', columns[i][0] === key ? 'ascending' : 'none'));
      draw();
    } }, text))));
  const list = new List({ row, key: (t) => t.name, label: 'Tools', height: 46, role: 'rowgroup' });
  const none = h('div', { hidden: true });
  const table = h('div', { class: 'table tools', role: 'table', 'aria-label': 'Tools' }, heads, list.el);
  const el = h('section', { class: 'view fill' },
    heading('Tools', totals,
      h('div', { class: 'controls' }, searchBox(search), h('div', { class: 'chips', role: 'group', 'aria-label': 'Which tools' }, chips))),
    trouble, table, none);

  function row(t, old) {
    const cells = old ? [...old.children] : columns.map(([key, , kind]) => h('span', { role: 'cell', class: kind + ' c-' + key }));
    const el = old || h('div', { class: 'tr', role: 'row' }, cells);
    if (!old) {
      cells[0].append(h('a', { href: '#/tool/' + encodeURIComponent(t.name) }, t.name), h('small', { class: 'dim' }));
      cells[1].append(badge(t.state), h('small', { class: 'reason' }));
    }
    const [name, state, since, restarts, calls, errors, p50, p99, memory] = cells;
    set(name.lastChild, [t.kind === 'simple' || t.kind === 'capsule' ? '' : t.kind, t.version].filter(Boolean).join(' '));
    if (state.firstChild.dataset.state !== (t.state || '')) state.firstChild.replaceWith(badge(t.state));
    set(state.lastChild, t.state && t.state !== 'READY' ? t.need_login ? 'needs orla login' : t.reason || '' : '');
    state.title = t.reason || '';
    set(since, ago(t.since));
    set(restarts, t.state ? count(t.restarts) : '');
    restarts.classList.toggle('zero', !t.restarts);
    set(calls, count(t.calls));
    calls.classList.toggle('zero', !t.calls);
    set(errors, count(t.errors));
    errors.classList.toggle('zero', !t.errors);
    errors.classList.toggle('bad', t.errors > 0);
    set(p50, t.calls ? took(t.p50_ms) : '');
    set(p99, t.calls ? took(t.p99_ms) : '');
    set(memory, bytes(t.memory_bytes));
    return el;
  }

  function compare(a, b) {
    const by = order === 'state' ? (rank[a.state] ?? 5) - (rank[b.state] ?? 5)
      : order === 'since' ? (Date.parse(b.since) || 0) - (Date.parse(a.since) || 0)
      : order === 'name' ? 0 : (b[order] || 0) - (a[order] || 0);
    return by || (a.name < b.name ? -1 : 1);
  }

  function draw() {
    if (!app.status) return;
    const passes = filters.find(([name]) => name === filter)[2];
    const asked = words.trim().toLowerCase().split(/\s+/);
    const shown = [...app.tools.values()].filter((t) => passes(t) && asked.every((w) => (t.name + ' ' + t.kind + ' ' + (t.state || '') + ' ' + look(t.state)[1]).toLowerCase().includes(w))).sort(compare);
    list.show(shown);
    const kinds = {};
    for (const t of app.tools.values()) { const [kind, word] = look(t.state); (kinds[word] ||= { kind, n: 0 }).n++; }
    replace(totals, plural(app.tools.size, 'tool'), Object.entries(kinds).sort(([, a], [, b]) => weight.indexOf(a.kind) - weight.indexOf(b.kind)).map(([word, { kind, n }]) => h('span', { class: 'total ' + kind }, shape(kind), `${n} ${word.toLowerCase()}`)));
    table.hidden = !shown.length;
    none.hidden = Boolean(shown.length);
    if (!shown.length) {
      replace(none, app.tools.size ? empty('No tool matches', 'Another word, or another filter, may find it.',
        h('button', { type: 'button', onclick: () => { words = search.value = ''; filter = 'all'; chips.forEach((c, i) => c.setAttribute('aria-pressed', String(!i))); draw(); } }, 'Show all'))
        : empty('There are no tools yet', `Put an executable, or a folder with a tool.yaml, into ${app.status.tools_dir}. It appears here by itself.`, h('pre', { class: 'command' }, 'orla new hello --lang python --capsule')));
    }
  }

  let said;
  function drawTrouble() {
    const list = app.status?.problems || [];
    const text = JSON.stringify(list) + app.status?.denying;
    if (text === said) return;
    said = text;
    const open = trouble.querySelector('details')?.open;
    replace(trouble, app.status?.denying && h('div', { class: 'banner bad' }, shape('crashed'), h('p', {}, 'Every call is denied: a rule cannot be read, or names nothing. The problems below name it.')),
      list.length > 0 && h('details', { class: 'problems', open: open ?? list.length <= 3 }, h('summary', {}, shape('crashed'), plural(list.length, 'problem') + ' in the folders of tools'),
        h('ul', {}, list.map((p) => h('li', {}, h('strong', {}, p.severity === 'error' ? 'Not served' : 'Warning'), h('code', {}, p.path), p.messages.map((m) => h('p', {}, m.startsWith(p.path) ? m.slice(p.path.length).replace(/^:\d+:\d+:\s*/, (at) => 'line ' + at.split(':')[1] + ': ') : m)))))));
  }
  return { el, title: 'Tools', change() { draw(); drawTrouble(); }, tick: () => { list.fresh = true; list.soon(); } };
}
