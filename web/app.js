// The chat page. Conversations live in this browser alone (localStorage), a key only as long as the tab.
// What comes from a model or a server is shown as text (markdown.js), never as HTML.

import { el, show } from './markdown.js';
import { startState, stopState } from './state.js';

const $ = id => document.getElementById(id);

// ---- what is kept --------------------------------------------------------------------------

const load = (key, otherwise) => { try { return JSON.parse(localStorage.getItem('echelon.' + key)) ?? otherwise; } catch { return otherwise; } };

function save(key, value) {
  try { localStorage.setItem('echelon.' + key, JSON.stringify(value)); return true; } catch { return false; }
}

const NUMBERS = ['temperature', 'top_p', 'top_k', 'min_p', 'repetition_penalty', 'max_tokens', 'seed'];
const EXAMPLES = ['Tell me a story about a fox named Finn.', 'What is 12 + 6?', 'Write a loop in C that counts to 8.', 'Make a table of three animals and their colours.'];

let chats = stored();
let chat = null;     // the one that is shown; among the kept ones once it has a message
let running = null;  // {controller, chat} of the answer that is being written
let models = [];

function stored() {
  const all = load('chats', []);
  return Array.isArray(all) ? all.filter(c => c?.id && Array.isArray(c.messages) && c.messages.length && c.messages.every(m => typeof m?.content === 'string')) : [];
}

// Changes what is kept as it is now: another tab may have written. The oldest go where the browser has no more room.
function store(change) {
  chats = change(stored()).slice(0, 200);
  while (!save('chats', chats) && chats.length > 1) chats.pop();
  showHistory();
}

function keep(c) { store(all => [c, ...all.filter(o => o.id !== c.id)]); }

function saveSettings() {
  const s = { system: $('system').value, thinking: $('thinking').checked };
  for (const k of NUMBERS) s[k] = $(k).value;
  save('settings', s);
  try { sessionStorage.setItem('echelon.key', $('key').value); } catch { /* a private window: the key is asked for again */ }
}

function showSettings(s) {
  $('system').value = s.system ?? '';
  $('thinking').checked = !!s.thinking;
  for (const k of NUMBERS) $(k).value = s[k] ?? '';
}

// ---- requests ------------------------------------------------------------------------------

function headers() {
  const h = { 'content-type': 'application/json' };
  const key = $('key').value.trim();
  if (key) h.authorization = 'Bearer ' + key;
  return h;
}

function requestBody(messages) {
  const body = { messages, stream: true, stream_options: { include_usage: true }, chat_template_kwargs: { enable_thinking: $('thinking').checked } };
  for (const k of NUMBERS) if ($(k).value !== '' && $(k).validity.valid) body[k] = Number($(k).value);
  return body;
}

async function failure(response) {
  if (response.status === 401) return 'This server asks for an API key: Settings has a place for it.';
  const after = response.headers.get('retry-after');
  let text = response.status + ' ' + response.statusText;
  try { text = (await response.json()).error.message; } catch { /* not from Echelon: the status must do */ }
  return after ? `${text} (try again in ${after} s)` : text;
}

// Calls take(object) for each data frame of a stream; throws what the server says went wrong.
async function readStream(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error('The stream ended before its end mark.');
    rest += value.replaceAll('\r\n', '\n');
    for (let at; (at = rest.indexOf('\n\n')) >= 0;) {
      const frame = rest.slice(0, at);
      rest = rest.slice(at + 2);
      if (!frame.startsWith('data: ')) continue;
      if (frame === 'data: [DONE]') { reader.cancel().catch(() => {}); return; }
      const data = JSON.parse(frame.slice(6));
      if (data.error) throw new Error(data.error.message);
      take(data);
    }
  }
}

// ---- messages ------------------------------------------------------------------------------

function button(text, label, onclick, cls = '') {
  const b = el('button', cls, text);
  b.type = 'button';
  if (label) b.setAttribute('aria-label', label);
  b.addEventListener('click', onclick);
  return b;
}

async function copy(text) {
  try { await navigator.clipboard.writeText(text); say('Copied.'); } catch { say('This browser gives no clipboard to the page.'); }
}

function actions(message) {
  const is_user = message.role === 'user';
  return el('div', 'actions',
    is_user ? button('Edit', 'Edit this message', () => edit(message)) : button('Regenerate', 'Answer again', () => regenerate(message)),
    button('Copy', 'Copy this message', () => copy(message.content)));
}

function messageNode(message) {
  const parts = message.role === 'user'
    ? [el('span', 'unseen', 'You:'), el('div', 'body', message.content)]
    : [el('span', 'unseen', 'Model:'), el('details', 'thought', el('summary'), el('div', 'text')), el('div', 'body'), el('p', 'failed'), el('p', 'meta')];
  const node = el('article', 'msg ' + message.role, ...parts, actions(message));
  if (message.role !== 'user') fill(node, message);
  return node;
}

