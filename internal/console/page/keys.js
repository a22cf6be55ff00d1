// Passkeys: the visitor's own, those that wait for somebody to agree, and all.

import { get, post, path } from './api.js';
import { h, set, replace, failed, toast, day, button, rest, pairs } from './dom.js';
import { visible } from './json.js';
import { obstacle, proof, register, visitor as ask } from './passkey.js';

const said = (error, none) => (error.name === 'NotAllowedError' ? none : error.message + (error.hint ? ': ' + error.hint : ''));

const how = {
  nothing: 'The browser asks which authenticator to use, and for its PIN or your finger.',
  link: 'The first passkey needs a new link: run orla console on the machine of Orla, and paste what it prints.',
  operator: 'Somebody who has a passkey already has to agree: this page then shows you a code for them. Without them, paste a link of somebody who may approve calls: sudo orla console prints one. If Orla runs as root, that needs approvals.same_user: true.',
  passkey: 'One of your other passkeys has to agree.',
};

// plain is a code as it is compared.
const plain = (code) => code.toUpperCase().replace(/[^A-Z2-7]/g, '');

// keysPanel shows passkeys in el. changed is called with the visitor when the visitor's own are others.
export function keysPanel(el, signal, changed) {
  const mine = h('article', { class: 'item passkeys', tabindex: '-1' }), others = h('div', { class: 'cards' }), all = h('div', { class: 'cards' });
  let visitor = null, drawn = '', waits = '';
  const typed = new Map(); // the codes that somebody types, by key: they stay when the list is drawn again

  function drawMine() {
    const why = obstacle(visitor), { register: needs, asked } = visitor;
    const name = h('input', { type: 'text', maxlength: '90', value: navigator.platform || 'a passkey', 'aria-label': 'Name of the new passkey' });
    const link = (needs === 'link' || needs === 'operator') && h('input', { type: 'text', autocomplete: 'off', 'aria-label': 'A new link of orla console', placeholder: needs === 'link' ? 'A new link of orla console' : 'Or a new link of sudo orla console' });
    const fault = h('p', { class: 'fault', role: 'alert' });
    const add = button('approvals', 'Add a passkey', async () => {
      const done = rest(mine);
      set(fault, '');
      try {
        use(await register(visitor, name.value, link && link.value));
        toast(visitor.asked ? 'The passkey waits for somebody to agree.' : 'The passkey was added.');
      } catch (error) {
        set(fault, said(error, 'No passkey was made.'));
        visitor = await ask().catch(() => visitor);
      }
      done(fault.textContent);
    });
    replace(mine, h('h2', {}, 'Your passkeys'), h('p', { class: 'dim' }, `You are ${visible(visitor.name)}. A passkey shows that a person decides, and not a program.`),
      visitor.passkeys.length > 0 && h('ul', { class: 'marks' }, visitor.passkeys.map((k) => h('li', {}, h('span', { class: 'mark' }, `${visible(k.name)} · since ${day(k.registered_at)}`)))),
      asked && h('p', { class: 'asked' }, `${visible(asked.name)} waits until ${day(asked.until)} for somebody who has a passkey. Ask them to agree in Approvals on their own page, and read them this code: `, h('strong', { class: 'code' }, asked.code)),
      why ? h('p', {}, why) : [h('div', { class: 'bar' }, name, link, add), h('p', { class: 'dim' }, how[needs])], fault);
  }

  // entry shows a passkey of somebody, and what may become of it.
  function entry(k, waiting, last) {
    const of = JSON.parse(k.document);
    const fault = h('p', { class: 'fault', role: 'alert' });
    const code = waiting && h('input', { type: 'text', class: 'code', autocomplete: 'off', spellcheck: 'false', maxlength: '20', size: '14', value: typed.get(k.key) || '', 'aria-label': 'The code that this person reads to you', placeholder: 'Their code' });
    if (code) code.addEventListener('input', () => typed.set(k.key, code.value));
    const act = async (what, done) => {
      if (what === 'agree' && plain(code.value) !== plain(k.code)) {
        set(fault, code.value ? 'This is not the code of this passkey. If the person reads you this one, refuse the passkey.' : 'Type the code that the person reads to you.');
        code.focus();
        return;
      }
      const free = rest(card);
      set(fault, '');
      try {
        const decided = { key: k.key };
        if (what !== 'refuse') decided.proof = await proof(visitor, { id: k.key, arguments_sha256: '', document: k.document }, what, '');
        drawList(await post(path(['passkeys', what]), decided));
        toast(done);
        use(await ask());
      } catch (error) { set(fault, said(error, 'The passkey was not used. Nothing was changed.')); }
      free(fault.textContent);
    };
    const able = !obstacle(visitor) && visitor.passkeys.length > 0;
    const details = pairs([['Owner', visible(of.owner)], ['Page', visible(of.origin)], [waiting ? 'Asked' : 'Since', day(of.registered_at)]]);
    const card = h('article', { class: 'item passkey' + (waiting ? ' waits' : ''), tabindex: '-1', 'data-key': k.key }, h('h3', {}, visible(of.name)), details,
      waiting && h('p', {}, 'Agree only if this person has asked you. Have them read you the code that their page shows, and type it here. Whoever has this passkey can then approve calls.'),
      h('div', { class: 'bar' }, waiting ? [code, button('approvals', 'Agree with a passkey', () => act('agree', 'The passkey was added.'), { class: 'primary', disabled: !able }), button('close', 'Refuse', () => act('refuse', 'The passkey was refused.'))]
        : button('close', 'Remove', () => act('remove', 'The passkey was removed.'), { disabled: !able || last })),
      !able && waiting && h('p', { class: 'dim' }, 'To agree, you need a passkey of your own on this page.'), fault);
    return card;
  }

  function drawList(list) {
    const text = JSON.stringify([list, visitor.passkeys]);
    if (text === drawn) return;
    drawn = text;
    const held = el.contains(document.activeElement) && document.activeElement, at = held && held.closest('.passkey')?.dataset.key, open = all.querySelector('details')?.open;
    replace(others, list.asked.length > 0 && h('h2', {}, 'Passkeys that wait for you to agree'), list.asked.map((k) => entry(k, true)));
    const one = list.passkeys.length === 1;
    replace(all, list.passkeys.length > 0 && h('details', { class: 'everybody', open }, h('summary', {}, 'The passkeys of everybody'),
      h('p', { class: 'dim' }, one ? 'The last one stays. If it is lost, remove the file of passkeys.' : 'To remove one, sign with a passkey of yours.'), h('div', { class: 'cards' }, list.passkeys.map((k) => entry(k, false, one)))));
    if (!held || held.isConnected) return;
    const same = [...el.querySelectorAll('.passkey')].find((card) => card.dataset.key === at);
    (same && held.matches('.code') ? same.querySelector('.code') : same || mine).focus({ preventScroll: true });
  }

  // use shows a visitor.
  function use(next) {
    visitor = next;
    const text = JSON.stringify([next.passkeys, next.asked, next.register, next.problem]);
    if (text === waits) return;
    waits = text;
    drawMine();
    changed(next);
  }

  // load looks at all of it again.
  return async function load() {
    try {
      use(await ask(signal));
      if (!mine.isConnected) replace(el, mine, others, all);
      drawList(await get(path(['passkeys']), signal));
    } catch (error) { failed(error); }
  };
}
