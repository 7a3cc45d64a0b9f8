"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const raw = new Uint16Array(bytes(data.values).buffer), n = raw.length, missing = 65535;
  const state = bytes(data.states), rare = bytes(data.rare), step = data.step;
  const value = (i) => raw[i] === missing ? NaN : data.low + (data.high - data.low) * raw[i] / 65534;

  // pyramid: smallest and largest value, and largest rare probability, of blocks of 8, 64, 512, ... points
  const levels = [{ size: 1, low: raw, high: raw, rare }];
  while (levels.at(-1).low.length > 64) {
    const last = levels.at(-1), m = Math.ceil(last.low.length / 8);
    const low = new Uint16Array(m).fill(missing), high = new Uint16Array(m).fill(missing), top = new Uint8Array(m);
    for (let i = 0; i < last.low.length; i++) {
      const j = i >> 3;
      if (last.low[i] !== missing && (low[j] === missing || last.low[i] < low[j])) low[j] = last.low[i];
      if (last.high[i] !== missing && (high[j] === missing || last.high[i] > high[j])) high[j] = last.high[i];
      if (last.rare[i] > top[j]) top[j] = last.rare[i];
    }
    levels.push({ size: last.size * 8, low, high, rare: top });
  }

  const series = document.getElementById("series"), below = document.getElementById("states");
  const left = 58, right = 8, view = { from: 0, to: n };
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // ---------------------------------------------------------------- axes
  const ticks = (low, high, count) => {
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    const unit = [1, 2, 5, 10].map((u) => u * power).find((u) => u >= rough);
    const out = [];
    for (let t = Math.ceil(low / unit) * unit; t <= high + 1e-9 * unit; t += unit) out.push(t);
    return out;
  };
  const number = (x) => {
    const size = Math.abs(x);
    return size !== 0 && (size >= 1e6 || size < 1e-3) ? x.toExponential(1) : String(+x.toPrecision(6));
  };
  const anchors = data.times; // [[row, milliseconds or number], ...] or null
  const timeAt = (row) => {
    let a = 0, b = anchors.length - 1;
    while (b - a > 1) {
      const mid = (a + b) >> 1;
      if (anchors[mid][0] <= row) a = mid; else b = mid;
    }
    const [r0, t0] = anchors[a], [r1, t1] = anchors[b];
    return r1 === r0 ? t0 : t0 + (t1 - t0) * (row - r0) / (r1 - r0);
  };
  const dated = (t, days) => {
    const text = new Date(t).toISOString();
    return days > 60 ? text.slice(0, 7) : days > 2 ? text.slice(0, 10) : days > 0.003
      ? text.slice(5, 16).replace("T", " ") : text.slice(11, 19);
  };
  // tick positions and labels of the time axis: round numbers, or evenly spaced dates
  const labels = (count) => {
    const span = view.to - view.from, here = (point) => anchors ? timeAt(point * step) : point * step;
    if (data.dates) {
      const days = (here(view.to) - here(view.from)) / count / 864e5;
      return Array.from({ length: count + 1 }, (_, k) => view.from + span * (k + 0.5) / (count + 1)).map((p) => [p, dated(here(p), days)]);
    }
    const first = here(view.from), last = here(view.to);
    const round = (t) => Number.isInteger(t) ? t.toLocaleString("en") : number(t);
    return ticks(first, last, count + 1).map((t) => [view.from + span * (t - first) / Math.max(last - first, 1e-300), round(t)]);
  };

  // ---------------------------------------------------------------- drawing
  const prepare = (canvas) => {
    const ratio = window.devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
    const g = canvas.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, w, h);
    g.font = "11px system-ui, sans-serif";
    return [g, w, h];
  };
  const columns = (width) => {
    const span = view.to - view.from;
    const level = levels.findLast((l) => l.size * width * 2 <= span) || levels[0];
    const out = [];
    for (let x = 0; x < width; x++) {
      const a = Math.floor((view.from + span * x / width) / level.size);
      const b = Math.max(a + 1, Math.floor((view.from + span * (x + 1) / width) / level.size));
      let low = missing, high = missing, top = 0;
      for (let i = Math.max(a, 0); i < Math.min(b, level.low.length); i++) {
        if (level.low[i] !== missing && (low === missing || level.low[i] < low)) low = level.low[i];
        if (level.high[i] !== missing && (high === missing || level.high[i] > high)) high = level.high[i];
        if (level.rare[i] > top) top = level.rare[i];
      }
      out.push([low, high, top]);
    }
    return out;
  };
  const draw = () => {
    const [g, w, h] = prepare(series), [s, , sh] = prepare(below);
    const width = Math.max(10, Math.floor(w - left - right)), span = view.to - view.from, foot = 20;
    const found = columns(width), few = span < width / 2;
    let low = missing, high = 0;
    for (const [a, b] of found) if (a !== missing) { low = Math.min(low, a); high = Math.max(high, b); }
    if (low === missing) { low = 0; high = 65534; }
    const scale = (data.high - data.low) / 65534, pad = Math.max(1, 0.05 * (high - low));
    const bottom = data.low + scale * (low - pad), top = data.low + scale * (high + pad);
    const y = (v) => 6 + (h - foot - 6) * (top - v) / (top - bottom), px = (i) => left + width * (i - view.from) / span;
    const ink = css("--ink"), soft = css("--soft"), line = css("--line"), mark = css("--mark");

    g.strokeStyle = line; g.fillStyle = soft; g.textAlign = "right"; g.textBaseline = "middle";
    for (const t of ticks(bottom, top, 5)) {
      g.beginPath(); g.moveTo(left, y(t)); g.lineTo(left + width, y(t)); g.stroke();
      g.fillText(number(t), left - 6, y(t));
    }
    g.textAlign = "center"; g.textBaseline = "alphabetic";
    for (const [at, text] of labels(width < 420 ? 2 : 5)) g.fillText(text, px(at), h - 5);
    g.fillStyle = mark; g.globalAlpha = 0.25;
    for (const e of data.events) {
      const a = px(e[0] / step), b = px((e[1] + 1) / step);
      if (b >= left && a <= left + width) g.fillRect(Math.max(a, left), 6, Math.max(1.5, Math.min(b, left + width) - Math.max(a, left)), h - foot - 6);
    }
    g.globalAlpha = 1;
    if (few) {
      g.strokeStyle = soft; g.lineWidth = 1; g.beginPath();
      let down = false;
      const first = Math.max(0, Math.floor(view.from)), last = Math.min(n - 1, Math.ceil(view.to));
      for (let i = first; i <= last; i++) {
        const v = value(i);
        if (Number.isNaN(v)) { down = false; continue; }
        if (down) g.lineTo(px(i + 0.5), y(v)); else g.moveTo(px(i + 0.5), y(v));
        down = true;
      }
      g.stroke();
      for (let i = first; i <= last; i++) {
        const v = value(i);
        if (Number.isNaN(v)) continue;
        g.fillStyle = data.colours[state[i]];
        g.beginPath(); g.arc(px(i + 0.5), y(v), 3, 0, 7); g.fill();
      }
    } else {
      found.forEach(([a, b, p], x) => {
        if (a === missing) return;
        const above = y(data.low + scale * b), under = y(data.low + scale * a);
        g.fillStyle = p > 127 ? mark : ink;
        g.fillRect(left + x, above, 1, Math.max(1, under - above));
      });
    }

    const strip = 12, floor = sh - strip - 4;
    s.fillStyle = soft; s.textAlign = "right"; s.textBaseline = "middle";
    for (const p of [0, 1]) s.fillText(String(p), left - 6, 8 + (floor - 8) * (1 - p));
    s.save(); s.translate(14, floor / 2 + 4); s.rotate(-Math.PI / 2); s.textAlign = "center";
    s.fillText("P(rare)", 0, 0); s.restore();
    s.strokeStyle = line; s.strokeRect(left + 0.5, 8.5, width - 1, floor - 8);
    s.fillStyle = mark;
    found.forEach(([, , p], x) => { if (p > 0) s.fillRect(left + x, 8 + (floor - 8) * (1 - p / 255), 1, (floor - 8) * p / 255); });
    for (let x = 0; x < width; x++) {
      const i = Math.min(n - 1, Math.max(0, Math.floor(view.from + span * (x + 0.5) / width)));
      s.fillStyle = data.colours[state[i]];
      s.fillRect(left + x, sh - strip, 1, strip);
    }
    series.dataset.from = (view.from * step).toFixed(1);
    series.dataset.to = (view.to * step).toFixed(1);
  };
  let waiting = false;
  const redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  };

  // ---------------------------------------------------------------- zooming and panning
  const show = (from, to) => {
    const span = Math.min(n, Math.max(Math.min(8, n), to - from));
    const begin = Math.min(n - span, Math.max(0, (from + to - span) / 2));
    view.from = begin; view.to = begin + span;
    redraw();
  };
  const zoom = (factor, at = 0.5) => {
    const span = view.to - view.from, middle = view.from + at * span;
    const wide = Math.min(n, Math.max(Math.min(8, n), span * factor)), begin = Math.min(n - wide, Math.max(0, middle - at * wide));
    view.from = begin; view.to = begin + wide;
    redraw();
  };
  const pan = (share) => {
    const span = view.to - view.from, begin = Math.min(n - span, Math.max(0, view.from + share * span));
    view.from = begin; view.to = begin + span;
    redraw();
  };
  const where = (event) => {
    const box = series.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left - left) / Math.max(10, box.width - left - right)));
  };
  for (const canvas of [series, below]) {
    const fingers = new Map();
    canvas.addEventListener("wheel", (e) => { e.preventDefault(); zoom(Math.exp(Math.sign(e.deltaY) * 0.25), where(e)); }, { passive: false });
    canvas.addEventListener("pointerdown", (e) => { fingers.set(e.pointerId, e.clientX); canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointermove", (e) => {
      if (!fingers.has(e.pointerId)) return;
      const before = [...fingers.values()];
      const moved = e.clientX - fingers.get(e.pointerId);
      fingers.set(e.pointerId, e.clientX);
      const after = [...fingers.values()];
      if (fingers.size === 2) zoom(Math.abs(before[0] - before[1]) / Math.max(1, Math.abs(after[0] - after[1])));
      else pan(-moved / Math.max(10, canvas.clientWidth - left - right));
    });
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (e) => fingers.delete(e.pointerId));
    canvas.addEventListener("dblclick", () => show(0, n));
  }
  const keys = {
    ArrowLeft: () => pan(-0.25), ArrowRight: () => pan(0.25), ArrowUp: () => zoom(0.5), ArrowDown: () => zoom(2),
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => show(0, n), Home: () => show(0, n),
  };
  series.addEventListener("keydown", (e) => { if (keys[e.key]) { e.preventDefault(); keys[e.key](); } });
  const buttons = { in: () => zoom(0.5), out: () => zoom(2), back: () => pan(-0.5), on: () => pan(0.5), all: () => show(0, n) };
  for (const [name, act] of Object.entries(buttons)) document.getElementById(`go-${name}`).addEventListener("click", act);
  for (const button of document.querySelectorAll("button.event")) {
    button.addEventListener("click", () => {
      const [a, b] = data.events[+button.dataset.event].map((row) => row / step);
      const around = Math.max(20, 2 * (b - a));
      show(a - around, b + 1 + around);
      for (const row of document.querySelectorAll("tr.here")) row.classList.remove("here");
      button.closest("tr").classList.add("here");
      series.scrollIntoView({ block: "nearest" });
    });
  }
  new ResizeObserver(redraw).observe(series);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.addEventListener("beforeprint", draw);
  draw();
})();
