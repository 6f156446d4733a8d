// The state page: what runs and waits, pages, tokens a second, the rings of the runtime. It asks the
// server once a second while it is shown, and not while the window is hidden.

import { el } from './markdown.js';

const $ = id => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';
const KEPT = 120;  // seconds on a chart
const charts = {
  rate: { title: 'Tokens drawn', unit: '/s', values: [] },
  prompt: { title: 'Prompt tokens', unit: '/s', values: [] },
  running: { title: 'Running', unit: '', values: [] },
  pages: { title: 'KV pages in use', unit: ' %', values: [] },
};
let headers = () => ({});
let timer = 0;
let last = null;  // {at, metrics} of the tick before

// {name: value} for plain rows, and a list of {labels, value} under name + '[]'.
export function parseMetrics(text) {
  const out = {};
  for (const line of text.split('\n')) {
    const m = /^[^:#\s{]+:(\w+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!m) continue;
    const labels = Object.fromEntries([...(m[2] ?? '').matchAll(/(\w+)="([^"]*)"/g)].map(l => [l[1], l[2]]));
    out[m[1]] = Number(m[3]);
    (out[m[1] + '[]'] ??= []).push({ labels, value: Number(m[3]) });
  }
  return out;
}

const UNITS = ['', 'k', 'M', 'G', 'T'];
function short(n) {
  if (!Number.isFinite(n)) return '–';
  let k = 0;
  while (Math.abs(n) >= 10000 && k < 4) { n /= 1000; k++; }
  return (k || !Number.isInteger(n) ? n.toFixed(Math.abs(n) < 100 ? 1 : 0) : String(n)) + UNITS[k];
}

function seconds(ms) {
  const s = Math.floor(ms / 1000);
  return s < 60 ? s + ' s' : Math.floor(s / 60) + ' min ' + s % 60 + ' s';
}

function shape(name, attributes) {
  const e = document.createElementNS(SVG, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  return e;
}

function drawChart(c) {
  const top = Math.max(c.unit === ' %' ? 1 : 4, ...c.values) * 1.1;
  const points = c.values.map((v, i) => `${(i + KEPT - c.values.length) * 600 / (KEPT - 1)},${(78 - v / top * 76).toFixed(1)}`);
  const svg = shape('svg', { viewBox: '0 0 600 80', preserveAspectRatio: 'none', role: 'img', 'aria-label': c.title + ' over the last two minutes' });
  if (points.length) {
    const from = points[0].split(',')[0];
    svg.append(shape('polygon', { points: `${from},80 ${points.join(' ')} 600,80` }), shape('polyline', { points: points.join(' ') }));
  }
  const now = c.values.at(-1);
  return el('figure', 'chart', el('figcaption', '', el('span', '', c.title), el('b', '', now === undefined ? '–' : short(now) + c.unit),
    el('span', 'dim', 'most ' + short(Math.max(0, ...c.values)) + c.unit)), svg);
}

function note(metrics, now) {
  const per = name => Math.max(0, (metrics[name] - last.metrics[name]) / (now - last.at) * 1000);
  const add = (c, v) => { c.values.push(v); if (c.values.length > KEPT) c.values.shift(); };
  if (last && metrics.generation_tokens_total >= last.metrics.generation_tokens_total) {
    add(charts.rate, per('generation_tokens_total'));
    add(charts.prompt, per('prompt_tokens_total'));
  }
  add(charts.running, metrics.num_requests_running ?? 0);
  add(charts.pages, 100 * (metrics.kv_cache_usage_perc ?? 0));
  last = { at: now, metrics };
}

function drawGauges(v) {
  const hits = v.prefix_cache_queries_total ? (100 * v.prefix_cache_hits_total / v.prefix_cache_queries_total).toFixed(0) + ' %' : '–';
  const rows = [
    ['Running', short(v.num_requests_running)], ['Waiting', short(v.num_requests_waiting)],
    ['KV pages in use', (100 * (v.kv_cache_usage_perc ?? 0)).toFixed(1) + ' %'], ['KV pages cached', short(v.kv_pages_cached)],
    ['Prompt reused', hits], ['Tokens drawn', short(v.generation_tokens_total)], ['Steps', short(v.steps_total)],
    ['Preemptions', short(v.num_preemptions_total)], ['Chips replaced', short(v.chip_replacements_total)], ['HTTP requests', short(v.http_requests_total)],
  ];
  $('gauges').replaceChildren(...rows.map(([name, value]) => el('div', 'gauge', el('b', '', value), el('span', '', name))));
}

const RINGS = { heap: 'heap', task_window: 'task slots', dep_pool: 'dependencies' };
const amount = (ring, n) => (ring === 'heap' ? short(n) + 'B' : short(n));

// A bar of each ring that was ever used: what is in use, and behind it, pale, the most there ever was.
function drawRings(v) {
  const of = (name, r) => v[name + '[]']?.find(o => o.labels.ring === r.ring && o.labels.depth === r.depth)?.value ?? 0;
  const used = (v['ring_high_water[]'] ?? []).filter(r => r.value > 0);
  $('rings').replaceChildren(...used.map(({ labels, value }) => {
    const capacity = of('ring_capacity', labels);
    const now = of('ring_used', labels);
    const bar = shape('svg', { viewBox: '0 0 100 8', preserveAspectRatio: 'none', 'aria-hidden': 'true' });
    const part = n => Math.max(n ? 0.5 : 0, 100 * n / capacity);
    bar.append(shape('rect', { class: 'most', width: part(value), height: 8 }), shape('rect', { class: 'used', width: part(now), height: 8 }));
    return el('div', 'ring', el('span', '', `${RINGS[labels.ring] ?? labels.ring}, depth ${labels.depth}`), bar,
      el('span', 'dim', `${amount(labels.ring, now)} now, ${amount(labels.ring, value)} at most, of ${amount(labels.ring, capacity)}`));
  }));
}

function drawRequests(list) {
  $('idle').hidden = list.length > 0;
  $('requests').parentNode.hidden = list.length === 0;
  const rows = new Map([...$('requests').tBodies[0].rows].map(r => [r.dataset.id, r]));
  $('requests').tBodies[0].replaceChildren(...list.map(r => {
    const row = rows.get(r.id) ?? requestRow(r.id);  // kept, so that its button keeps the focus
    [r.id, r.state, seconds(r.age_ms), r.prompt_tokens, r.completion_tokens].forEach((c, k) => { row.cells[k].textContent = String(c); });
    return row;
  }));
}

function requestRow(id) {
  const cancel = el('button', '', 'Cancel');
  cancel.type = 'button';
  cancel.setAttribute('aria-label', 'Cancel request ' + id);
  cancel.addEventListener('click', () => { cancel.disabled = true; fetch('requests/' + id, { method: 'DELETE', headers: headers() }).catch(() => {}); });
  const row = el('tr', '', el('td', 'mono'), el('td'), el('td', 'right'), el('td', 'right'), el('td', 'right'), el('td', 'right', cancel));
  row.dataset.id = id;
  return row;
}

async function get(path) {
  const response = await fetch(path, { headers: headers() });
  if (!response.ok) throw new Error(String(response.status));
  return response;
}

// One look at the server. The next comes a second after this one was answered, so that a slow answer
// and a quick one never make a short second.
async function tick() {
  if (!document.hidden) await look();
  if (timer) timer = setTimeout(tick, 1000);
}

async function look() {
  try {
    const metrics = parseMetrics(await (await get('metrics')).text());
    note(metrics, performance.now());
    drawGauges(metrics);
    drawRings(metrics);
    $('charts').replaceChildren(...Object.values(charts).map(drawChart));
    drawRequests((await (await get('requests')).json()).data);
    if (!$('plan').textContent) $('plan').textContent = (await (await get('props')).json()).plan;
    $('away').hidden = true;
  } catch { $('away').hidden = false; }
}

// makeHeaders: what a request of the page carries.
export function startState(makeHeaders) {
  headers = makeHeaders;
  stopState();
  timer = setTimeout(tick, 0);
}

export function stopState() { clearTimeout(timer); timer = 0; }
