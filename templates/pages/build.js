// The page of a build: each kernel's pictures beside its source, and what is chosen in one shown in the others.
/** A kernel's part of the page: its pictures choose operations together. */
class KernelPage {
  constructor(kernel, number) {
    this.kernel = kernel;
    this.root = document.getElementById(`kernel-${number}`);
    this.pictures = [];
    this.chosen = null;
    this.lines = [...this.root.querySelectorAll(".source li")];
    this.opsOfLine = new Map();
    for (const [op, one] of Object.entries(kernel.ops)) {
      for (const line of one.lines) this.opsOfLine.set(line, [...(this.opsOfLine.get(line) ?? []), op]);
    }
    this.times();
    this.source();
    this.figures();
    for (const row of this.root.querySelectorAll("tr[data-op]")) row.addEventListener("click", () => this.choose(row.dataset.op));
  }

  host(name) { return this.root.querySelector(`[data-chart="${name}"]`); }

  times() {
    const choose = (op) => this.choose(op), { kernel } = this;
    const draw = (host, picture, schedule, options) => {
      const made = new TimeLine(this.host(host), picture, schedule, { choose, ...options });
      this.pictures.push(made);
      return made;
    };
    this.timeline = draw("timeline", kernel.timeline, kernel, { name: "The block's time line" });
    draw("interval", kernel.interval, kernel, { name: "One initiation interval", stages: true });
    if (kernel.measured) draw("measured", kernel.measured.picture, kernel, { name: "Predicted and measured" });
    if (kernel.against) {
      // Both builds to one scale.
      const together = (one, other) => {
        const total = Math.max(one.total, other.total), view = [0, Math.max(one.view[1], other.view[1])];
        return [{ ...one, total, view }, { ...other, total, view }];
      };
      const [interval, otherInterval] = together(kernel.interval, kernel.against.interval);
      const [timeline, otherTimeline] = together(kernel.timeline, kernel.against.timeline);
      draw("against-interval", interval, kernel, { name: "One interval of this build", stages: true });
      draw("against-other", otherInterval, kernel.against, { name: `One interval of ${kernel.against.title}`, stages: true, choose: () => {} });
      draw("against-timeline", timeline, kernel, { name: "The time line of this build" });
      draw("against-other-timeline", otherTimeline, kernel.against, { name: `The time line of ${kernel.against.title}`, choose: () => {} });
    }
  }

  /** Show an operation in every picture, in the tables and in the source; none if it is chosen already. */
  choose(op) {
    this.chosen = op === this.chosen ? null : op;
    for (const picture of this.pictures) picture.mark(this.chosen);
    for (const row of this.root.querySelectorAll("tr[data-op]")) row.classList.toggle("chosen", row.dataset.op === this.chosen);
    const lines = this.kernel.ops[this.chosen]?.lines ?? [];
    this.lines.forEach((line, place) => line.classList.toggle("chosen", lines.includes(place + 1)));
    const first = this.lines[lines[Math.floor(lines.length / 4)] - 1], list = first?.parentElement;
    if (first) list.scrollTop = first.offsetTop - list.offsetTop - list.clientHeight / 4;
  }

  source() {
    this.lines.forEach((line, place) => {
      const ops = this.opsOfLine.get(place + 1);
      if (!ops) return;
      line.classList.add("linked");
      line.addEventListener("click", () => {
        const next = ops[(ops.indexOf(this.chosen) + 1) % ops.length];
        if (next !== this.chosen || ops.length === 1) this.choose(next);
      });
      tells(line, ops.map((op) => `${this.kernel.ops[op].key}: ${this.kernel.ops[op].words}`).join("\n"));
    });
    const first = this.lines.find((line) => line.classList.contains("linked"));
    if (first) first.parentElement.scrollTop = first.offsetTop - first.parentElement.offsetTop - 60;
    const find = this.root.querySelector(".find-line");
    find.addEventListener("input", () => {
      const wanted = find.value.trim().toLowerCase();
      const found = this.lines.filter((line) => {
        const has = wanted !== "" && line.textContent.toLowerCase().includes(wanted);
        line.classList.toggle("found", has);
        return has;
      });
      if (found[0]) found[0].parentElement.scrollTop = found[0].offsetTop - found[0].parentElement.offsetTop - 40;
      this.root.querySelector(".found-lines").textContent = wanted ? `${found.length} lines` : "";
    });
  }