// Shows an answer as far as it has come.
function fill(node, message) {
  const thought = node.querySelector('.thought');
  const body = node.querySelector('.body');
  const is_thinking = running?.message === message && !message.content;
  thought.hidden = !message.reasoning;
  thought.classList.toggle('still', is_thinking);
  thought.firstChild.textContent = is_thinking ? 'Thinking…' : 'Reasoning';
  thought.lastChild.textContent = (message.reasoning ?? '').trim();
  show(body, message.content);
  body.hidden = !message.content;
  node.querySelector('.failed').textContent = message.error ?? '';
  node.querySelector('.meta').textContent = message.meta ?? '';
  node.classList.toggle('writing', running?.message === message);
}

function nodeOf(message) { return $('messages').children[chat.messages.indexOf(message)]; }

function nearEnd() {
  const m = $('messages');
  return m.scrollHeight - m.scrollTop - m.clientHeight < 100;
}

function toEnd() { $('messages').scrollTop = $('messages').scrollHeight; }

function welcome() {
  const box = el('div', 'welcome', el('h2', '', 'What shall it be?'),
    el('div', 'examples', ...EXAMPLES.map(text => button(text, '', () => { $('input').value = text; send(); }))));
  return box;
}

function showChat() {
  $('messages').replaceChildren(...(chat.messages.length ? chat.messages.map(messageNode) : [welcome()]));
  toEnd();
  showHistory();
}

// ---- conversations -------------------------------------------------------------------------

function showHistory() {
  $('history').replaceChildren(...chats.map(c => {
    const title = c.messages[0].content.slice(0, 80);
    const open = button(title, '', () => openChat(c), 'open');
    open.title = title;
    if (c.id === chat.id) open.setAttribute('aria-current', 'true');
    return el('li', '', open, button('×', 'Delete: ' + title, () => forget(c), 'del'));
  }));
}

function openChat(c) {
  stop();
  chat = c;
  closeMenu();
  showTab('chat');
  showChat();
  $('input').focus();
}

function emptyChat() { return { id: Date.now().toString(36) + Math.random().toString(36).slice(2), messages: [] }; }

function newChat() { openChat(emptyChat()); }

function forget(c) {
  const at = chats.findIndex(o => o.id === c.id);
  store(all => all.filter(o => o.id !== c.id));
  if (chat.id === c.id) newChat();
  say('Deleted. ', button('Undo', '', () => { store(all => all.toSpliced(at, 0, c)); say(''); }));
}

// ---- editing and asking again --------------------------------------------------------------

// The message becomes a box; what came after it goes once the new text is sent.
function edit(message) {
  const node = nodeOf(message);
  const body = node.querySelector('.body');
  if (!body) return;  // it is being edited already
  const box = el('textarea');
  box.value = message.content;
  box.setAttribute('aria-label', 'Message');
  const done = () => form.replaceWith(body);
  const submit = () => {
    const text = box.value.trim();
    if (!text) return;
    stop();
    chat.messages.length = chat.messages.indexOf(message);
    ask(text);
  };
  const form = el('div', 'editor', box, el('div', 'actions', button('Send', '', submit, 'main'), button('Cancel', '', done)));
  box.addEventListener('keydown', e => {
    if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); submit(); }
    if (e.key === 'Escape') { e.stopPropagation(); done(); node.querySelector('.actions button').focus(); }
  });
  body.replaceWith(form);
  grow(box);
  box.focus();
}

function regenerate(message) {
  stop();
  chat.messages.length = chat.messages.indexOf(message);
  answer();
}

// ---- an answer -----------------------------------------------------------------------------

function stop() { running?.controller.abort(); }

function setRunning(state) {
  running = state;
  $('send').hidden = !!state;
  $('stop').hidden = !state;
}

function say(...what) { $('status').replaceChildren(...what); }

// What the model is sent: an answer that failed or was stopped before its first word says nothing.
function history() {
  const sent = chat.messages.filter(m => m.content).map(m => ({ role: m.role, content: m.content }));
  const system = $('system').value.trim();
  return system ? [{ role: 'system', content: system }, ...sent] : sent;
}

function describe(t, usage) {
  const n = usage?.completion_tokens ?? t.chunks;
  const between = (t.last - t.first) / 1000;
  const parts = [n + (n === 1 ? ' token' : ' tokens')];
  // Less than a few frames of the browser says nothing about the server.
  if (between > 0.05 && t.chunks > 1) parts.push(((n - 1) / between).toFixed(1) + ' tokens/s');
  parts.push('first after ' + ((t.first - t.start) / 1000).toFixed(2) + ' s');
  const reused = usage?.prompt_tokens_details?.cached_tokens;
  if (usage) parts.push(`prompt ${usage.prompt_tokens}` + (reused ? ` (${reused} reused)` : ''));
  return parts.join(' · ');
}

const ENDS = { length: 'Cut at the limit of tokens.', content_filter: 'Cut by a filter.' };

