// The chat page and the state page. Conversations live in this browser alone (localStorage).
'use strict';

const $ = id => document.getElementById(id);
const el = (name, cls, ...children) => {
  const e = document.createElement(name);
  if (cls) e.className = cls;
  e.append(...children);
  return e;
};

// ---- what is kept --------------------------------------------------------------------------

const load = (key, otherwise) => { try { return JSON.parse(localStorage.getItem(key)) ?? otherwise; } catch { return otherwise; } };
const save = (key, value) => { try { localStorage.setItem(key, JSON.stringify(value)); } catch { /* full or private: the page works without */ } };

let chats = load('echelon.chats', []);
let chat = null;
let running = null;  // AbortController of the answer that is being written

const SETTINGS = ['temperature', 'top_p', 'top_k', 'min_p', 'seed', 'max_tokens'];

function saveChats() {
  chats = chats.filter(c => c.messages.length).slice(0, 100);
  save('echelon.chats', chats);
}

function saveSettings() {
  const s = { system: $('system').value, thinking: $('thinking').checked };
  for (const k of SETTINGS) s[k] = $(k).value;
  save('echelon.settings', s);
}

function loadSettings() {
  const s = load('echelon.settings', {});
  $('system').value = s.system ?? '';
  $('thinking').checked = !!s.thinking;
  for (const k of SETTINGS) $(k).value = s[k] ?? '';
  $('key').value = sessionStorage.getItem('echelon.key') ?? '';
}

// ---- requests ------------------------------------------------------------------------------

function headers() {
  const h = { 'content-type': 'application/json' };
  const key = $('key').value.trim();
  if (key) h.authorization = 'Bearer ' + key;
  return h;
}

function requestBody(messages) {
  const body = { messages, stream: true, stream_options: { include_usage: true } };
  for (const k of SETTINGS) if ($(k).value !== '') body[k] = Number($(k).value);
  body.chat_template_kwargs = { enable_thinking: $('thinking').checked };
  return body;
}

async function failure(response) {
  try { return (await response.json()).error.message; } catch { return response.status + ' ' + response.statusText; }
}

// Calls take(object) for each data frame of a stream; throws what the server says went wrong.
async function readStream(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error('the stream ended before its end mark');
    rest += value;
    for (let at; (at = rest.indexOf('\n\n')) >= 0;) {
      const frame = rest.slice(0, at);
      rest = rest.slice(at + 2);
      if (!frame.startsWith('data: ')) continue;
      if (frame === 'data: [DONE]') return;
      const data = JSON.parse(frame.slice(6));
      if (data.error) throw new Error(data.error.message);
      take(data);
    }
  }
}

// ---- messages ------------------------------------------------------------------------------

function nearBottom() {
  const m = $('messages');
  return m.scrollHeight - m.scrollTop - m.clientHeight < 80;
}

function button(text, label, onclick) {
  const b = el('button', '', text);
  b.type = 'button';
  b.setAttribute('aria-label', label);
  b.addEventListener('click', onclick);
  return b;
}

function messageNode(message, index) {
  const who = el('div', 'who', message.role === 'user' ? 'You' : 'Model');
  if (message.role === 'user') who.append(button('Edit', 'Edit this message', () => edit(index)));
  else who.append(button('Regenerate', 'Answer again', () => regenerate(index)));
  const node = el('article', 'msg ' + message.role + (message.error ? ' error' : ''), who);
  fillMessage(node, message);
  return node;
}

function fillMessage(node, message) {
  const open = node.querySelector('details')?.open;
  node.querySelectorAll('.body, .meta, details').forEach(e => e.remove());
  if (message.reasoning) {
    const d = el('details', '', el('summary', '', 'Reasoning'), el('pre', '', message.reasoning));
    d.open = !!open;
    node.append(d);
  }
  const body = el('div', 'body');
  if (message.role === 'user' || message.error) body.append(message.error ?? message.content);
  else body.append(...Markdown.render(message.content));
  node.append(body);
  if (message.meta) node.append(el('div', 'meta', message.meta));
}

function showChat() {
  $('messages').replaceChildren(...(chat?.messages ?? []).map(messageNode));
  $('messages').scrollTop = $('messages').scrollHeight;
  showHistory();
}

