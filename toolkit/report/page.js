"use strict";
// Lets a reader look along the curves of a chart, zoom and change the scale, and show the images behind a cell.
// Without it the page has everything but that. `chart.py` has the same geometry.

const SIDE = 1000, TICKS = 5, SVG = "http://www.w3.org/2000/svg";

function make(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function findStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * (1 - 1e-9));
}

function format(value, digits, unit) {
  if (unit === "%") return `${(100 * value).toFixed(digits)} %`;
  const size = Math.abs(value);
  if (value && !(size >= 1e-4 && size < 1e7)) return value.toExponential(1);
  const text = value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return unit ? `${text} ${unit}` : text;
}

function show(value, unit) {
  if (unit === "%") return `${(100 * value).toFixed(2)} %`;
  return `${Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(4))}${unit ? ` ${unit}` : ""}`;
}

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.data = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    this.canvas = figure.querySelector(".canvas");
    this.frame = figure.querySelector(".frame");
    this.tip = figure.querySelector(".tip");
    this.cursor = figure.querySelector(".cursor");
    this.chosen = figure.querySelector(".chosen");
    this.log = false;
    const places = this.data.series.flatMap((each) => each.xs);
    this.all = this.data.square ? [0, 1] : this.widen(places.reduce((a, b) => Math.min(a, b)), places.reduce((a, b) => Math.max(a, b)));
    this.range = this.all;
    this.xs = [...new Set(places)].sort((a, b) => a - b);
    this.at = -1;
    this.hidden = new Set();
    this.prepare();
    this.prepareLegend();
  }

  // Each name becomes a button that hides its curve.
  prepareLegend() {
    this.figure.querySelectorAll(".legend li").forEach((item, number) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.append(...item.childNodes);
      item.append(button);
      button.addEventListener("click", () => {
        const shown = this.hidden.delete(number) || this.hidden.size + 1 === this.data.series.length;
        if (!shown) this.hidden.add(number);
        button.setAttribute("aria-pressed", shown);
        this.draw();
      });
    });
  }

  prepare() {
    const { canvas, figure } = this;
    for (const each of figure.querySelectorAll(".tools, .help")) each.hidden = false;
    canvas.tabIndex = 0;
    // A slider over the places of the curves: arrows move it, and its value is read out.
    canvas.setAttribute("role", "slider");
    canvas.setAttribute("aria-valuemin", this.xs[0]);
    canvas.setAttribute("aria-valuemax", this.xs[this.xs.length - 1]);
    this.announce(this.xs.length - 1);
    figure.querySelector(".tools").addEventListener("click", (event) => this.act(event.target.dataset.do));
    canvas.addEventListener("keydown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerdown", (event) => this.begin(event));
    canvas.addEventListener("pointerup", (event) => this.end(event));
    canvas.addEventListener("pointercancel", () => this.drop());
    canvas.addEventListener("pointerleave", () => { if (this.start === undefined) this.look(-1); });
    canvas.addEventListener("dblclick", () => this.act("reset"));
    canvas.addEventListener("blur", () => this.look(-1));
  }

  widen(low, high) {
    return low === high ? [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2] : [low, high];
  }

  act(what) {
    if (what === "log") {
      this.log = !this.log;
      this.figure.querySelector("[data-do=log]").setAttribute("aria-pressed", this.log);
    } else if (what === "reset") this.range = this.all;
    else if (what === "in") this.zoom(0.5);
    else if (what === "out") this.zoom(2);
    else return;
    this.figure.querySelector("[data-do=reset]").disabled = this.range === this.all;
    this.draw();
  }

  zoom(factor) {
    const middle = this.at >= 0 ? this.xs[this.at] : (this.range[0] + this.range[1]) / 2;
    const half = ((this.range[1] - this.range[0]) * factor) / 2;
    this.choose(middle - half, middle + half);
  }

  choose(low, high) {
    const width = high - low, [first, last] = this.all;
    if (width >= last - first) { this.range = this.all; return; }
    if (width < (last - first) / 500) return;
    const start = Math.min(Math.max(low, first), last - width);
    this.range = [start, start + width];
  }

  press(event) {
    const step = event.shiftKey ? 10 : 1, last = this.xs.length - 1;
    const here = this.at < 0 ? last : this.at;
    const moves = { ArrowLeft: here - step, ArrowRight: here + step, Home: 0, End: last };
    const acts = { "+": "in", "=": "in", "-": "out", 0: "reset", l: "log", L: "log" };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") this.look(-1);
    else if (event.key in moves) this.look(Math.min(Math.max(moves[event.key], 0), last));
    else if (event.key in acts && (acts[event.key] !== "log" || this.figure.querySelector("[data-do=log]"))) this.act(acts[event.key]);
    else return;
    event.preventDefault();
  }

  share(event) {
    const box = this.frame.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
  }

  value(share) { return this.range[0] + share * (this.range[1] - this.range[0]); }

  begin(event) {
    if (event.button || event.pointerType === "touch") return;
    this.start = this.share(event);
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    const share = this.share(event);
    if (this.start !== undefined && Math.abs(share - this.start) > 0.01) {
      const attributes = { x: `${100 * Math.min(share, this.start)}%`, width: `${100 * Math.abs(share - this.start)}%`, y: 0, height: "100%" };
      for (const [key, value] of Object.entries(attributes)) this.chosen.setAttribute(key, value);
      this.chosen.removeAttribute("hidden");
    }
    this.look(this.nearest(this.value(share)));
  }

  end(event) {
    const share = this.share(event), start = this.start;
    this.drop();
    if (start === undefined || Math.abs(share - start) < 0.02) return;
    this.choose(this.value(Math.min(share, start)), this.value(Math.max(share, start)));
    this.figure.querySelector("[data-do=reset]").disabled = this.range === this.all;
    this.draw();
  }

  drop() {
    this.start = undefined;
    this.chosen.setAttribute("hidden", "");
  }

  nearest(x) {
    let low = 0, high = this.xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.xs[middle] < x) low = middle; else high = middle;
    }
    return Math.abs(this.xs[low] - x) <= Math.abs(this.xs[high] - x) ? low : high;
  }

  read(x) {
    return this.data.series.map((each, number) => {
      const place = each.xs.indexOf(x);
      return place < 0 || this.hidden.has(number) ? null : { number, name: each.name, text: show(each.ys[place], this.data.unit) };
    }).filter(Boolean);
  }

  announce(at) {
    const x = this.xs[at], said = this.read(x).map((each) => `${each.name} ${each.text}`);
    this.canvas.setAttribute("aria-valuenow", x);
    this.canvas.setAttribute("aria-valuetext", `${this.data.x} ${show(x, this.data.x_unit)}: ${said.join(", ")}`);
  }

  look(at) {
    this.at = at;
    const there = at >= 0;
    this.tip.hidden = !there;
    this.cursor.toggleAttribute("hidden", !there);
    if (!there) return;
    const x = this.xs[at], share = (x - this.range[0]) / (this.range[1] - this.range[0]);
    if (share < 0 || share > 1) { // the keyboard has left what is shown
      const half = (this.range[1] - this.range[0]) / 2;
      this.choose(x - half, x + half);
      this.draw();
      return;
    }
    for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, `${100 * share}%`);
    const title = document.createElement("b");
    title.textContent = `${this.data.x} ${show(x, this.data.x_unit)}`;
    this.tip.replaceChildren(title, ...this.read(x).map((each) => this.tell(each)));
    const box = this.frame.getBoundingClientRect(), around = this.canvas.getBoundingClientRect();
    const left = box.left - around.left + share * box.width, wide = this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, share > 0.5 ? left - wide - 12 : Math.min(left + 12, around.width - wide))}px`;
    this.announce(at);
  }

  tell(each) {
    const line = document.createElement("span"), name = document.createElement("i"), value = document.createElement("em");
    const color = this.frame.querySelectorAll(".plot > g")[each.number].classList[0];
    name.className = color;
    name.textContent = each.name;
    value.textContent = each.text;
    line.append(name, value);
    return line;
  }

  span() {
    if (this.data.square) return [0, 1];
    let low = Infinity, high = -Infinity;
    for (const [number, each] of this.data.series.entries()) {
      if (this.hidden.has(number)) continue;
      each.xs.forEach((x, i) => {
        if (x < this.range[0] || x > this.range[1]) return;
        for (const y of [each.ys[i], ...(each.band[i] || [])]) {
          if (this.log && !(y > 0)) continue;
          low = Math.min(low, y);
          high = Math.max(high, y);
        }
      });
    }
    if (low > high) [low, high] = this.log ? [0.1, 1] : [0, 1];
    if (this.log) {
      [low, high] = this.widen(Math.log10(low), Math.log10(high));
      return [low - 0.05 * (high - low), high + 0.05 * (high - low)];
    }
    const bottom = this.data.bottom;
    [low, high] = this.widen(bottom === null ? low : Math.min(low, bottom), high);
    const room = 0.06 * (high - low);
    return [bottom === null ? low - room : bottom, high + room];
  }

  ticks([low, high], unit) {
    const step = findStep((high - low) / TICKS), found = [];
    const digits = Math.max(0, -Math.floor(Math.log10(step * (unit === "%" ? 100 : 1)) + 1e-9));
    for (let n = Math.ceil(low / step - 1e-9); n <= Math.floor(high / step + 1e-9); n++) found.push([n * step, format(n * step || 0, digits, unit)]);
    return found;
  }

  powers([low, high], unit) {
    const found = [], factors = high - low > 3 ? [1] : [1, 2, 5];
    for (let power = Math.floor(low); power <= high; power++) {
      for (const factor of factors) {
        const place = Math.log10(factor) + power, value = 10 ** place;
        if (place >= low && place <= high) found.push([place, unit === "%" ? `${Number((100 * value).toPrecision(2))} %` : String(Number(value.toPrecision(2)))]);
      }
    }
    return found;
  }

  draw() {
    const up = this.span(), [first, last] = this.range;
    const across = (x) => (x - first) / (last - first);
    const place = (y) => 1 - ((this.log ? Math.log10(Math.max(y, 1e-300)) : y) - up[0]) / (up[1] - up[0]);
    const grid = this.frame.querySelector(".grid");
    grid.replaceChildren();
    for (const [y, label] of this.log ? this.powers(up, this.data.unit) : this.ticks(up, this.data.unit)) {
      const at = `${100 * (1 - (y - up[0]) / (up[1] - up[0]))}%`;
      grid.append(make("line", { x1: 0, x2: "100%", y1: at, y2: at }), make("text", { class: "ty", x: 0, y: at, dx: -8, dy: 4 }, label));
    }
    for (const [x, label] of this.ticks(this.range, this.data.x_unit)) grid.append(make("text", { class: "tx", x: `${100 * across(x)}%`, y: "100%", dy: 20 }, label));
    const point = (x, y) => `${(SIDE * across(x)).toFixed(1)} ${(SIDE * place(y)).toFixed(1)}`;
    const groups = this.frame.querySelectorAll(".plot > g"), dots = this.frame.querySelectorAll(".dots");
    this.data.series.forEach((each, number) => {
      const hidden = this.hidden.has(number);
      const kept = hidden ? [] : each.xs.map((_, i) => i).filter((i) => !this.log || each.ys[i] > 0);
      const points = kept.map((i) => point(each.xs[i], each.ys[i]));
      groups[number].querySelector(".line").setAttribute("d", points.length ? `M${points.join("L")}` : "");
      const banded = each.band.length ? kept : [];
      const there = banded.map((i) => point(each.xs[i], each.band[i][1]));
      const back = banded.map((i) => point(each.xs[i], this.log ? Math.max(each.band[i][0], 10 ** up[0]) : each.band[i][0])).reverse();
      groups[number].querySelector(".area").setAttribute("d", there.length ? `M${[...there, ...back].join("L")}Z` : "");
      if (!dots[number].dataset.kept && !dots[number].childElementCount) return;
      dots[number].dataset.kept = "1";
      dots[number].replaceChildren(...kept.filter((i) => each.xs[i] >= first && each.xs[i] <= last)
        .map((i) => make("circle", { cx: `${100 * across(each.xs[i])}%`, cy: `${100 * place(each.ys[i])}%`, r: each.radii[i] || 2.5 })));
    });
    const diagonal = this.frame.querySelector(".diagonal");
    if (diagonal) diagonal.setAttribute("d", `M${point(first, first)}L${point(last, last)}`);
    this.look(this.at);
  }
}

function filter(sheet) {
  const tiles = [...sheet.querySelectorAll("li")], said = sheet.querySelector("[data-said]"), button = sheet.querySelector("[data-all]");
  const whole = said.textContent;
  function pick(link) {
    let count = 0;
    for (const tile of tiles) {
      tile.hidden = link !== null && tile.dataset.cell !== link.dataset.cell;
      count += !tile.hidden;
    }
    said.textContent = link === null ? whole : `${count} of the ${link.textContent} images behind this cell are among those with the highest loss.`;
    button.hidden = link === null;
  }
  for (const link of document.querySelectorAll("a[data-cell]")) link.addEventListener("click", () => pick(link));
  button.addEventListener("click", () => pick(null));
}

for (const figure of document.querySelectorAll("[data-chart]")) new Chart(figure);
for (const sheet of document.querySelectorAll("[data-sheet]")) filter(sheet);

const opened = [];
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("details.fold:not(.document, [open], #configuration *)")) { each.open = true; opened.push(each); }
});
addEventListener("afterprint", () => { while (opened.length) opened.pop().open = false; });
