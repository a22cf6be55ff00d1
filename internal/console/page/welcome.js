// A browser that followed a link from elsewhere sends no cookie with it. From here it does. Who has a token enters with it.
import { get, hasKey, keep, keepTicket, message, send } from './api.js';

const form = document.getElementById('token'), text = document.getElementById('text'), fault = document.getElementById('fault');

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  fault.textContent = '';
  try {
    const answer = await send('/console/login', { token: text.value.trim() });
    text.value = '';
    if (!answer.ok) { fault.textContent = await message(answer); return; }
    keep((await answer.json()).key);
    location.replace('/');
  } catch { fault.textContent = 'Orla does not answer.'; }
});

// Where people log in elsewhere, the answer comes to the page of links, in this tab.
const begin = document.getElementById('begin'), why = document.getElementById('why');

begin.addEventListener('click', async () => {
  why.textContent = '';
  begin.disabled = true;
  try {
    const answer = await send('/console/ticket', {});
    if (!answer.ok) { why.textContent = await message(answer); return; }
    const { open, state, verifier } = await answer.json();
    keepTicket({ state, verifier });
    location.assign(open);
  } catch { why.textContent = 'Orla does not answer.'; } finally { begin.disabled = false; }
});

fetch('/console/door').then((answer) => answer.json()).then((door) => {
  form.hidden = !door.token;
  document.getElementById('link').hidden = !door.link;
  document.getElementById('login').hidden = !door.login;
  document.getElementById('at').textContent = door.login;
});

if (hasKey()) get('/v1/status').then(() => location.replace('/'), () => {});
