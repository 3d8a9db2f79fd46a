// Requests a second and latencies over the last five minutes, which the page keeps itself.

import { byId, element, setText, svg } from "./dom.js";
import { clock, latency, short } from "./format.js";

const KEPT_MS = 5 * 60 * 1000;
/** Two snapshots further apart than this have a gap between them. */
const GAP_MS = 3_500;
const HEIGHT = 170;
const MARGIN = { left: 66, right: 8, top: 10, bottom: 22 };

class Chart {
  /** `series`: `{ label, name, of(point) }`, where null is "not known". */
  constructor(figure, title, series, say) {
    this.title = title;
    this.series = series;
    this.say = say;
    this.drawing = svg("svg", { role: "img", height: HEIGHT });
    this.values = series.map(() => element("b"));
    const legend = series.map(({ label, name }, index) => element("li", {}, lineKey(name), ` ${label} `, this.values[index]));
    this.time = element("span", { class: "muted" });
    const caption = [element("h3", {}, title), element("ul", { class: "legend" }, ...legend), this.time];
    figure.append(element("figcaption", {}, ...caption), this.drawing);
    this.points = [];
    this.pointed = null;
    this.drawing.addEventListener("pointermove", (event) => this.pointAt(event.offsetX));
    this.drawing.addEventListener("pointerleave", () => this.pointAt(null));
    new ResizeObserver(() => this.draw()).observe(figure);
  }

  show(points) {
    this.points = points;
    this.draw();
  }

  pointAt(x) {
    this.pointed = x;
    this.draw();
  }

  draw() {
    const width = this.drawing.parentElement.clientWidth;
    if (width === 0 || this.points.length === 0) {
      return;
    }
    this.drawing.setAttribute("width", width);
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const until = this.points[this.points.length - 1].at;
    const known = this.series.flatMap(({ of }) => this.points.map(of)).filter((value) => value !== null);
    const step = stepOf(Math.max(...known, 0));
    const top = step * Math.max(1, Math.ceil(Math.max(...known, 0) / step));
    const x = (at) => MARGIN.left + (1 - (until - at) / KEPT_MS) * (width - MARGIN.left - MARGIN.right);
    const y = (value) => HEIGHT - MARGIN.bottom - (value / top) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    const at = this.chosen(x);
    const parts = [...this.grid(width, step, top, y), ...this.lines(x, y)];
    if (this.pointed !== null) {
      parts.push(svg("path", { class: "pointed", d: `M${x(at.at)} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}` }));
    }
    this.drawing.replaceChildren(...parts);
    this.series.forEach(({ of }, index) => setText(this.values[index], this.say(of(at))));
    setText(this.time, this.pointed === null ? "now" : `at ${clock(at.at)}`);
    this.drawing.setAttribute("aria-label", this.words());
  }

  /** The point under the pointer; the newest without one. */
  chosen(x) {
    const newest = this.points[this.points.length - 1];
    if (this.pointed === null) {
      return newest;
    }
    const away = (point) => Math.abs(x(point.at) - this.pointed);
    return this.points.reduce((best, point) => (away(point) < away(best) ? point : best), newest);
  }

  grid(width, step, top, y) {
    const parts = [];
    for (let value = 0; value <= top + step / 2; value += step) {
      parts.push(svg("path", { class: "grid", d: `M${MARGIN.left} ${y(value)}H${width - MARGIN.right}` }));
      parts.push(svg("text", { class: "axis end", x: MARGIN.left - 6, y: y(value) + 4 }, this.say(value)));
    }
    for (let minutes = 0; minutes <= 5; minutes += 1) {
      const x = MARGIN.left + (1 - minutes / 5) * (width - MARGIN.left - MARGIN.right);
      const place = minutes === 0 ? "axis end" : "axis middle";
      parts.push(svg("text", { class: place, x, y: HEIGHT - 6 }, minutes === 0 ? "now" : `−${minutes} min`));
    }
    return parts;
  }

  lines(x, y) {
    return this.series.map(({ name, of }) => {
      let d = "";
      let before = null;
      for (const point of this.points) {
        const value = of(point);
        if (value === null) {
          before = null;
          continue;
        }
        const joins = before !== null && point.at - before <= GAP_MS;
        d += `${joins ? "L" : "M"}${x(point.at).toFixed(1)} ${y(value).toFixed(1)}${joins ? "" : "h0.1"}`;
        before = point.at;
      }
      return svg("path", { class: `line ${name}`, d });
    });
  }

  words() {
    const parts = this.series.map(({ label, of }) => {
      const values = this.points.map(of).filter((value) => value !== null);
      if (values.length === 0) {
        return `${label} not known`;
      }
      const now = of(this.points[this.points.length - 1]);
      return `${label} now ${this.say(now)}, lowest ${this.say(Math.min(...values))}, highest ${this.say(Math.max(...values))}`;
    });
    return `${this.title}: ${parts.join("; ")}.`;
  }
}

/** A piece of the line, for the legend. */
function lineKey(name) {
  const line = svg("path", { class: `line ${name}`, d: "M0 4H26" });
  return svg("svg", { class: "line-key", viewBox: "0 0 26 8", "aria-hidden": "true" }, line);
}

/** 1, 2 or 5 times a power of ten, so that there are two to five lines; where nothing happened, 1. */
function stepOf(most) {
  const rough = most > 0 ? Math.max(most, 1e-3) / 4 : 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
}

const rate = (field) => (point) => point.rates?.[field] ?? null;

const requests = new Chart(
  byId("chart-rates"),
  "Operations a second",
  [
    { label: "gets", name: "line-0", of: rate("gets") },
    { label: "sets", name: "line-1", of: rate("sets") },
    { label: "deletes", name: "line-2", of: rate("deletes") },
  ],
  short,
);
const latencies = new Chart(
  byId("chart-latency"),
  "Latency",
  [
    { label: "p99", name: "line-1", of: rate("p99_ms") },
    { label: "p50", name: "line-0", of: rate("p50_ms") },
  ],
  latency,
);

let kept = [];

export function showLoad(store, at) {
  kept = kept.filter((point) => point.at > at - KEPT_MS && point.at < at);
  kept.push({ at, rates: store.rates });
  requests.show(kept);
  latencies.show(kept);
}
