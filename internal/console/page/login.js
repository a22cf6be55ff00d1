// Exchanges the code of a link for a session. The code is after the #, so that no server or log sees it before.
import { keep, message } from './api.js';

const code = location.hash.slice(1);
history.replaceState(null, '', location.pathname);

function say(title, text) {
  document.getElementById('title').textContent = title;
  document.getElementById('text').textContent = text;
  document.getElementById('command').hidden = false;
}

async function login() {
  if (!code) {
    say('This link is not complete', 'Run this again, and open the whole link that it prints:');
    return;
  }
  const answer = await fetch('/console/login', {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ code }),
  });
  if (!answer.ok) {
    say('This link does not work', (await message(answer)) + ' Run this for another one:');
    return;
  }
  keep((await answer.json()).key);
  location.replace('/');
}

login().catch(() => say('Orla does not answer', 'It may have been stopped. When it runs again, run this:'));
