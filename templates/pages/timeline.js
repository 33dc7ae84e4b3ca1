// A picture along time: rows of bars, arrows for channels, bands for parts of the time. It zooms, pans and tells figures.
const ROW = 26, AXIS = 22, BAND = 18, LEAST_PIXELS = 0.8, MOST_ARROWS = 60;
const WAITS = 1, GOES = 2, COMES = 4;

class TimeLine {
  /** `schedule` has the operations by text, `picture` what is drawn; `choose(op)` is called for a bar that is clicked. */
  constructor(host, picture, schedule, { name, choose = () => {}, stages = false, unit = "cycles" } = {}) {
    Object.assign(this, { host, picture, schedule, name, choose, stages, unit });
    this.view = [...picture.view];
    this.chosen = null;
    this.wanted = null;
    this.arrows = true;
    this.byRow = picture.rows.map(() => []);
    picture.bars.forEach((bar, place) => { bar.place = place; this.byRow[bar[0]].push(bar); });
    for (const bars of this.byRow) bars.sort((a, b) => a[1] - b[1]);
    this.tools();
    this.box = html("div", { class: "chart time", tabindex: "0", role: "group", "aria-label": `${name}. Arrow keys pan, plus and minus zoom, 0 shows all, n and p go from operation to operation.` });
    this.over = html("div", { class: "chart overview", "aria-hidden": "true" });
    this.said = html("p", { class: "faint", "aria-live": "polite" });
    host.append(this.box, ...(picture.bands.length ? [this.over] : []), this.said);
    this.events();
    watched(this.box, () => this.draw());
  }

  tools() {
    const button = (text, title, act) => {
      const made = html("button", { type: "button", title }, text);
      made.addEventListener("click", act);
      return made;
    };
    const bar = html("div", { class: "tools" },
      button("+", "zoom in", () => this.zoom(0.5)), button("−", "zoom out", () => this.zoom(2)));
    for (const band of this.picture.bands) {
      if (["prologue", "steady", "epilogue"].includes(band.kind)) {
        bar.append(button(band.name, `show the ${band.name}`, () => this.show(band)));
      }
    }
    bar.append(button("all", "show all", () => this.move(0, this.picture.total)));
    if (this.picture.arrows.length) {
      const check = html("input", { type: "checkbox", checked: "" });
      check.addEventListener("change", () => { this.arrows = check.checked; this.draw(); });
      bar.append(html("label", {}, check, "channels"));
    }
    const find = html("input", { type: "search", placeholder: "find an operation", "aria-label": `find an operation in: ${this.name}` });
    find.addEventListener("input", () => { this.wanted = find.value.trim().toLowerCase() || null; this.draw(); });
    bar.append(find);
    this.host.append(bar);
  }

  show(band) {
    const most = band.kind === "steady" ? 4.2 * this.schedule.ii : Infinity;
    const margin = 0.04 * Math.min(band.end - band.begin, most);
    this.move(band.begin - margin, Math.min(band.end, band.begin + most) + margin);
  }

  // --- moving ---------------------------------------------------------------------------------------

  move(begin, end) {
    const total = this.picture.total, size = clamp(end - begin, Math.min(20, total), total);
    const first = clamp(begin, 0, total - size);
    this.view = [first, first + size];
    this.later();
  }
  zoom(times, at = (this.view[0] + this.view[1]) / 2) {
    const [begin, end] = this.view;
    this.move(at - (at - begin) * times, at + (end - at) * times);
  }
  pan(share) {
    const size = this.view[1] - this.view[0];
    this.move(this.view[0] + share * size, this.view[1] + share * size);
  }
  later() {
    this.asked ??= requestAnimationFrame(() => { this.asked = null; this.draw(); });
  }
  get left() { return this.box.clientWidth < 600 ? 84 : 156; }
  at(x) {
    const [begin, end] = this.view, box = this.box.getBoundingClientRect();
    return begin + (x - box.left - this.left) / (box.width - this.left) * (end - begin);
  }