async function answer() {
  const message = { role: 'assistant', content: '' };
  const state = { controller: new AbortController(), chat, message };
  const sent = history();
  const t = { start: performance.now(), chunks: 0 };
  let usage = null, frame = 0, end = null;
  chat.messages.push(message);
  setRunning(state);
  keep(chat);
  showChat();
  say('Waiting for the first token…');
  const node = nodeOf(message);
  const draw = () => { frame = 0; const follow = nearEnd(); fill(node, message); if (follow) toEnd(); };
  const take = data => {
    usage = data.usage ?? usage;
    const choice = data.choices[0];
    end = choice?.finish_reason ?? end;
    const { content, reasoning_content: reasoning } = choice?.delta ?? {};
    if (!content && !reasoning) return;
    if (reasoning) message.reasoning = (message.reasoning ?? '') + reasoning;
    message.content += content ?? '';
    t.last = performance.now();
    t.first ??= t.last;
    t.chunks++;
    if (running === state) say(describe(t, null));
    frame ||= requestAnimationFrame(draw);
  };
  try {
    const response = await fetch('v1/chat/completions', { method: 'POST', headers: headers(), body: JSON.stringify(requestBody(sent)), signal: state.controller.signal });
    if (!response.ok) throw new Error(await failure(response));
    await readStream(response, take);
    if (ENDS[end]) message.error = ENDS[end];
  } catch (e) {
    if (e.name === 'AbortError') message.error = 'Stopped.';
    else message.error = e instanceof TypeError ? 'The server does not answer.' : e.message;
  }
  if (t.first) message.meta = describe(t, usage);
  cancelAnimationFrame(frame);
  if (running === state) { setRunning(null); say(''); }
  draw();
  keep(state.chat);
}

function ask(text) {
  chat.messages.push({ role: 'user', content: text });
  answer();
}

function send() {
  const text = $('input').value.trim();
  if (!text || running) return;
  $('input').value = '';
  grow($('input'));
  ask(text);
}

// ---- the page ------------------------------------------------------------------------------

function showTab(name) {
  for (const t of ['chat', 'state']) {
    $('tab-' + t).setAttribute('aria-selected', String(t === name));
    $('tab-' + t).tabIndex = t === name ? 0 : -1;
    $('view-' + t).hidden = t !== name;
  }
  document.body.dataset.view = name;
  if (name === 'state') startState(headers); else stopState();
}

function openMenu(open) {
  $('side').classList.toggle('open', open);
  $('menu').setAttribute('aria-expanded', String(open));
  if (open) $('new').focus();
}

function closeMenu() { openMenu(false); }

function grow(box) {
  box.style.height = 'auto';
  box.style.height = box.scrollHeight + 2 + 'px';
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}

async function showModel() {
  try {
    const response = await fetch('v1/models', { headers: headers() });
    models = (await response.json()).data ?? [];
    $('model').textContent = models[0]?.id ?? '';
    if (models[0]) $('model').title = `${models[0].meta?.architecture ?? ''}, context ${models[0].max_model_len}`;
  } catch { /* the first message says what is wrong */ }
}

$('form').addEventListener('submit', e => { e.preventDefault(); send(); });
$('input').addEventListener('keydown', e => { if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); } });
$('input').addEventListener('input', () => grow($('input')));
$('stop').addEventListener('click', () => { stop(); $('input').focus(); });
$('new').addEventListener('click', newChat);
$('menu').addEventListener('click', () => openMenu(!$('side').classList.contains('open')));
$('open-settings').addEventListener('click', () => $('settings').showModal());
$('settings').addEventListener('change', saveSettings);
$('settings').addEventListener('close', () => { saveSettings(); showModel(); });
$('settings').addEventListener('click', e => { if (e.target === $('settings')) $('settings').close(); });
$('reset').addEventListener('click', () => { showSettings({}); saveSettings(); });
for (const t of ['chat', 'state']) {
  $('tab-' + t).addEventListener('click', () => showTab(t));
  $('tab-' + t).addEventListener('keydown', e => {
    if (e.key !== 'ArrowLeft' && e.key !== 'ArrowRight') return;
    const other = t === 'chat' ? 'state' : 'chat';
    showTab(other);
    $('tab-' + other).focus();
  });
}
$('theme').addEventListener('click', () => {
  const now = document.documentElement.dataset.theme ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
  setTheme(now === 'dark' ? 'light' : 'dark');
  save('theme', document.documentElement.dataset.theme);
});
document.addEventListener('keydown', e => { if (e.key === 'Escape' && !$('settings').open) { stop(); closeMenu(); } });
addEventListener('pagehide', () => { if (running) keep(running.chat); });
addEventListener('storage', e => { if (e.key === 'echelon.chats') { chats = stored(); showHistory(); } });

setTheme(load('theme', null));
showSettings(load('settings', {}));
try { $('key').value = sessionStorage.getItem('echelon.key') ?? ''; } catch { /* a private window */ }
showModel();
chat = chats[0] ?? emptyChat();
showTab('chat');
showChat();
$('input').focus();