function showHistory() {
  $('history').replaceChildren(...chats.filter(c => c.messages.length).map(c => {
    const open = button(c.messages[0].content.slice(0, 60), 'Open conversation', () => { stop(); chat = c; closeMenu(); showChat(); });
    open.className = 'open';
    if (c === chat) open.setAttribute('aria-current', 'true');
    const del = button('×', 'Delete conversation', () => { chats = chats.filter(o => o !== c); if (chat === c) newChat(); saveChats(); showHistory(); });
    del.className = 'del';
    return el('li', '', open, del);
  }));
}

function newChat() {
  stop();
  chat = { messages: [] };
  chats.unshift(chat);
  closeMenu();
  showChat();
  $('input').focus();
}

function edit(index) {
  stop();
  $('input').value = chat.messages[index].content;
  chat.messages.length = index;
  showChat();
  grow();
  $('input').focus();
}

function regenerate(index) {
  stop();
  chat.messages.length = index;
  answer();
}

// ---- an answer -----------------------------------------------------------------------------

function stop() { running?.abort(); }

function setRunning(controller) {
  running = controller;
  $('send').hidden = !!controller;
  $('stop').hidden = !controller;
}

function history() {
  const sent = chat.messages.filter(m => !m.error).map(m => ({ role: m.role, content: m.content }));
  const system = $('system').value.trim();
  return system ? [{ role: 'system', content: system }, ...sent] : sent;
}

function describe(t, usage) {
  const first = ((t.first - t.start) / 1000).toFixed(2);
  const seconds = (t.last - t.first) / 1000;
  const n = usage?.completion_tokens ?? t.chunks;
  const rate = seconds > 0 && n > 1 ? ((n - 1) / seconds).toFixed(1) + ' tokens/s, ' : '';
  const cached = usage?.prompt_tokens_details?.cached_tokens;
  return `${n} tokens, ${rate}first after ${first} s` + (cached ? `, ${cached} of ${usage.prompt_tokens} prompt tokens reused` : '');
}

async function answer() {
  const owner = chat;
  const message = { role: 'assistant', content: '' };
  const controller = new AbortController();
  const t = { start: performance.now(), chunks: 0 };
  let usage = null;
  const sent = history();
  owner.messages.push(message);
  showChat();
  const node = $('messages').lastElementChild;
  setRunning(controller);
  $('status').textContent = 'Waiting for the first token…';
  let frame = 0;
  const draw = () => { frame = 0; const follow = nearBottom(); fillMessage(node, message); if (follow) $('messages').scrollTop = $('messages').scrollHeight; };
  try {
    const response = await fetch('v1/chat/completions', { method: 'POST', headers: headers(), body: JSON.stringify(requestBody(sent)), signal: controller.signal });
    if (!response.ok) throw new Error(await failure(response));
    await readStream(response, data => {
      if (data.usage) usage = data.usage;
      const delta = data.choices[0]?.delta;
      if (!delta) return;
      message.reasoning = (message.reasoning ?? '') + (delta.reasoning_content ?? '');
      message.content += delta.content ?? '';
      if (delta.content || delta.reasoning_content) {
        t.last = performance.now();
        t.first ??= t.last;
        t.chunks++;
        $('status').textContent = describe(t, null);
      }
      if (!frame) frame = requestAnimationFrame(draw);
    });
  } catch (e) {
    if (e.name !== 'AbortError') message.error = e.message;
  }
  if (t.first) message.meta = describe(t, usage);
  if (frame) cancelAnimationFrame(frame);
  draw();
  if (running === controller) setRunning(null);
  $('status').textContent = '';
  saveChats();
  showHistory();
}

function send() {
  const text = $('input').value.trim();
  if (!text || running) return;
  if (!chat) newChat();
  chat.messages.push({ role: 'user', content: text });
  $('input').value = '';
  grow();
  answer();
}

// ---- the state page ------------------------------------------------------------------------

const rates = [];
let lastTokens = null;
let stateTimer = 0;

