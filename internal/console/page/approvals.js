// Calls that wait for a person, and what the person decides: with a passkey, since any program of the same user could be
// this page.

import { get, post, path, now, serial, passing } from './api.js';
import { h, set, replace, empty, failed, toast, span, day, command, shape, bytes, plural, button, rest, heading } from './dom.js';
import { indented, parts, visible } from './json.js';
import { keysPanel } from './keys.js';
import { obstacle, proof, visitor as ask } from './passkey.js';

const looks = { Pending: ['busy', 'Waits'], Approved: ['ready', 'Approved'], Denied: ['crashed', 'Denied'], Expired: ['stopped', 'Expired'] };

// short is a time as Orla writes it, without the parts that are 0.
const short = (ttl) => ttl.replace(/(\D)0s$/, '$1').replace(/(\D)0m$/, '$1');

// What is decided about keeps its place for so long, and a button that moved takes no click for so long, in ms.
const stays = 5000, settles = 500;

// So many of the calls of one caller that wait are shown, the oldest first, and no more of them after so many bytes of arguments and
// input: so no caller has the page for its calls alone. Those about which only the client may decide come last.
const ownCalls = 10, ownBytes = 256 << 10;
const forClient = (r) => r.approvers.every((a) => a === 'client');

// fair returns the records that are shown of those that wait. there are the ids of those that are shown already, and stay.
function fair(pending, there) {
  const callers = new Map(), shown = [];
  for (const r of [...pending.filter((r) => !forClient(r)), ...pending.filter(forClient)]) {
    const of = callers.get(r.caller) || { shown: 0, bytes: 0, full: false };
    callers.set(r.caller, of);
    of.full ||= of.shown >= ownCalls || of.bytes >= ownBytes;
    if (of.full && !there.has(r.id)) continue;
    of.shown++;
    of.bytes += r.arguments_bytes + (r.input_bytes || 0);
    shown.push(r);
  }
  return shown;
}

