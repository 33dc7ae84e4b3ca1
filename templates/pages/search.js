// The search as a picture: every structure a dot by the bound of its time, in the lane of how its part ended.
const ENDINGS = ["solved", "open", "rejected", "pruned", "infeasible"];
const ENDING_WORDS = {
  solved: "solved", pruned: "dropped by its bound", infeasible: "infeasible", rejected: "rejected by the compiler", open: "left open",
};

/** The columns of search.json as functions of a structure's number. */
function columnsOf(every) {
  const digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", found = {};
  for (const column of every.columns) {
    found[column.name] = column.each ? (place) => column.each[place] : (place) => column.values[digits.indexOf(column.places[place])];
  }
  return found;
}

/** A share between 0 and 1 that looks like chance and is always the same for a number. */
const scattered = (place) => Math.abs(Math.sin(place * 12.9898 + 1) * 43758.5453) % 1;

class SearchPicture {
  constructor(host, search) {
    this.search = search;
    this.columns = columnsOf(search.every);
    this.count = search.every.count;
    this.host = host;
    this.asked_for = [];
    this.box = html("div", { class: "chart time", tabindex: "0", role: "group", "aria-label": "every structure of the search by its bound; arrow keys pan, plus and minus zoom, 0 shows all" });
    this.canvas = this.box.appendChild(html("canvas", { role: "img", "aria-label": this.words() }));
    this.said = html("p", { class: "faint", "aria-live": "polite" });
    this.tools();
    host.append(this.box, this.said);
    this.place();
    this.events();
    watched(this.box, () => this.draw());
    document.addEventListener("theme", () => this.draw());
  }

  words() {
    const count = this.search.counts;
    return `${number(count.considered)} structures: ${number(count.solved)} solved, ${number(count.pruned)} dropped by bound, ${number(count.infeasible)} infeasible`;
  }

  /** Every structure's place: the logarithm of its bound, and its lane with a little disorder. */
  place() {
    const { bound_us: bound, ending } = this.columns, known = [];
    for (let place = 0; place < this.count; place++) if (bound(place)) known.push(bound(place));
    const first = known.reduce((a, b) => Math.min(a, b), this.search.us), last = known.reduce((a, b) => Math.max(a, b), this.search.us);
    this.range = [Math.log(first), Math.log(Math.max(last, first * 1.01))];
    this.whole = [this.range[0] - 0.03 * (this.range[1] - this.range[0]), this.range[1] + 0.03 * (this.range[1] - this.range[0])];
    this.view = [...this.whole];
    this.lanes = ENDINGS.filter((one) => { for (let place = 0; place < this.count; place++) if (ending(place) === one) return true; return false; });
    this.xs = new Float64Array(this.count);
    this.lane = new Uint8Array(this.count);
    this.jitter = new Float32Array(this.count);
    for (let place = 0; place < this.count; place++) {
      // Without a bound a structure has no place along the axis: those stand side by side in their lane.
      this.xs[place] = bound(place) ? Math.log(bound(place)) : NaN;
      this.lane[place] = this.lanes.indexOf(ending(place));
      this.jitter[place] = scattered(place);
    }
    this.of_lane = this.lanes.map(() => []);
    this.lane.forEach((lane, place) => this.of_lane[lane].push(place));
  }

  tools() {
    const button = (text, title, act) => { const made = html("button", { type: "button", title }, text); made.addEventListener("click", act); return made; };
    const find = html("input", { type: "search", placeholder: "such as columns=256", "aria-label": "show structures with these fields" });
    find.addEventListener("input", () => { this.ask(find.value); this.draw(); });
    this.host.append(html("div", { class: "tools" }, button("+", "zoom in", () => this.zoom(0.5)), button("−", "zoom out", () => this.zoom(2)), button("all", "show all", () => { this.view = [...this.whole]; this.draw(); }), find));
  }

  /** Ask for structures with fields, as in "columns=256,consumers=2"; what is no field is passed over. */
  ask(text) {
    const pairs = text.split(",").map((one) => one.split("=").map((word) => word.trim()));
    this.asked_for = pairs.filter(([field, value]) => value && Object.hasOwn(this.columns, field));
  }
  /** Whether a structure has the fields that were asked for. */
  has(place) {
    return this.asked_for.every(([field, value]) => `${this.columns[field](place)}` === value);
  }