  events() {
    const held = { x: null, moved: false };
    this.box.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) {
        event.preventDefault();
        this.zoom(Math.exp((event.deltaY || event.deltaX) / 300), this.at(event.clientX));
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        this.pan(event.deltaX / this.box.clientWidth);
      }
    }, { passive: false });
    this.box.addEventListener("pointerdown", (event) => { held.x = event.clientX; held.moved = false; });
    this.box.addEventListener("pointermove", (event) => {
      if (held.x !== null && (held.moved || Math.abs(event.clientX - held.x) > 4)) {
        if (!held.moved) this.box.setPointerCapture(event.pointerId);
        held.moved = true;
        this.box.classList.add("held");
        tip.hide();
        this.pan((held.x - event.clientX) / (this.box.clientWidth - this.left));
        held.x = event.clientX;
        return;
      }
      const bar = this.barOf(event.target);
      if (bar) tip.show(this.words(bar), event.clientX, event.clientY); else tip.hide();
    });
    const let_go = () => { held.x = null; this.box.classList.remove("held"); };
    this.box.addEventListener("pointerup", let_go);
    this.box.addEventListener("pointercancel", let_go);
    this.box.addEventListener("pointerleave", () => { let_go(); tip.hide(); });
    this.box.addEventListener("click", (event) => {
      if (held.moved) { held.moved = false; return; }
      const bar = this.barOf(event.target);
      this.choose(bar && this.picture.ops[bar[3]] ? this.picture.ops[bar[3]] : null);
      if (bar) this.said.textContent = this.words(bar).replaceAll("\n", "; ");
    });
    this.box.addEventListener("dblclick", (event) => this.zoom(0.4, this.at(event.clientX)));
    this.box.addEventListener("keydown", (event) => this.key(event));
    const jump = (event) => {
      const box = this.over.getBoundingClientRect(), size = this.view[1] - this.view[0];
      const at = (event.clientX - box.left) / box.width * this.picture.total;
      this.move(at - size / 2, at + size / 2);
    };
    this.over.addEventListener("pointerdown", (event) => { this.over.setPointerCapture(event.pointerId); jump(event); });
    this.over.addEventListener("pointermove", (event) => { if (event.buttons) jump(event); });
  }

  key(event) {
    const keys = {
      ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), "+": () => this.zoom(0.6), "=": () => this.zoom(0.6),
      "-": () => this.zoom(1 / 0.6), 0: () => this.move(0, this.picture.total), Home: () => this.pan(-1e9), End: () => this.pan(1e9),
      n: () => this.next(1), p: () => this.next(-1), Escape: () => this.choose(null),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  }

  /** Choose the next operation, or the one before, and say its figures. */
  next(by) {
    const ops = this.picture.ops.filter((op) => op), place = ops.indexOf(this.chosen);
    const op = ops[(place + (place < 0 && by < 0 ? 0 : by) + ops.length) % ops.length];
    this.choose(op);
    const found = this.picture.bars.filter((bar) => this.picture.ops[bar[3]] === op && !(bar[6] & WAITS));
    const bar = found.find((one) => one[2] > this.view[0] && one[1] < this.view[1]) ?? found[0];
    if (!bar) return;
    if (bar[2] < this.view[0] || bar[1] > this.view[1]) this.pan((bar[1] - this.view[0]) / (this.view[1] - this.view[0]) - 0.2);
    this.said.textContent = this.words(bar).replaceAll("\n", "; ");
  }

  // --- words ----------------------------------------------------------------------------------------

  op(bar) { return this.schedule.ops[this.picture.ops[bar[3]]]; }
  barOf(target) {
    const place = target.closest?.("[data-bar]")?.dataset.bar;
    return place === undefined ? null : this.picture.bars[+place];
  }
  words(bar) {
    const [row, begin, end, , iteration, label, flags] = bar, op = this.op(bar), lines = [];
    if (op) lines.push(`${op.key}: ${flags & WAITS ? "waits before " : ""}${op.words}`);
    if (label) lines.push(label);
    if (op && this.stages) lines.push(`stage ${op.stage}, cycle ${number(op.cycle)} of ${number(this.schedule.ii)}`);
    else if (op && !label) lines.push(`iteration ${number(iteration)}`);
    lines.push(`${this.picture.rows[row].name}: ${number(begin)} to ${number(end)}, ${number(end - begin)} ${this.unit}`);
    if (op && op.issue !== undefined) lines.push(`issue ${number(op.issue)}, busy ${number(op.busy)}, result after ${number(op.latency)}`);
    if (flags & (GOES | COMES)) lines.push(flags & GOES ? "goes on at the interval's begin" : "has begun at the interval's end");
    return lines.join("\n");
  }
  finds(bar) {
    const op = this.op(bar), text = `${op?.key ?? ""} ${op?.words ?? ""} ${this.picture.ops[bar[3]]} ${bar[5]}`;
    return text.toLowerCase().includes(this.wanted);
  }

  // --- drawing --------------------------------------------------------------------------------------

  draw() {
    const width = this.box.clientWidth, [begin, end] = this.view, left = this.left;
    if (!width) return;
    const bands = this.picture.bands.length ? BAND : 0, top = AXIS + bands, height = top + ROW * this.picture.rows.length + 6;
    const x = (time) => left + (time - begin) / (end - begin) * (width - left - 1);
    const drawn = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${this.name}, ${this.unit} ${number(begin)} to ${number(end)}` });
    this.drawBands(drawn, x, top, height, width, left);
    this.drawAxis(drawn, x, begin, end, width, left, height, top);
    this.byRow.forEach((bars, row) => this.drawRow(drawn, bars, x, top + row * ROW, begin, end));
    if (this.arrows || this.chosen) this.drawArrows(drawn, x, top, begin, end);
    drawn.append(svg("rect", { class: "row-back", x: 0, y: 0, width: left, height }));
    this.picture.rows.forEach((row, place) => drawn.append(
      svg("line", { class: "row-line", x1: 0, x2: width, y1: top + place * ROW, y2: top + place * ROW }),
      svg("text", { x: 6, y: top + place * ROW + 17 }, svg("title", {}, row.name), fitted(row.name, left - 10, 6.6))));
    drawn.append(svg("text", { class: "faint", x: 6, y: 15 }, this.unit));
    drawn.classList.toggle("searching", this.wanted !== null);
    this.box.replaceChildren(drawn);
    this.drawOverview();
  }

  drawAxis(drawn, x, begin, end, width, left, height, top) {
    const every = step(end - begin, (width - left) / 90);
    for (let tick = Math.ceil(begin / every) * every; tick <= end; tick += every) {
      drawn.append(svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: AXIS - 5, y2: height }));
      const anchor = x(tick) > width - 30 ? "end" : x(tick) < left + 20 ? "start" : "middle";
      drawn.append(svg("text", { class: "faint", x: x(tick), y: 13, "text-anchor": anchor }, number(tick)));
    }
  }

  drawBands(drawn, x, top, height, width, left) {
    for (const band of this.picture.bands) {
      const first = clamp(x(band.begin), left, width), last = clamp(x(band.end), left, width);
      if (last - first < 0.5) continue;
      drawn.append(svg("rect", { class: `band ${band.kind}`, x: first, y: AXIS, width: last - first, height: height - AXIS, "data-band": band.kind }));
      drawn.append(svg("line", { class: "axis", x1: first, x2: first, y1: AXIS, y2: height }));
      const words = fitted(band.name, last - first - 6, 6.2);
      if (words.length > 3) drawn.append(svg("text", { class: "faint", x: first + 4, y: AXIS + 13 }, words));
    }
  }

  drawRow(drawn, bars, x, y, begin, end) {
    let until = -1;
    for (const bar of bars) {
      if (bar[2] < begin || bar[1] > end) continue;
      const first = Math.max(x(bar[1]), this.left - 2), last = Math.min(x(bar[2]), this.box.clientWidth + 2);
      const size = last - first;
      if (size < LEAST_PIXELS && first < until) continue;
      until = first + 1;
      drawn.append(this.bar(bar, first, Math.max(size, LEAST_PIXELS), y));
      const text = this.label(bar, size);
      if (text) drawn.append(svg("text", { class: "in-bar", x: first + size / 2, y: y + 17, "text-anchor": "middle" }, text));
    }
  }

  bar(bar, first, size, y) {
    const flags = bar[6], op = this.op(bar), text = this.picture.ops[bar[3]], thin = flags & WAITS;
    const gap = !text && bar[5] ? " gap" : "";
    return svg("rect", {
      class: `bar ${thin ? "waits" : op?.kind ?? ""}${gap}${text && text === this.chosen ? " chosen" : ""}${this.wanted !== null && this.finds(bar) ? " found" : ""}`,
      x: first, y: y + (thin ? 10 : 4), width: size, height: thin ? 6 : ROW - 8, rx: Math.min(2, size / 3),
      "data-bar": bar.place, "data-op": text, "data-begin": bar[1], "data-end": bar[2], "data-iteration": bar[4],
      "data-row": this.picture.rows[bar[0]].name, "data-waits": thin ? "1" : undefined,
    });
  }

  label(bar, size) {
    if (bar[6] & WAITS || size < 18) return "";
    const op = this.op(bar);
    if (!op || op.kind === "epilogue") return fitted(bar[5], size - 4, 6);
    const long = this.stages ? `${op.key}·${op.stage}` : bar[5] ? op.key : `${op.key} ${bar[4]}`;
    return long.length * 6.2 < size ? long : op.key.length * 6.2 < size ? op.key : "";
  }

  drawArrows(drawn, x, top, begin, end) {
    const seen = this.picture.arrows.filter((one) => Math.max(one[3], one[5]) >= begin && Math.min(one[3], one[5]) <= end);
    const of = (one) => this.chosen && (this.picture.ops[one[0]] === this.chosen || this.picture.ops[one[1]] === this.chosen);
    const shown = this.chosen ? seen.filter(of) : this.arrows && seen.length <= MOST_ARROWS ? seen : [];
    for (const one of shown) {
      const [, , fromRow, told, toRow, start] = one, back = this.stages && start < told;
      const y1 = top + fromRow * ROW + ROW / 2, y2 = top + toRow * ROW + ROW / 2;
      const ends = back ? [[told, this.schedule.ii, y1, (y1 + y2) / 2], [0, start, (y1 + y2) / 2, y2]] : [[told, start, y1, y2]];
      ends.forEach(([from, to, ya, yb], place) => this.arrow(drawn, x(from), x(to), ya, yb, of(one), place === ends.length - 1, one));
    }
  }

  arrow(drawn, x1, x2, y1, y2, chosen, head, one) {
    const bend = Math.max(8, Math.abs(x2 - x1) / 2), extra = chosen ? " chosen" : "";
    drawn.append(svg("path", {
      class: `arrow${extra}`, d: `M${x1} ${y1}C${x1 + bend / 2} ${y1} ${x2 - bend / 2} ${y2} ${x2} ${y2}`,
      "data-from": this.picture.ops[one[0]], "data-to": this.picture.ops[one[1]], "data-slack": one[7],
    }));
    if (head) drawn.append(svg("path", { class: `arrow-head${extra}`, d: `M${x2} ${y2}l-6 -3v6z` }));
  }

  drawOverview() {
    const width = this.over.clientWidth, total = this.picture.total, height = 24;
    const x = (time) => time / total * width;
    const drawn = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
    for (const band of this.picture.bands) {
      drawn.append(svg("rect", { class: `band ${band.kind}`, x: x(band.begin), y: 0, width: x(band.end - band.begin), height }));
      drawn.append(svg("line", { class: "axis", x1: x(band.begin), x2: x(band.begin), y1: 0, y2: height }));
      const words = fitted(band.name, x(band.end - band.begin) - 6, 6.2);
      if (words.length > 3) drawn.append(svg("text", { class: "faint", x: x(band.begin) + 4, y: 16 }, words));
    }
    drawn.append(svg("rect", { class: "window", x: x(this.view[0]), y: 1, width: Math.max(3, x(this.view[1] - this.view[0])), height: height - 2 }));
    this.over.replaceChildren(drawn);
  }

  mark(op) { this.chosen = op; this.draw(); }
}