export function approvalsView(app) {
  const control = new AbortController();
  let records = null, waiting = -1, due = false, visitor = null, retry = 0;
  const open = new Map(); // what is known of those that wait, by id: the record, and the statement that is signed
  const controls = new Map(); // what decides, by id: what somebody types there stays
  const cards = new Map(); // what is drawn, by id: it stays while it shows the same, so that nobody loses their place in it
  const leaving = new Map(); // when those that were decided about leave their places, by id
  const order = new Set(); // the ids of those that wait and are shown: what is there stays before what comes
  const places = new WeakMap(); // where each of the controls is, and since when
  const totals = h('p', { class: 'totals' });
  const body = h('div', { class: 'cards' });
  const others = h('div', { class: 'more dim' });
  const keys = h('div', { class: 'cards' });
  const el = h('section', { class: 'view' }, heading('Approvals', totals), body, keys);
  const loadKeys = keysPanel(keys, control.signal, (next) => { visitor = next; controls.clear(); for (const c of cards.values()) c.shows = ''; draw(); });
  const decides = () => visitor?.roles.includes('approver');

  const load = serial(async () => {
    try {
      if (!visitor) visitor = await ask(control.signal);
      if (decides()) await loadKeys();
      records = (await get(path(['approvals']), control.signal)).approvals;
      const unread = fair(records.filter((r) => r.phase === 'Pending'), order).filter((r) => open.get(r.id)?.record.expires_at !== r.expires_at);
      for (let i = 0; i < unread.length; i += 20) {
        await Promise.all(unread.slice(i, i + 20).map(look));
        if (i + 20 < unread.length) draw();
      }
      for (const id of controls.keys()) if (!records.some((r) => r.id === id && r.phase === 'Pending')) controls.delete(id);
      draw();
    } catch (error) {
      if (control.signal.aborted) return;
      failed(error);
      clearTimeout(retry);
      if (passing(error)) retry = setTimeout(again, 5000);
    }
  });

  // shownOf is a record as it is drawn: what a caller chooses as the text that it is.
  function shownOf(text) {
    const of = parts(text), last = of.last_approved && parts(of.last_approved);
    return { text, record: JSON.parse(text), args: of.arguments && indented(of.arguments), input: of.input && indented(of.input), changes: last && parts(last.changes).map(parts) };
  }

  // look reads what is shown of a record. Who decides is shown the text that is signed.
  async function look(r) {
    try {
      if (!decides()) { open.set(r.id, shownOf(JSON.stringify(await get(path(['approvals', r.id]), control.signal)))); return; }
      const statement = await get(path(['approvals', r.id, 'statement'], { purpose: 'approve' }), control.signal);
      open.set(r.id, { statement, ...shownOf(statement.document) });
    } catch (error) { if (error.status !== 404) throw error; } // it has just gone
  }

  function soon() {
    if (due) return;
    due = true;
    setTimeout(() => { due = false; if (!control.signal.aborted) load(); }, 50);
  }

  // again asks by itself. While there is no stream it does not: all is asked for when it begins.
  const again = () => { if (app.live !== 'lost') soon(); };

  function draw() {
    if (!records) return;
    const pending = records.filter((r) => r.phase === 'Pending');
    replace(totals, pending.length ? plural(pending.length, 'call') + (pending.length === 1 ? ' waits' : ' wait') : 'nothing waits');
    if (!records.length) {
      cards.clear();
      replace(body, empty('No call has needed an approval', 'A rule with the verdict approval_required makes calls wait for a person. docs/GOVERNANCE.md says how to write one.'));
      return;
    }
    setTimeout(tick);
    const focus = document.activeElement, held = [...cards].find(([, c]) => c.el.contains(focus))?.[0], at = Date.now();
    for (const r of records) if (r.phase !== 'Pending' && cards.get(r.id)?.waits) leaving.set(r.id, at + stays);
    for (const [id, until] of leaving) if (until < at) { leaving.delete(id); cards.get(id)?.el.remove(); }
    const known = new Map(records.map((r) => [r.id, r])), more = new Map();
    for (const r of fair(pending, order)) order.add(r.id);
    for (const id of order) if (known.get(id)?.phase !== 'Pending' && !(known.has(id) && leaving.has(id))) order.delete(id);
    for (const r of pending) if (!order.has(r.id)) more.set(r.caller, (more.get(r.caller) || 0) + 1);
    replace(others, [...more].slice(0, 20).map(([caller, n]) => h('p', {}, `${plural(n, 'more call')} of ${visible(caller)} ${n === 1 ? 'waits' : 'wait'}, and ${n === 1 ? 'is' : 'are'} shown when some of these are decided`)));
    arrange([...order].map((id) => known.get(id)), records.filter((r) => r.phase !== 'Pending' && !order.has(r.id)).reverse().slice(0, 100));
    for (const id of open.keys()) if (!cards.has(id)) open.delete(id);
    if (document.activeElement !== focus) (body.contains(focus) ? focus : cards.get(held)?.el)?.focus({ preventScroll: true });
    measure();
  }

  // arrange draws the cards of records in this order, those that wait first. Those that are there and show the same are not touched.
  function arrange(waits, past) {
    const drawn = new Map([...waits, ...past].map((r) => [r.id, kept(r)]));
    const of = (list) => list.map((r) => drawn.get(r.id)), all = new Set([...of(waits), ...(others.firstChild ? [others] : []), ...of(past)]);
    for (const id of cards.keys()) if (!drawn.has(id)) cards.delete(id);
    for (const child of [...body.children]) if (!all.has(child)) child.remove();
    let at = body.firstChild;
    for (const el of all) if (el === at) at = at.nextSibling; else body.insertBefore(el, at);
  }

  // kept is the card of a record: the one that is there, if it shows the same. One that was just decided about keeps its height.
  function kept(r) {
    const seen = open.get(r.id), waits = r.phase === 'Pending', shows = JSON.stringify(r) + (seen ? seen.text : ''), was = cards.get(r.id);
    if (was?.shows !== shows) {
      cards.set(r.id, { shows, seen, waits, el: card(r, seen) });
      if (was && leaving.has(r.id)) Object.assign(cards.get(r.id).el.style, { height: was.el.getBoundingClientRect().height + 'px', overflow: 'hidden' });
      was?.el.replaceWith(cards.get(r.id).el);
    }
    const { el } = cards.get(r.id);
    if (!leaving.has(r.id)) el.removeAttribute('style');
    return el;
  }

  // measure notes which controls have moved.
  function measure() {
    for (const box of controls.values()) {
      const { top, left } = box.getBoundingClientRect(), was = places.get(box);
      if (!was || Math.abs(was.top - top) > 3 || Math.abs(was.left - left) > 3) places.set(box, { top, left, since: performance.now() });
    }
  }

  // settled reports whether a click is meant for where it goes: what is decided by it has not just moved there. A key is meant for
  // what has the focus.
  function settled(event, box) {
    measure();
    return !event.detail || performance.now() - places.get(box).since >= settles;
  }

  // decision is what decides about a record.
  function decision(r) {
    if (!decides()) return h('p', { class: 'dim' }, 'Who decides needs the role approver.');
    if (controls.has(r.id)) return controls.get(r.id);
    const reason = h('input', { type: 'text', maxlength: '900', 'aria-label': 'Reason, for who made the call', placeholder: 'Reason, for who made the call' });
    const ttl = h('select', { 'aria-label': 'How long it is good' }, [['', `for ${short(r.ttl)}`], ['1h', 'for 1 hour'], ['8h', 'for 8 hours'], ['24h', 'for a day']].map(([value, text]) => h('option', { value }, text)));
    const fault = h('p', { class: 'fault', role: 'alert' });
    const signs = h('p', { class: 'dim', role: 'status' });
    const act = async (event, what, said) => {
      if (!settled(event, box)) { toast('This has just moved. Look again, and then click.', true); return; }
      const done = rest(box);
      set(fault, '');
      try {
        const asked = what === 'deny' ? { reason: reason.value } : { ttl: ttl.value };
        const { statement, record, args } = cards.get(r.id).seen; // what is drawn
        asked.digest = record.digest;
        if (what !== 'deny' && (!visitor.alone || !r.approvers.includes('operator'))) {
          set(signs, `Your passkey now signs: ${what} ${visible(r.tool)} ${(args || '').replace(/\s+/g, ' ').slice(0, 120)}`);
          asked.proof = await proof(visitor, statement, what, ttl.value);
        }
        await post(path(['approvals', r.id, what]), asked);
        toast(`${r.tool}: ${said}`);
      } catch (error) {
        set(fault, error.name === 'NotAllowedError' ? 'The passkey was not used. Nothing was decided.' : error.message + (error.hint ? ': ' + error.hint : ''));
        await look(r).catch(failed); // it may be another one by now
      }
      set(signs, '');
      done(fault.textContent);
      soon();
    };
    const needs = !visitor.alone || !r.approvers.includes('operator');
    const blocked = !r.approvers.some((a) => a !== 'client') ? 'The rule lets only the person at the client decide.' : needs ? obstacle(visitor) || (!visitor.passkeys.length && 'To approve here, add a passkey below.') : '';
    const box = h('div', { class: 'decide' },
      h('div', { class: 'bar' }, button('approvals', needs ? 'Approve with a passkey' : 'Approve', (event) => act(event, 'approve', 'approved'), { class: 'primary', disabled: Boolean(blocked) }), ttl,
        button('', 'Wait longer', (event) => { ttl.value ||= '1h'; act(event, 'extend', 'waits longer'); }, { disabled: Boolean(blocked) })),
      h('div', { class: 'bar' }, button('close', 'Deny', (event) => act(event, 'deny', 'denied')), reason), signs, fault,
      blocked && h('p', { class: 'dim' }, blocked), blocked && command(`sudo orla approvals approve ${r.id}`));
    controls.set(r.id, box);
    return box;
  }

  function card(r, seen) {
    const [kind, word] = looks[r.phase] || ['stopped', r.phase];
    const full = seen?.record;
    const left = h('span', { class: 'left', 'data-until': r.expires_at });
    return h('article', { class: 'item' + (r.phase === 'Pending' ? ' waits' : ' past'), tabindex: '-1' },
      h('h2', {}, h('span', { class: 'badge ' + kind }, shape(kind), h('span', {}, word)), visible(r.tool), h('small', { class: 'dim' }, visible([r.operation_class, 'by ' + r.caller, r.agent && 'for ' + r.agent].filter(Boolean).join(' · ')))),
      h('dl', { class: 'details' }, [['Asked', day(r.created_at)], r.phase === 'Pending' && ['Time left', left], r.task && ['Task', r.task], r.why && ['Why', r.why], r.rule && ['Rule', r.rule], ['Runs', r.runs.join(', ')], ['May decide', r.approvers.join(', ')], r.phase === 'Pending' && ['Good for', short(r.ttl) + ' after an approval, unless you choose another time'], r.decided_by && ['Decided by', `${r.decided_by}, ${r.decided_how}, ${day(r.decided_at)}`], r.reason && ['Reason', r.reason], r.used_at && ['Used', day(r.used_at)], ['Record', r.id]].filter(Boolean).map(([key, value]) => [h('dt', {}, key), h('dd', {}, value instanceof Node ? value : visible(value))])),
      full?.arguments !== undefined && h('div', { class: 'part' }, h('h3', {}, `Arguments, ${bytes(r.arguments_bytes)}`), h('pre', { tabindex: '0' }, seen.args)),
      seen?.input && h('div', { class: 'part' }, h('h3', {}, 'Input that the client adds'), h('pre', { tabindex: '0' }, seen.input)),
      full?.last_approved && h('div', { class: 'part' }, h('h3', {}, `Since ${full.last_approved.id}, which ${full.last_approved.decided_by} approved`), full.last_approved.definition !== full.definition && h('p', { class: 'fault' }, 'The tool has another description, other schemas or other hints than then.'), full.last_approved.changes.length ? h('ul', { class: 'diff' }, seen.changes.map((c) => h('li', {}, h('code', {}, visible(JSON.parse(c.path)) || 'all'), c.was !== undefined && h('del', {}, visible(c.was)), c.is !== undefined && h('ins', {}, visible(c.is)))), full.last_approved.more_changes > 0 && h('li', {}, `and ${plural(full.last_approved.more_changes, 'other place')}`)) : h('p', { class: 'dim' }, 'The arguments are the same.')),
      r.phase === 'Pending' && full && decision(full));
  }

  function tick() {
    for (const left of body.querySelectorAll('[data-until]')) set(left, span(Date.parse(left.dataset.until) - now()));
  }

  const options = { signal: control.signal, passive: true, capture: true };
  el.addEventListener('pointermove', measure, options);
  addEventListener('scroll', measure, options);
  addEventListener('resize', measure, options);
  load();
  return {
    el, title: 'Approvals', params: { lines: 0, event: ['a call needs an approval', 'an approval was decided', 'an approval was extended', 'a passkey was asked for', 'a passkey was not agreed to', 'a passkey was registered', 'a passkey was removed'] },
    change() { const n = app.status?.approvals_waiting || 0; if (n !== waiting) { waiting = n; soon(); } },
    lines() { soon(); },
    live(on) { measure(); if (on) soon(); },
    tick() { tick(); if ([...leaving.values()].some((until) => until < Date.now())) draw(); if (records?.some((r) => r.phase === 'Pending' && Date.parse(r.expires_at) < now())) again(); },
    leave: () => control.abort(),
  };
}