  zoom(times, at = (this.view[0] + this.view[1]) / 2) {
    const [begin, end] = this.view, size = clamp((end - begin) * times, 1e-4, this.whole[1] - this.whole[0]);
    const first = clamp(at - (at - begin) / (end - begin) * size, this.whole[0], this.whole[1] - size);
    this.view = [first, first + size];
    this.later();
  }
  pan(share) {
    const size = this.view[1] - this.view[0], first = clamp(this.view[0] + share * size, this.whole[0], this.whole[1] - size);
    this.view = [first, first + size];
    this.later();
  }
  later() { this.asked ??= requestAnimationFrame(() => { this.asked = null; this.draw(); }); }

  events() {
    let held = null;
    const at = (event) => this.view[0] + (event.offsetX - this.left) / (this.box.clientWidth - this.left) * (this.view[1] - this.view[0]);
    this.box.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
      event.preventDefault();
      this.zoom(Math.exp((event.deltaY || event.deltaX) / 300), at(event));
    }, { passive: false });
    this.box.addEventListener("pointerdown", (event) => { held = event.clientX; });
    this.box.addEventListener("pointerup", () => { held = null; });
    this.box.addEventListener("pointerleave", () => { held = null; tip.hide(); });
    this.box.addEventListener("pointermove", (event) => {
      if (held !== null && event.buttons) { this.pan((held - event.clientX) / this.box.clientWidth); held = event.clientX; return; }
      const place = this.nearest(event.offsetX, event.offsetY);
      if (place === null) tip.hide(); else tip.show(this.tell(place), event.clientX, event.clientY);
    });
    this.box.addEventListener("click", (event) => {
      const place = this.nearest(event.offsetX, event.offsetY);
      if (place !== null) this.said.textContent = this.tell(place).replaceAll("\n", "; ");
    });
    this.box.addEventListener("dblclick", (event) => this.zoom(0.4, at(event)));
    this.box.addEventListener("keydown", (event) => {
      const keys = { ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1 / 0.6), 0: () => this.zoom(1e9) };
      if (keys[event.key] && !event.ctrlKey && !event.metaKey) { event.preventDefault(); keys[event.key](); }
    });
  }

  get left() { return this.box.clientWidth < 600 ? 96 : 150; }
  at(place, left = this.left, wide = this.box.clientWidth) {
    const top = 8 + this.lane[place] * LANE, width = wide - left - 10;
    const share = Number.isNaN(this.xs[place]) ? this.jitter[place] : (this.xs[place] - this.view[0]) / (this.view[1] - this.view[0]);
    const down = Number.isNaN(this.xs[place]) ? scattered(place + 0.5) : this.jitter[place];
    return [left + share * width, top + 6 + down * (LANE - 14)];
  }

  draw() {
    const width = this.box.clientWidth, height = this.lanes.length * LANE + 34, ratio = devicePixelRatio || 1;
    if (!width) return;
    this.canvas.width = width * ratio; this.canvas.height = height * ratio; this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d"), colours = getComputedStyle(document.documentElement), colour = (name) => colours.getPropertyValue(`--${name}`).trim();
    pen.scale(ratio, ratio);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui, sans-serif";
    this.axis(pen, width, height, colour);
    pen.save();
    pen.beginPath(); pen.rect(this.left - 4, 0, width - this.left + 4, height); pen.clip();
    this.seen = [];
    const left = this.left, all = this.asked_for.length === 0;
    for (const lane of [...this.lanes.keys()].reverse()) {
      const solved = this.lanes[lane] === "solved";
      pen.fillStyle = colour(this.lanes[lane]);
      pen.globalAlpha = solved ? 1 : 0.55;
      for (const place of this.of_lane[lane]) {
        if (!all && !this.has(place)) continue;
        const [x, y] = this.at(place, left, width);
        if (x < left - 4 || x > width) continue;
        this.seen.push(place);
        // There are thousands: squares on whole pixels are drawn far faster than circles.
        if (!solved) { pen.fillRect(Math.round(x) - 2, Math.round(y) - 2, 4, 4); continue; }
        this.outcome(pen, place, x, y);
        pen.beginPath(); pen.arc(x, y, 4.5, 0, 7); pen.fill();
      }
    }
    pen.globalAlpha = 1;
    this.best(pen, height, colour);
    pen.restore();
    this.box.dataset.seen = this.seen.length;
  }

  /** From a solved structure's bound to the time of its schedule. */
  outcome(pen, place, x, y) {
    const us = this.columns.us(place);
    if (!us) return;
    pen.strokeStyle = pen.fillStyle; pen.lineWidth = 1.5;
    pen.beginPath(); pen.moveTo(x, y); pen.lineTo(this.of(us), y); pen.moveTo(this.of(us), y - 4); pen.lineTo(this.of(us), y + 4); pen.stroke();
  }
  of(us) { return this.left + (Math.log(us) - this.view[0]) / (this.view[1] - this.view[0]) * (this.box.clientWidth - this.left - 10); }

  best(pen, height, colour) {
    const x = this.of(this.search.us);
    pen.strokeStyle = colour("solved"); pen.setLineDash([4, 3]); pen.lineWidth = 1;
    pen.beginPath(); pen.moveTo(x, 0); pen.lineTo(x, height - 24); pen.stroke(); pen.setLineDash([]);
  }

  axis(pen, width, height, colour) {
    this.lanes.forEach((lane, place) => {
      pen.fillStyle = colour("ink");
      pen.fillText(fitted(ENDING_WORDS[lane], this.left - 10, 6.2), 6, 8 + place * LANE + LANE / 2 + 4);
      pen.strokeStyle = colour("line");
      pen.beginPath(); pen.moveTo(0, 8 + (place + 1) * LANE); pen.lineTo(width, 8 + (place + 1) * LANE); pen.stroke();
    });
    const first = Math.exp(this.view[0]), last = Math.exp(this.view[1]), ticks = [];
    if (last / first < 4) { const every = step(last - first, 6); for (let tick = Math.ceil(first / every) * every; tick <= last; tick += every) ticks.push(tick); }
    else for (let power = Math.floor(Math.log10(first)); power <= Math.log10(last); power++) for (const factor of [1, 2, 5]) ticks.push(factor * 10 ** power);
    pen.fillStyle = colour("faint");
    let until = -1;
    for (const tick of ticks) {
      const x = this.of(tick), text = `${Number(tick.toPrecision(4))} us`, size = pen.measureText(text).width;
      if (x < this.left || x + size / 2 > width || x - size / 2 < until) continue;
      until = x + size / 2 + 12;
      pen.fillText(text, x - size / 2, height - 6);
      pen.strokeStyle = colour("line");
      pen.beginPath(); pen.moveTo(x, 0); pen.lineTo(x, height - 22); pen.stroke();
    }
  }

  nearest(x, y) {
    let found = null, least = 81;
    for (const place of this.seen ?? []) {
      const [px, py] = this.at(place), far = (px - x) ** 2 + (py - y) ** 2;
      if (far < least) { least = far; found = place; }
    }
    return found;
  }

  tell(place) {
    const c = this.columns, us = c.us(place), bound = c.bound_us(place), lines = [];
    lines.push(`${c.rows(place)}x${c.columns(place)}x${c.depth(place)}, ${c.consumers(place)} consumer(s) of ${c.consumer_warps(place)} warps, ${c.sharing(place).replace("_", "-")}`);
    lines.push(`${c.persistent(place) ? "persistent" : "one tile a block"}, subtiles ${c.subtiles(place)}, group ${c.group(place)}${c.splits(place) > 1 ? `, splits ${c.splits(place)}` : ""}${c.swap(place) ? ", swapped" : ""}`);
    lines.push(ENDING_WORDS[c.ending(place)] + (c.reason(place) ? `: ${c.reason(place)}` : ""));
    if (bound) lines.push(`bound ${number(bound, 2)} us`);
    if (us) lines.push(`predicted ${number(us, 2)} us, II ${number(c.ii(place))}`);
    return lines.join("\n");
  }
}
const LANE = 62;
