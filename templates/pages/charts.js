// Small pictures of figures: bars, stacks, the roofline, registers over the interval. Each is drawn to the host's width.
const INDENT = (width) => (width < 500 ? 120 : 190);

/** Horizontal bars of [{name, value, text, kind, tell, limit}], to the scale of the largest value or limit. */
function barChart(host, bars, { name }) {
  const chart = host.appendChild(html("div", { class: "chart", role: "group", "aria-label": name }));
  watched(chart, (width) => {
    const left = INDENT(width), right = 96, height = bars.length * 24 + 8;
    const most = Math.max(1e-9, ...bars.map((bar) => Math.max(Math.abs(bar.value), bar.limit ?? 0)));
    const least = Math.min(0, ...bars.map((bar) => bar.value)), room = width - left - right;
    const x = (value) => left + (value - least) / (most - least) * room;
    const drawn = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${name}: ${bars.map((bar) => `${bar.name} ${bar.text}`).join(", ")}` });
    bars.forEach((bar, place) => {
      const y = 4 + place * 24, first = Math.min(x(0), x(bar.value)), size = Math.max(1, Math.abs(x(bar.value) - x(0)));
      drawn.append(svg("text", { x: left - 8, y: y + 16, "text-anchor": "end" }, svg("title", {}, bar.name), fitted(bar.name, left - 14)));
      drawn.append(tells(svg("rect", { class: bar.kind ?? "fill", x: first, y: y + 3, width: size, height: 17, "data-name": bar.name, "data-value": bar.value }), bar.tell ?? `${bar.name}: ${bar.text}`));
      if (bar.limit !== undefined) drawn.append(svg("line", { class: "limit", x1: x(bar.limit), x2: x(bar.limit), y1: y + 1, y2: y + 22 }));
      drawn.append(svg("text", { class: "faint", x: Math.max(first + size, x(bar.limit ?? 0)) + 6, y: y + 16 }, bar.text));
    });
    chart.replaceChildren(drawn);
  });
}

/** One bar of parts [{name, value, text, kind}] that follow each other, with its legend. */
function stack(host, parts, total, { name }) {
  const chart = host.appendChild(html("div", { class: "chart", role: "group", "aria-label": name }));
  const kinds = parts.map((part, place) => part.kind ?? `p${place % 9}`);
  watched(chart, (width) => {
    const drawn = svg("svg", { width, height: 46, viewBox: `0 0 ${width} 46`, role: "img", "aria-label": `${name}: ${parts.map((part) => `${part.name} ${part.text}`).join(", ")}` });
    let at = 0;
    parts.forEach((part, place) => {
      const first = at / total * width, size = Math.max(part.value > 0 ? 1 : 0, part.value / total * width);
      at += part.value;
      drawn.append(tells(svg("rect", { class: kinds[place], x: first, y: 0, width: size, height: 46, "data-name": part.name, "data-value": part.value }), `${part.name}: ${part.text}`));
      if (first > 0) drawn.append(svg("line", { class: "axis", x1: first, x2: first, y1: 0, y2: 46 }));
      const words = fitted(part.name, size - 8);
      if (words.length > 3) drawn.append(svg("text", { class: "in-bar", x: first + 5, y: 20 }, words), svg("text", { class: "in-bar", x: first + 5, y: 36 }, fitted(part.text, size - 8)));
    });
    chart.replaceChildren(drawn);
  });
  host.append(html("ul", { class: "legend" }, ...parts.map((part, place) =>
    html("li", {}, svg("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("rect", { class: kinds[place], width: 12, height: 12 })), `${part.name}: ${part.text}`))));
}

/** Rings: how long a slot lives, and how long its depth covers; what is between the two is slack. */
function ringChart(host, rings) {
  barChart(host, rings.map((ring) => ({
    name: `${ring.name}, ${ring.slots} slots`, value: ring.lifetime, limit: ring.covers, text: `slack ${number(ring.slack)}`,
    tell: `${ring.name}: a slot lives ${cycles(ring.lifetime)}, from ${ring.first} to the return by ${ring.last}\n${ring.slots} slots cover ${cycles(ring.covers)}; slack ${cycles(ring.slack)}`,
  })), { name: "a slot's lifetime, and the cycles that the ring's depth covers" });
}

/** Registers a thread over one interval: a curve of what is live, the line of what the role has. */
function registerChart(host, registers, ii) {
  for (const role of registers.roles) {
    if (!role.steps.length) continue;
    const chart = host.appendChild(html("div", { class: "chart", role: "group", "aria-label": `registers of ${role.name} over the interval` }));
    watched(chart, (width) => {
      const left = 44, height = 130, bottom = height - 22, most = Math.max(registers.limit, role.has, ...role.steps.map((one) => one[1])) * 1.05;
      const x = (cycle) => left + cycle / ii * (width - left - 12), y = (value) => bottom - value / most * (bottom - 10);
      const ends = [...role.steps.slice(1).map((one) => one[0]), ii];
      const path = role.steps.map(([cycle, count], place) => `${place ? "L" : "M"}${x(cycle)} ${y(count)}L${x(ends[place])} ${y(count)}`).join("");
      const drawn = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${role.name}: ${role.steps.map(([cycle, count]) => `${count} from cycle ${cycle}`).join(", ")}; it has ${role.has}` });
      for (const level of [0, 64, 128, 192, 256].filter((one) => one < most)) {
        drawn.append(svg("line", { class: "grid", x1: left, x2: width, y1: y(level), y2: y(level) }), svg("text", { class: "faint", x: left - 6, y: y(level) + 4, "text-anchor": "end" }, `${level}`));
      }
      drawn.append(svg("line", { class: "limit", x1: left, x2: width, y1: y(role.has), y2: y(role.has) }), svg("path", { class: "curve", d: path }));
      role.steps.forEach(([cycle, count], place) => drawn.append(tells(svg("rect", { fill: "transparent", x: x(cycle), y: 0, width: Math.max(0, x(ends[place]) - x(cycle)), height: bottom, "data-registers": count }), `${role.name}, cycles ${number(cycle)} to ${number(ends[place])}: ${count} of ${role.has} registers are live`)));
      drawn.append(svg("text", { class: "faint", x: left, y: height - 6 }, `${role.name}: cycle 0`), svg("text", { class: "faint", x: width - 12, y: height - 6, "text-anchor": "end" }, number(ii)), svg("text", { class: "faint", x: left + 4, y: y(role.has) - 4 }, `has ${role.has}`));
      chart.replaceChildren(drawn);
    });
  }
}

