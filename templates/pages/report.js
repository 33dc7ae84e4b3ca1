// The page of many builds: a table that sorts and filters, a roofline with all, predictions beside measurements.
const us = (value) => (value >= 100 ? number(value, 1) : number(value, 2));
const best = (entry) => entry.measured?.median_us ?? entry.predicted_us;

/** The columns of the table: a head, the value that sorts, and its text. */
function columnsOfTable(data) {
  const rate = (per) => (entry) => (per(entry) && best(entry) ? per(entry) / best(entry) : null);
  const column = (head, value, text, kind = "") => ({ head, value, text, kind });
  return [
    column("kernel", (one) => one.name, (value) => value, "words"),
    column("measured us", (one) => one.measured?.median_us ?? null, us),
    column("spread", (one) => one.measured && (one.measured.upper_us - one.measured.lower_us) / 2 / one.measured.median_us, (value) => `±${percent(value)}`),
    column("predicted us", (one) => one.predicted_us, us),
    column("off", (one) => one.measured && one.predicted_us ? one.measured.median_us / one.predicted_us - 1 : null, (value) => `${value < 0 ? "−" : "+"}${percent(Math.abs(value))}`),
    column("of roofline", (one) => one.roofline_us && best(one) ? one.roofline_us / best(one) : null, (value) => percent(value, 0)),
    column("TFLOP/s", rate((one) => one.flops && one.flops / 1e6), (value) => number(value)),
    column("GB/s", rate((one) => one.bytes && one.bytes / 1e3), (value) => number(value)),
    ...data.baselines.map((name) => column(`vs ${name}`, (one) => one.ratios[name]?.[0] ?? null, (value, one) => {
      const spread = one.ratios[name][1];
      return `${number(value, 3)}${spread ? ` ±${percent(spread / 2 / value)}` : ""}`;
    })),
    column("bound by", (one) => one.bound_by || null, (value) => value, "words"),
    column("status", (one) => one.status, (value) => value, "words"),
    column("from", (one) => one.source, (value) => value, "words"),
  ].filter((one) => one.head === "kernel" || data.entries.some((entry) => one.value(entry) !== null));
}

class Table {
  constructor(host, data) {
    this.entries = data.entries;
    this.columns = columnsOfTable(data);
    this.by = null;
    this.down = false;
    this.wanted = "";
    this.heads = this.columns.map((column) => {
      const button = html("button", { type: "button" }, column.head);
      button.addEventListener("click", () => this.sort(column));
      return html("th", { class: column.kind, scope: "col" }, button);
    });
    this.body = html("tbody");
    host.append(html("table", {}, html("thead", {}, html("tr", {}, ...this.heads)), this.body));
    const filter = document.querySelector(".filter");
    filter.addEventListener("input", () => { this.wanted = filter.value.trim().toLowerCase(); this.draw(); });
    this.draw();
  }

  sort(column) {
    this.down = this.by === column ? !this.down : false;
    this.by = column;
    this.draw();
  }

  draw() {
    const shown = this.entries.filter((one) => `${one.name} ${one.source} ${one.structure}`.toLowerCase().includes(this.wanted));
    if (this.by) {
      const order = (a, b) => (typeof a === "string" ? a.localeCompare(b, "en") : a - b);
      // What has no value stands last, whichever way the others go.
      shown.sort((a, b) => {
        const [one, other] = [this.by.value(a), this.by.value(b)];
        if (one === null || other === null) return (one === null) - (other === null);
        return this.down ? order(other, one) : order(one, other);
      });
    }
    this.heads.forEach((head, place) => head.setAttribute("aria-sort", this.columns[place] !== this.by ? "none" : this.down ? "descending" : "ascending"));
    this.body.replaceChildren(...shown.map((one) => html("tr", { title: one.structure || undefined }, ...this.columns.map((column) => {
      const value = column.value(one);
      return html("td", { class: column.kind }, value === null ? "" : column.text(value, one));
    }))));
    document.querySelector(".found-rows").textContent = this.wanted ? `${shown.length} of ${this.entries.length}` : "";
  }
}

/** Predicted against measured time, both logarithmic, with the line on which they are equal. */
function modelPicture(host, entries) {
  const seen = entries.filter((one) => one.measured && one.predicted_us);
  if (!seen.length) { host.append(html("p", { class: "faint" }, "None of these was measured.")); return; }
  const chart = host.appendChild(html("div", { class: "chart", role: "group", "aria-label": "predicted and measured times" }));
  const every = seen.flatMap((one) => [one.predicted_us, one.measured.median_us]), log = Math.log10;
  const first = log(Math.min(...every)) - 0.1, last = log(Math.max(...every)) + 0.1;
  watched(chart, (width) => {
    const height = 300, left = 60, bottom = height - 30;
    const x = (value) => left + (log(value) - first) / (last - first) * (width - left - 12), y = (value) => bottom - (log(value) - first) / (last - first) * (bottom - 10);
    const drawn = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${seen.length} kernels, predicted and measured` });
    for (let power = Math.ceil(first); power <= last; power++) {
      const tick = 10 ** power;
      drawn.append(svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 6, y2: bottom }), svg("line", { class: "grid", x1: left, x2: width, y1: y(tick), y2: y(tick) }));
      drawn.append(svg("text", { class: "faint", x: x(tick), y: bottom + 13, "text-anchor": "middle" }, `${number(tick)} us`), svg("text", { class: "faint", x: left - 5, y: y(tick) + 4, "text-anchor": "end" }, `${number(tick)} us`));
    }
    drawn.append(svg("path", { class: "limit", d: `M${x(10 ** first)} ${y(10 ** first)}L${x(10 ** last)} ${y(10 ** last)}` }));
    drawn.append(svg("text", { class: "faint", x: width - 12, y: height - 4, "text-anchor": "end" }, "predicted"), svg("text", { class: "faint", x: left + 4, y: 16 }, "measured"));
    for (const one of seen) {
      const off = one.measured.median_us / one.predicted_us - 1;
      drawn.append(tells(svg("circle", { class: "dot", cx: x(one.predicted_us), cy: y(one.measured.median_us), r: 5, "data-name": one.name, "data-off": off }), `${one.name}\npredicted ${us(one.predicted_us)} us, measured ${us(one.measured.median_us)} us (${off < 0 ? "−" : "+"}${percent(Math.abs(off))})`));
    }
    chart.replaceChildren(drawn);
  });
}

document.addEventListener("DOMContentLoaded", () => {
  const data = JSON.parse(document.getElementById("data").textContent), host = (name) => document.querySelector(`[data-chart="${name}"]`);
  themeToggle();
  window.table = new Table(host("table"), data);
  const worked = data.entries.filter((one) => one.flops && one.bytes && best(one));
  if (worked.length) {
    roofline(host("roofline"), data.roof, worked.map((one) => ({ name: one.name, flops: one.flops, bytes: one.bytes, us: best(one) })), { name: "roofline", each: true });
    document.querySelector(".roof-words").textContent = `${data.roof.machine}: ${number(data.roof.tflops)} TFLOP/s of ${data.roof.type} at the clock that the power limit leaves, ${number(data.roof.gbs)} GB/s read. Kernels of f8 may lie above the roof.`;
  } else host("roofline").append(html("p", { class: "faint" }, "None of these has products."));
  modelPicture(host("model"), data.entries);
});
