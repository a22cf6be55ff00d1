// Talks to the API. A session is a cookie, which scripts cannot read, and a key, which is here and goes into a header.

const place = 'orla.console.key';
export const hasKey = () => Boolean(localStorage.getItem(place));
export const keep = (key) => localStorage.setItem(place, key);

// A ticket is a login at an authorization server that has begun in this tab.
const began = 'orla.console.ticket';
export const keepTicket = (ticket) => sessionStorage.setItem(began, JSON.stringify(ticket));
export function takeTicket() {
  const text = sessionStorage.getItem(began);
  sessionStorage.removeItem(began);
  return text ? JSON.parse(text) : null;
}

// Ended says that the session is over.
export class Ended extends Error {}

// Refused is an answer that is an error, with its code and hint.
export class Refused extends Error {
  constructor(status, body) {
    super(body.message || 'HTTP ' + status);
    Object.assign(this, { status, code: body.code || '', hint: body.hint || '' });
  }
}

async function body(answer) {
  try { return await answer.json(); } catch { return {}; }
}

// send posts JSON, outside the API.
export const send = (path, value, headers) => fetch(path, { method: 'POST', headers: { 'Content-Type': 'application/json', ...headers }, body: JSON.stringify(value) });

export const message = async (answer) => (await body(answer)).message || 'Orla answered ' + answer.status + '.';

// now is the time at Orla, in ms. The clock of the browser counts unless it is another by more than a second.
let apart = 0;
export const now = () => Date.now() + apart;

// compare sets the clock by an answer to a request that was made at a time. Orla writes its time without parts of a second.
function compare(answer, made) {
  const at = Date.parse(answer.headers.get('Date')), least = at - Date.now(), most = at + 1000 - made;
  apart = least > 1000 || most < -1000 ? (least + most) / 2 : 0;
}

async function ask(path, options = {}) {
  const made = Date.now();
  const answer = await fetch('/api' + path, {
    ...options, cache: 'no-store', redirect: 'error',
    headers: { 'X-Orla-Console': localStorage.getItem(place) || '', ...options.headers },
  });
  compare(answer, made);
  if (answer.ok) return answer;
  if (answer.status === 401) throw new Ended('the session is over');
  throw new Refused(answer.status, await body(answer));
}

// silence is how long to wait for an answer, and for a stream: Orla says every 15 s that it is alive.
const silence = 40_000;

// get does not wait for an answer for ever: it may have been asked for over a network that is gone.
export async function get(path, signal) {
  const once = new AbortController(), end = () => once.abort();
  if (signal?.aborted) end();
  signal?.addEventListener('abort', end);
  const late = setTimeout(() => once.abort(new Error('Orla did not answer.')), silence);
  try {
    return await (await ask(path, { signal: once.signal })).json();
  } finally {
    clearTimeout(late);
    signal?.removeEventListener('abort', end);
  }
}

// lines reads an answer of JSON lines.
export const lines = async (path, signal) => (await (await ask(path, { signal })).text()).split('\n').filter(Boolean).map((l) => JSON.parse(l));

export const post = async (path, value = {}, signal) => JSON.parse(await postText(path, JSON.stringify(value), signal));

// postText keeps JSON as text, since numbers may have more digits than a script can hold.
export const postText = async (path, body, signal) => (await ask(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body, signal })).text();

// events makes a request whose answer is a stream of JSON lines, and passes on the text of each.
export async function events(path, body, signal, each) {
  const answer = await ask(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ''; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const all = (rest + value).split('\n');
    rest = all.pop();
    all.forEach(each);
  }
}

export async function logout() {
  await send('/console/logout', {}, { 'X-Orla-Console': localStorage.getItem(place) || '' });
  localStorage.removeItem(place);
}

// path makes a path of parts, each escaped, and of parameters; a list gives the parameter several times.
export function path(parts, given = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(given)) {
    for (const one of [].concat(value)) if (one !== '' && one !== undefined) query.append(key, one);
  }
  const text = query.toString();
  return '/v1/' + parts.map((p) => (p === '.' || p === '..' ? p.replaceAll('.', '%2E') : encodeURIComponent(p))).join('/') + (text ? '?' + text : '');
}

// serial returns a function that does work, and once more if it is called meanwhile: no older answer replaces a newer one.
export function serial(work) {
  let runs = false, asked = false;
  return async () => {
    asked = true;
    if (runs) return;
    runs = true;
    try {
      while (asked) { asked = false; await work(); }
    } finally { runs = false; }
  };
}

// passing reports whether a request that failed may succeed later.
export const passing = (error) => !error.status || error.status === 429 || error.status >= 500;

// Stream is the stream of all that is new. It begins again when it breaks off.
export class Stream {
  constructor(on) {
    this.on = on; // {change, lines, state, ended}
    this.params = {};
  }

  // use begins the stream with other parameters.
  use(params) {
    this.params = params;
    this.stop();
    this.run((this.control = new AbortController()));
  }

  stop() { this.control?.abort(); }

  async run(control) {
    for (let pause = 300; !control.signal.aborted; pause = Math.min(pause * 2, 5000)) {
      let why;
      try {
        await this.read(control, () => { pause = 300; });
      } catch (error) {
        if (error instanceof Ended) { this.on.ended(); return; }
        if (error instanceof Refused && error.status < 500) why = error;
      }
      if (control.signal.aborted) return;
      this.on.state(why ? 'refused' : 'lost', why);
      await new Promise((done) => setTimeout(done, why && why.status !== 429 ? 5000 : pause));
    }
  }

  async read(control, begun) {
    const once = new AbortController();
    const end = () => once.abort();
    control.signal.addEventListener('abort', end);
    let watchdog = setTimeout(end, silence);
    try {
      const answer = await ask(path(['watch'], this.params), { signal: once.signal });
      if (control.signal.aborted) return;
      begun();
      this.on.state('live');
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ''; ;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(watchdog);
        watchdog = setTimeout(end, silence);
        rest += value;
        const events = rest.split('\n\n');
        rest = events.pop();
        for (const text of events) this.event(text, control);
      }
    } finally {
      clearTimeout(watchdog);
      control.signal.removeEventListener('abort', end);
    }
  }

  event(text, control) {
    if (control.signal.aborted) return;
    let name = '', data = '';
    for (const line of text.split('\n')) {
      if (line.startsWith('event: ')) name = line.slice(7);
      if (line.startsWith('data: ')) data += line.slice(6);
    }
    if (name === 'change') this.on.change(JSON.parse(data));
    if (name === 'lines') this.on.lines(JSON.parse(data));
  }
}
