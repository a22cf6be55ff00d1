// Exchanges the code of a link for a session, or the answer of an authorization server. The code of a link is after the #, so
// that no server or log sees it before.
import { keep, message, send, takeTicket } from './api.js';

const code = location.hash.slice(1), said = location.search.slice(1);
history.replaceState(null, '', location.pathname);

function say(title, text, command = true) {
  document.getElementById('title').textContent = title;
  document.getElementById('text').textContent = text;
  document.getElementById('command').hidden = !command;
  document.getElementById('again').hidden = command;
}

const enter = (body) => send('/console/login', body);

async function login() {
  if (!code) {
    say('This link is not complete', 'Run this again, and open the whole link that it prints:');
    return;
  }
  const answer = await enter({ code });
  if (!answer.ok) {
    say('This link does not work', (await message(answer)) + ' Run this for another one:');
    return;
  }
  keep((await answer.json()).key);
  location.replace('/');
}

// An answer counts only in the tab where its login began: another page may have sent the browser here with one of its own, or
// a program that reads the code in the history afterwards. So the code is used up, without a verifier that fits.
async function finish() {
  const ticket = takeTicket(), state = new URLSearchParams(said).get('state');
  if (!ticket || state !== ticket.state) {
    if (state) enter({ answer: said, state, verifier: [...crypto.getRandomValues(new Uint8Array(32))].map((b) => b.toString(16).padStart(2, '0')).join('') }).catch(() => {});
    say('This login did not begin here', 'Log in again, in one tab.', false);
    return;
  }
  const answer = await enter({ answer: said, ...ticket });
  if (!answer.ok) {
    say('You are not logged in', await message(answer), false);
    return;
  }
  keep((await answer.json()).key);
  location.replace('/');
}

if (said) finish().catch(() => say('Orla does not answer', 'It may have been stopped. Log in again when it runs.', false));
else login().catch(() => say('Orla does not answer', 'It may have been stopped. When it runs again, run this:'));