function parseMetrics(text) {
  const values = {};
  for (const line of text.split('\n')) {
    const m = /^[^:#\s]+:(\w+)(?:\{[^}]*\})? (\S+)$/.exec(line);
    if (m) values[m[1]] = Number(m[2]);
  }
  return values;
}

function drawSpark() {
  const top = Math.max(1, ...rates);
  const points = rates.map((r, i) => `${(i + 120 - rates.length) * 5},${78 - r / top * 74}`).join(' ');
  const line = document.createElementNS('http://www.w3.org/2000/svg', 'polyline');
  line.setAttribute('points', points);
  $('spark').replaceChildren(line);
}

function drawGauges(v) {
  const percent = x => (100 * x).toFixed(1) + ' %';
  const rows = [
    ['Running', v.num_requests_running], ['Waiting', v.num_requests_waiting], ['KV pages in use', percent(v.kv_cache_usage_perc ?? 0)],
    ['KV pages cached', v.kv_pages_cached], ['Tokens drawn', v.generation_tokens_total], ['Tokens per second', (rates.at(-1) ?? 0).toFixed(1)],
    ['Prompt tokens reused', v.prefix_cache_hits_total], ['Preemptions', v.num_preemptions_total], ['Chips replaced', v.chip_replacements_total],
  ];
  $('gauges').replaceChildren(...rows.map(([name, value]) => el('div', 'gauge', el('b', '', String(value ?? '–')), el('span', '', name))));
}

function drawRequests(list) {
  $('requests').tBodies[0].replaceChildren(...list.map(r => {
    const cancel = button('Cancel', 'Cancel request ' + r.id, () => fetch('requests/' + r.id, { method: 'DELETE', headers: headers() }));
    return el('tr', '', ...[r.id, r.state, r.prompt_tokens, r.completion_tokens].map(c => el('td', '', String(c ?? ''))), el('td', '', cancel));
  }));
}

async function tick() {
  try {
    const metrics = parseMetrics(await (await fetch('metrics', { headers: headers() })).text());
    const now = performance.now();
    if (lastTokens) rates.push(Math.max(0, (metrics.generation_tokens_total - lastTokens.n) / (now - lastTokens.at) * 1000));
    if (rates.length > 120) rates.shift();
    lastTokens = { n: metrics.generation_tokens_total, at: now };
    drawGauges(metrics);
    drawSpark();
    const requests = await fetch('requests', { headers: headers() });
    if (requests.ok) drawRequests((await requests.json()).data);
    if (!$('plan').textContent) {
      const props = await fetch('props', { headers: headers() });
      if (props.ok) $('plan').textContent = (await props.json()).plan;
    }
  } catch { /* the server is away: the next tick tries again */ }
}

// ---- the page ------------------------------------------------------------------------------

function showTab(name) {
  for (const t of ['chat', 'state']) {
    $('tab-' + t).setAttribute('aria-selected', String(t === name));
    $('view-' + t).hidden = t !== name;
  }
  clearInterval(stateTimer);
  if (name === 'state') { tick(); stateTimer = setInterval(tick, 1000); }
}

function closeMenu() { $('side').classList.remove('open'); $('menu').setAttribute('aria-expanded', 'false'); }

function grow() {
  const i = $('input');
  i.style.height = 'auto';
  i.style.height = i.scrollHeight + 'px';
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}

$('form').addEventListener('submit', e => { e.preventDefault(); send(); });
$('input').addEventListener('keydown', e => { if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); } });
$('input').addEventListener('input', grow);
$('stop').addEventListener('click', stop);
$('new').addEventListener('click', newChat);
$('tab-chat').addEventListener('click', () => showTab('chat'));
$('tab-state').addEventListener('click', () => showTab('state'));
$('menu').addEventListener('click', () => $('menu').setAttribute('aria-expanded', String($('side').classList.toggle('open'))));
$('settings').addEventListener('change', saveSettings);
$('key').addEventListener('change', () => sessionStorage.setItem('echelon.key', $('key').value));
$('theme').addEventListener('click', () => {
  const dark = document.documentElement.dataset.theme === 'dark' || (!document.documentElement.dataset.theme && matchMedia('(prefers-color-scheme: dark)').matches);
  setTheme(dark ? 'light' : 'dark');
  save('echelon.theme', dark ? 'light' : 'dark');
});
document.addEventListener('keydown', e => { if (e.key === 'Escape') { stop(); closeMenu(); } });

setTheme(load('echelon.theme', null));
loadSettings();
newChat();
