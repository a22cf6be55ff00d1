// The audit log: its last lines, and whether its chain is whole.

import { get, post, serial } from './api.js';
import { h, replace, empty, failed, day, took, bytes, button, plural, shape, command, count, heading, searchBox } from './dom.js';

const small = 8 << 20; // a file of so many bytes is checked without being asked

export function auditView(app) {
  const control = new AbortController();
  let log = null, report = null, checking = false, words = '';
  const totals = h('p', { class: 'totals' }), result = h('div', { class: 'result', role: 'status' }), body = h('div', {});
  const check = button('approvals', 'Check the chain', verify, { hidden: true });
  const search = h('input', { type: 'search', placeholder: 'Search lines', 'aria-label': 'Search lines', oninput: () => { words = search.value.trim().toLowerCase(); draw(); } });
  const controls = h('div', { class: 'controls', hidden: true }, searchBox(search), check);
  const el = h('section', { class: 'view' }, heading('Audit', totals, controls), result, body);

  const load = serial(async () => {
    try {
      log = await get('/v1/audit?n=500', control.signal);
      draw();
      if (!report && !checking && log.path && log.path !== 'journald' && log.bytes <= small) verify();
    } catch (error) { if (!control.signal.aborted) { failed(error); replace(body, empty('The audit log cannot be read', error.message)); } }
  });

  async function verify() {
    checking = check.disabled = true;
    replace(result, h('p', { class: 'dim' }, 'Reading the whole file.'));
    try {
      report = await post('/v1/audit/verify', {}, control.signal);
      drawReport();
    } catch (error) { if (!control.signal.aborted) { replace(result); failed(error); } }
    checking = check.disabled = false;
  }

  function drawReport() {
    const r = report, ok = r.whole;
    replace(result, h('div', { class: 'banner ' + (ok ? 'good' : 'bad') }, shape(ok ? 'ready' : 'crashed'), h('p', {}, h('span', {}, ok ? `The chain is whole: ${plural(r.lines, 'line')}, numbers ${count(r.first)} to ${count(r.last)}.` : 'The audit log is not as Orla wrote it.'),
      r.signed ? h('span', { class: 'more' }, `Signed up to number ${count(r.signed)}, ${day(r.signed_at)}; ${r.unsigned ? plural(r.unsigned, 'line') + ' after it not yet.' : 'that is all.'}`) : h('span', { class: 'more' }, 'No head is signed yet.'))),
    (r.findings.length > 0 || r.notes.length > 0) && h('ul', { class: 'findings' }, r.findings.map((f) => h('li', { class: 'bad' }, f)), r.more_findings && h('li', { class: 'bad' }, `and ${plural(r.more_findings, 'more finding')}`), r.notes.map((n) => h('li', {}, n))));
  }

  const texts = { start: 'Orla began to write', head: 'Orla signed the chain', torn: 'The line before was cut in a write', gap: 'Lines were missing or changed at a start', lost: 'Calls could not be recorded' };

  function draw() {
    controls.hidden = check.hidden = !log.path || log.path === 'journal';
    if (!log.path) { replace(totals, 'there is none'); replace(body, empty('There is no audit log', 'With audit_log in orla.yaml, Orla records each call with the rule that decided, in a file that shows any change. docs/AUDIT.md says more.', h('pre', { class: 'command' }, 'audit_log: audit.log'))); return; }
    if (log.path === 'journal') { replace(totals, 'in the journal'); replace(body, empty('The audit log is in the journal', 'This checks it:', command('journalctl -t orla-audit _UID="$(id -u orla)" -o cat | orla audit verify -'))); return; }
    replace(totals, h('code', {}, log.path), h('span', {}, bytes(log.bytes)), log.error && h('span', { class: 'bad' }, 'it cannot be written: ' + log.error));
    const lines = log.lines.filter((l) => !words || `${l.caller || ''} ${l.tool || ''} ${l.verdict || ''} ${l.outcome || ''} ${l.rule || ''} ${l.approval || ''} ${l.decider || ''} ${l.event} ${l.seq}`.toLowerCase().includes(words)).reverse();
    replace(body, lines.length ? h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Lines of the audit log' }, h('table', { class: 'plain' }, h('thead', {}, h('tr', {}, ['Number', 'Time', 'Caller', 'Tool', 'Rules', 'Answer', 'Took'].map((t, i) => h('th', { scope: 'col', class: (i === 0 || i === 6) && 'num' }, t)))), h('tbody', {}, lines.slice(0, 500).map(row)))) : empty(words ? 'No line matches' : 'There are no lines yet', words ? 'Another word may find one.' : 'Each call will have one.'));
  }

  function row(l) {
    const start = [h('td', { class: 'num dim' }, count(l.seq)), h('td', {}, h('time', { datetime: l.time }, day(l.time)))];
    if (texts[l.event]) return h('tr', { class: 'note' }, start, h('td', { colspan: '5', class: 'dim' }, texts[l.event] + (l.why ? ': ' + l.why : '')));
    const denied = l.verdict === 'deny', wrong = l.outcome && l.outcome !== 'ok';
    return h('tr', {}, start, h('td', {}, l.caller || l.decider || ''), h('td', {}, l.tool || l.target || ''),
      h('td', { class: denied ? 'bad' : '' }, [l.event === 'call' || l.event === 'request' ? l.verdict : l.event, l.rule, l.event !== 'call' && l.why, l.approval].filter(Boolean).join(' · ')), h('td', { class: wrong ? 'bad' : '' }, l.outcome || ''), h('td', { class: 'num' }, l.duration_ms ? took(l.duration_ms) : ''));
  }

  load();
  let due = false;
  const soon = () => { if (!due) { due = true; setTimeout(() => { due = false; if (!control.signal.aborted) load(); }, 1000); } };
  return { el, title: 'Audit', params: { lines: 0, event: ['call', 'an approval was decided', 'a definition was accepted'] }, lines: soon, live(on) { if (on) soon(); }, leave: () => control.abort() };
}
