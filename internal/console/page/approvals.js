// Calls that wait for a person. This page only shows them: what decides is a command that another user than Orla's runs.

import { get, path } from './api.js';
import { h, set, replace, empty, failed, span, day, command, shape, bytes, plural } from './dom.js';

const looks = { Pending: ['busy', 'Waits'], Approved: ['ready', 'Approved'], Denied: ['crashed', 'Denied'], Expired: ['stopped', 'Expired'] };

export function approvalsView(app) {
  const control = new AbortController();
  let records = null, waiting = -1, due = false;
  const open = new Map(); // the details that were loaded, by id
  const totals = h('p', { class: 'totals' });
  const body = h('div', { class: 'cards' });
  const el = h('section', { class: 'view' }, h('div', { class: 'top' }, h('div', {}, h('h1', {}, 'Approvals'), totals)), body);

  async function load() {
    try {
      records = (await get(path(['approvals']), control.signal)).approvals;
      await Promise.all(records.filter((r) => r.phase === 'Pending' && !open.has(r.id)).slice(0, 20).map(async (r) => open.set(r.id, await get(path(['approvals', r.id]), control.signal))));
      draw();
    } catch (error) { if (!control.signal.aborted) failed(error); }
  }

  function soon() {
    if (due) return;
    due = true;
    setTimeout(() => { due = false; if (!control.signal.aborted) load(); }, 50);
  }

  function draw() {
    if (!records) return;
    const pending = records.filter((r) => r.phase === 'Pending');
    replace(totals, pending.length ? plural(pending.length, 'call') + (pending.length === 1 ? ' waits' : ' wait') : 'nothing waits');
    if (!records.length) {
      replace(body, empty('No call has needed an approval', 'A rule with require_approval makes calls wait for a person. docs/GOVERNANCE.md says how to write one.'));
      return;
    }
    setTimeout(tick);
    replace(body, [...pending, ...records.filter((r) => r.phase !== 'Pending').reverse().slice(0, 100)].map(card));
  }

  function card(r) {
    const [kind, word] = looks[r.phase] || ['stopped', r.phase];
    const full = open.get(r.id);
    const left = h('span', { class: 'left', 'data-until': r.expires_at });
    return h('article', { class: 'item' + (r.phase === 'Pending' ? ' waits' : ' past') },
      h('h2', {}, h('span', { class: 'badge ' + kind }, shape(kind), h('span', {}, word)), r.tool, h('small', { class: 'dim' }, [r.operation_class, 'by ' + r.caller, r.agent && 'for ' + r.agent].filter(Boolean).join(' · '))),
      h('dl', { class: 'details' }, [['Asked', day(r.created_at)], r.phase === 'Pending' && ['Time left', left], r.why && ['Why', r.why], r.rule && ['Rule', r.rule], ['May decide', r.approvers.join(', ')], r.decided_by && ['Decided by', `${r.decided_by}, ${r.decided_how}, ${day(r.decided_at)}`], r.reason && ['Reason', r.reason], r.used_at && ['Used', day(r.used_at)], ['Record', r.id]].filter(Boolean).map(([key, value]) => [h('dt', {}, key), h('dd', {}, value)])),
      full?.arguments !== undefined && h('div', { class: 'part' }, h('h3', {}, `Arguments, ${bytes(r.arguments_bytes)}`), h('pre', { tabindex: '0' }, JSON.stringify(full.arguments, null, 2).slice(0, 100_000))),
      full?.last_approved && h('div', { class: 'part' }, h('h3', {}, `Since ${full.last_approved.id}, which ${full.last_approved.decided_by} approved`), full.last_approved.changes.length ? h('ul', { class: 'diff' }, full.last_approved.changes.map((c) => h('li', {}, h('code', {}, c.path || 'all'), c.was !== undefined && h('del', {}, JSON.stringify(c.was)), c.is !== undefined && h('ins', {}, JSON.stringify(c.is))))) : h('p', { class: 'dim' }, 'Nothing differs.')),
      r.phase === 'Pending' && h('div', { class: 'decide' }, h('p', {}, 'This page cannot decide: any program of this user could do the same. To decide, run as root, or as who may:'), command(`sudo orla approvals approve ${r.id}`), command(`orla approvals deny ${r.id}`)));
  }

  function tick() {
    for (const left of body.querySelectorAll('[data-until]')) set(left, span(Date.parse(left.dataset.until) - Date.now()));
  }

  load();
  return {
    el, title: 'Approvals', params: { lines: 0, event: ['a call needs an approval', 'an approval was decided', 'an approval was extended'] },
    change() { const now = app.status?.approvals_waiting || 0; if (now !== waiting) { waiting = now; soon(); } },
    lines(batch) { for (const l of batch.lines) open.delete(l.approval); soon(); },
    tick() { tick(); if (records?.some((r) => r.phase === 'Pending' && Date.parse(r.expires_at) < Date.now())) soon(); },
    leave: () => control.abort(),
  };
}