/** Work a byte against rate, both logarithmic: the roof, and points {name, us} of kernels {flops, bytes}. */
function roofline(host, roof, points, { name, each = false }) {
  const chart = host.appendChild(html("div", { class: "chart", role: "group", "aria-label": name }));
  const log = Math.log10, ridge = roof.tflops * 1e3 / roof.gbs;
  const dots = points.map((point) => ({ ...point, x: point.flops / point.bytes, y: point.flops / point.us / 1e6 }));
  const xs = [...dots.map((dot) => dot.x), ridge], ys = [...dots.map((dot) => dot.y), roof.tflops];
  const x0 = log(Math.min(...xs)) - 0.6, x1 = log(Math.max(...xs)) + 0.6, y1 = log(Math.max(...ys)) + 0.2;
  const y0 = Math.min(log(Math.min(...ys)) - 0.4, y1 - 1.2);
  watched(chart, (width) => {
    const height = 260, left = 52, bottom = height - 34;
    const x = (value) => left + (log(value) - x0) / (x1 - x0) * (width - left - 14), y = (value) => bottom - (log(value) - y0) / (y1 - y0) * (bottom - 12);
    const drawn = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${name}: ${dots.map((dot) => `${dot.name} ${number(dot.y, 1)} TFLOP/s`).join(", ")}` });
    for (let power = Math.ceil(x0); power <= x1; power++) {
      drawn.append(svg("line", { class: "grid", x1: x(10 ** power), x2: x(10 ** power), y1: 8, y2: bottom }), svg("text", { class: "faint", x: x(10 ** power), y: bottom + 14, "text-anchor": "middle" }, number(10 ** power, Math.max(0, -power))));
    }
    for (let power = Math.ceil(y0); power <= y1; power++) {
      drawn.append(svg("line", { class: "grid", x1: left, x2: width, y1: y(10 ** power), y2: y(10 ** power) }), svg("text", { class: "faint", x: left - 6, y: y(10 ** power) + 4, "text-anchor": "end" }, number(10 ** power, Math.max(0, -power))));
    }
    const from = Math.max(10 ** x0, 10 ** y0 * 1e3 / roof.gbs);
    drawn.append(svg("path", { class: "roof", d: `M${x(from)} ${y(from * roof.gbs / 1e3)}L${x(ridge)} ${y(roof.tflops)}L${x(10 ** x1)} ${y(roof.tflops)}` }));
    drawn.append(svg("text", { class: "faint", x: width - 14, y: height - 6, "text-anchor": "end" }, "FLOP a byte"), svg("text", { class: "faint", x: 4, y: height - 6 }, "TFLOP/s"));
    dots.forEach((dot) => drawn.append(tells(svg("circle", { class: `dot ${dot.name}`, cx: x(dot.x), cy: y(dot.y), r: 6, "data-name": dot.name, "data-tflops": dot.y, tabindex: each ? "0" : undefined }), `${dot.name}: ${number(dot.us, 2)} us\n${number(dot.y, 1)} TFLOP/s at ${number(dot.x, 1)} FLOP a byte`)));
    chart.replaceChildren(drawn);
  });
}