  figures() {
    const { kernel } = this, us = (value) => `${number(value, 2)} us`;
    barChart(this.host("limits"), kernel.binds.limits.map((one) => ({
      name: one.name, value: one.cycles, limit: kernel.ii, text: percent(one.share, 0), kind: one.share >= 1 ? "fill3" : "fill", tell: `${one.name}: ${cycles(one.cycles)} of an II of ${number(kernel.ii)}`,
    })), { name: "limits of the initiation interval, in cycles" });
    if (kernel.rings.length) ringChart(this.host("rings"), kernel.rings);
    const memory = kernel.memory, parts = memory.parts.map((part) => ({ name: part.name, value: part.bytes, text: `${number(part.bytes)} bytes` }));
    if (memory.free > 0) parts.push({ name: "free", value: memory.free, text: `${number(memory.free)} bytes`, kind: "free" });
    stack(this.host("memory"), parts, Math.max(memory.limit, memory.taken), { name: "shared memory of a block" });
    for (const role of kernel.registers.roles) {
      if (!role.parts.length) continue;
      const spare = role.has - role.parts.reduce((sum, part) => sum + part.registers, 0);
      const own = role.parts.map((part) => ({ name: part.name, value: part.registers, text: `${part.registers}` }));
      if (spare > 0) own.push({ name: "beyond the need", value: spare, text: `${spare}`, kind: "free" });
      this.host("registers").append(html("p", { class: "faint" }, `${role.name}: ${role.has} registers a thread, ${role.warps} warps`));
      stack(this.host("registers"), own, Math.max(role.has, role.has - spare), { name: `registers of ${role.name}` });
    }
    registerChart(this.host("registers"), kernel.registers, kernel.ii);
    const time = kernel.time;
    stack(this.host("time"), time.parts.filter((part) => part.cycles).map((part) => ({ name: part.name, value: part.cycles, text: `${number(part.cycles)} cycles, ${us(part.us)}` })), time.cycles, { name: "predicted cycles of the busiest SM" });
    this.roof();
    if (kernel.search.every) window.searches.push(new SearchPicture(this.host("search"), kernel.search));
    if (kernel.what_if) {
      barChart(this.host("what-if"), kernel.what_if.what_if.map((one) => ({ name: one.budget, value: 100 * one.gain, text: `${number(100 * one.gain, 2)} %`, tell: `${one.budget}: ${one.now}, then ${one.then}\n${us(one.predicted_us)}, ${one.changes.join("; ") || "nothing changes"}` })), { name: "gain of the predicted time with more of each budget, in per cent" });
    }
  }

  roof() {
    const { roofline: roof } = this.kernel;
    if (roof.tflops !== null) {
      roofline(this.host("roofline"), roof, roof.points.map((point) => ({ ...point, flops: roof.flops, bytes: roof.bytes })), { name: "roofline" });
    }
    const every = [{ name: "roofline", us: roof.roofline_us }, ...roof.points];
    barChart(this.host("roofline"), every.map((point) => ({ name: point.name, value: point.us, text: `${number(point.us, 2)} us`, kind: point.name === "roofline" ? "fill2" : "fill", tell: `${point.name}: ${number(point.us, 2)} us, ${number(roof.bytes / point.us / 1e3)} GB/s of compulsory bytes` })), { name: "times in microseconds" });
  }
}

/** The launches of a build of several kernels on one line, with the gaps between them. */
function wholeLine(host, whole) {
  const steps = whole.steps, picture = {
    rows: [{ name: "kernels", kind: "role" }], ops: ["", ...steps.map((step) => step.name)], arrows: [],
    bands: [], total: whole.total, view: [0, whole.total],
    bars: steps.map((step, place) => [0, step.begin, step.end, place + 1, place, step.label, 0]),
  };
  for (const gap of whole.gaps) picture.bars.push([0, gap.begin, gap.end, 0, 0, gap.label, WAITS]);
  const ops = Object.fromEntries(steps.map((step) => [step.name, { key: step.key, words: step.words, kind: "mma", lines: [] }]));
  new TimeLine(host, picture, { ii: whole.total, ops }, { name: "The launches", unit: "ns", choose: (name) => {
    const step = steps.find((one) => one.name === name);
    if (step) document.getElementById(`kernel-${step.kernel}`).scrollIntoView();
  } });
}

document.addEventListener("DOMContentLoaded", () => {
  const data = JSON.parse(document.getElementById("data").textContent);
  themeToggle();
  window.searches = [];
  if (data.whole) wholeLine(document.querySelector('[data-chart="whole"]'), data.whole);
  window.pages = data.kernels.map((kernel, number) => new KernelPage(kernel, number));
});
