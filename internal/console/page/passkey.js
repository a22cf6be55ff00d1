// Asks the person's authenticator (WebAuthn). What it signs is a hash of the text that this page shows.

import { get, post, path } from './api.js';

const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
const raw = (base64) => Uint8Array.from(atob(base64.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0));
const sum = (bytes) => crypto.subtle.digest('SHA-256', bytes);
const hex = (buffer) => [...new Uint8Array(buffer)].map((b) => b.toString(16).padStart(2, '0')).join('');
const utf8 = (t) => new TextEncoder().encode(t);

// obstacle says why no passkey can be used here; '' if one can.
export function obstacle(visitor) {
  if (visitor.problem) return 'Passkeys cannot be used: ' + visitor.problem + '.';
  if (/^[\d.]+$|:/.test(visitor.host)) return 'Passkeys are for names, and this page was opened by an address. Open a new link of orla console, or use localhost in place of the address.';
  if (!window.isSecureContext || !window.PublicKeyCredential) return 'This browser has no passkeys here. They need HTTPS, or localhost.';
  return '';
}

// challenge is what is signed: docs/control-api.yaml has the form.
const challenge = async (purpose, id, ttl, args, shown) => sum(utf8('orla passkey 1\n' + [purpose, id, ttl, args, hex(await sum(shown))].map((part) => JSON.stringify(part) + '\n').join('')));

async function sign(visitor, what) {
  const got = await navigator.credentials.get({ publicKey: {
    challenge: what, rpId: visitor.host, userVerification: 'required', timeout: 120_000,
    allowCredentials: visitor.passkeys.map((k) => ({ type: 'public-key', id: raw(k.id) })),
  } });
  const r = got.response;
  return { credential: text(got.rawId), client_data: text(r.clientDataJSON), authenticator_data: text(r.authenticatorData), signature: text(r.signature) };
}

// proof has the person sign a statement as it is shown.
export const proof = async (visitor, statement, purpose, ttl) => sign(visitor, await challenge(purpose, statement.id, ttl, statement.arguments_sha256, utf8(statement.document)));

// register makes a passkey, or asks for one, and returns the visitor as it is then.
export async function register(visitor, name, link) {
  const made = await navigator.credentials.create({ publicKey: {
    challenge: raw((await post(path(['passkeys', 'challenge']))).challenge), rp: { id: visitor.host, name: 'Orla' }, attestation: 'none', timeout: 120_000,
    user: { id: await sum(utf8(visitor.name)), name: visitor.name, displayName: visitor.name },
    pubKeyCredParams: [-7, -8, -257].map((alg) => ({ type: 'public-key', alg })),
    authenticatorSelection: { userVerification: 'required', residentKey: 'discouraged' },
    excludeCredentials: visitor.passkeys.map((k) => ({ type: 'public-key', id: raw(k.id) })),
  } });
  const r = made.response;
  const asked = { name, credential: text(made.rawId), client_data: text(r.clientDataJSON), authenticator_data: text(r.getAuthenticatorData()), public_key: text(r.getPublicKey()) };
  if (link) asked.link = link;
  else if (visitor.register === 'passkey') asked.proof = await sign(visitor, await challenge('register', hex(await sum(r.getPublicKey())), '', '', r.clientDataJSON));
  else if (visitor.register === 'operator') asked.ask = true;
  return post(path(['passkeys']), asked);
}

export const visitor = (signal) => get(path(['visitor']), signal);
