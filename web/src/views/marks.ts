/** Axes, event markers, saturated cores and selections: everything drawn around and over the cells. */
import { visible } from "../data/names";
import type { NightEvent, Severity } from "../data/night";
import type { PinnedRun } from "../model/heat";
import { chooseLanes } from "../model/labels";
import { xOf, type Plot } from "../model/plot";
import { SUBSECOND_ROWS, SUBSECOND_STEP_US } from "../model/subsecond";
import { clock, duration, since, ticks } from "../model/times";
import type { Window } from "../model/window";
import { fitting, SANS } from "./canvas";
import type { Theme } from "./colours";

export const SYMBOL: Record<Severity, string> = { critical: "\u25b2", warning: "\u25c6", info: "\u25cf" };
const MAX_PINNED_DRAWN = 300;
const MAX_PINNED_LABELLED = 12;

export function drawAxes(context: CanvasRenderingContext2D, theme: Theme, plot: Plot, originUs: number): void {
  const bottom = plot.top + plot.height;
  const right = plot.left + plot.width;
  context.strokeStyle = theme.strong;
  context.lineWidth = 1;
  context.strokeRect(plot.left - 0.5, plot.top - 0.5, plot.width + 1, plot.height + 1);
  context.font = SANS;
  context.textBaseline = "top";
  context.fillStyle = theme.muted;
  context.textAlign = "right";
  context.fillText("UTC", plot.left - 8, bottom + 6);
  context.fillText("since", plot.left - 8, bottom + 20);
  const most = plot.width / 92;
  context.textAlign = "center";
  const rows: [number, (us: number, digits: number) => string, number][] = [
    [6, clock, 0],
    [20, (us, digits) => since(us - originUs, digits), originUs],
  ];
  for (const [down, say, origin] of rows) {
    const { times, digits, stepUs } = ticks(plot.beginUs, plot.endUs, most, origin);
    context.fillStyle = down === 6 ? theme.ink : theme.muted;
    let taken = -Infinity;
    for (const us of times) {
      const x = xOf(plot, us);
      const text = stepUs >= 60e6 ? say(us, 0).replace(/(:00|00s)$/, "") : say(us, digits);
      const half = context.measureText(text).width / 2;
      const middle = Math.min(right - half, Math.max(plot.left + half, x));
      if (down === 6) context.fillRect(Math.round(x), bottom + 1, 1, 4);
      if (middle - half < taken + 8) continue;
      taken = middle + half;
      context.fillText(text, middle, bottom + down);
    }
  }
  drawRows(context, theme, plot);
}

function drawRows(context: CanvasRenderingContext2D, theme: Theme, plot: Plot): void {
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillStyle = theme.muted;
  if (plot.mode === "subsecond") {
    for (const ms of [0, 200, 400, 600, 800, 1000]) {
      const y = plot.top + (ms / 1000) * plot.height;
      context.fillText(ms === 1000 ? "1 s" : `${ms} ms`, plot.left - 6, Math.min(plot.top + plot.height - 5, Math.max(plot.top + 5, y)));
    }
    return;
  }
  const row = plot.height / Math.max(1, plot.cores.length);
  const every = [1, 2, 4, 8, 16, 32, 64, 128].find((step) => step * row >= 13) ?? 256;
  for (let i = 0; i < plot.cores.length; i += every) {
    context.fillText(String(plot.cores[i]), plot.left - 6, plot.top + (i + 0.5) * row + 0.5);
  }
  context.textBaseline = "top";
  context.fillText("core", plot.left - 6, plot.top - 16);
}

/** Draws a line per event; labels in two lanes, the most severe first; a symbol if there is no room. */
export function drawEvents(context: CanvasRenderingContext2D, theme: Theme, plot: Plot, events: NightEvent[], lane: number): void {
  const seen = events.filter((event) => event.time_us >= plot.beginUs && event.time_us <= plot.endUs);
  const order: Severity[] = ["critical", "warning", "info"];
  seen.sort((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity) || a.time_us - b.time_us);
  const right = plot.left + plot.width;
  context.font = SANS;
  context.textBaseline = "middle";
  context.textAlign = "left";
  const labels = seen.map((event) => {
    const x = xOf(plot, event.time_us);
    const name = `${SYMBOL[event.severity]} ${fitting(context, visible(event.kind), 220)} ${clock(event.time_us)}`;
    const width = context.measureText(name).width;
    const left = x + width > right ? Math.max(plot.left, x - width) : x - 4;
    return { x, name, left, right: left + width };
  });
  const lanes = chooseLanes(labels);
  seen.forEach((event, i) => {
    const { x, name, left } = labels[i]!;
    context.strokeStyle = theme.ground;
    context.lineWidth = event.severity === "critical" ? 5 : 3;
    context.globalAlpha = 0.75;
    context.strokeRect(x, plot.top, 0, plot.height);
    context.globalAlpha = 1;
    context.strokeStyle = theme[event.severity];
    context.fillStyle = theme[event.severity];
    context.lineWidth = event.severity === "critical" ? 2 : 1;
    context.setLineDash(event.severity === "info" ? [2, 3] : []);
    const line = new Path2D();
    line.moveTo(x, lane - 4);
    line.lineTo(x, plot.top + plot.height);
    context.stroke(line);
    context.setLineDash([]);
    const free = lanes[i]!;
    if (free < 0) context.fillText(SYMBOL[event.severity], x - 4, lane - 8);
    else context.fillText(name, left, lane - 9 - free * 15);
  });
}

/** Draws boxes around cores that were saturated in the kernel, never too small to see. */
export function drawPinned(context: CanvasRenderingContext2D, theme: Theme, plot: Plot, runs: PinnedRun[]): void {
  const row = plot.height / Math.max(1, plot.cores.length);
  const boxes: (Rectangle & { run: PinnedRun })[] = [];
  const seen = runs.filter((run) => run.endUs > plot.beginUs && run.beginUs < plot.endUs).slice(0, MAX_PINNED_DRAWN);
  context.font = `bold ${SANS}`;
  for (const run of seen) {
    const index = plot.cores.indexOf(run.core);
    if (index < 0) continue;
    const from = Math.max(plot.left, xOf(plot, run.beginUs));
    const to = Math.min(plot.left + plot.width, xOf(plot, run.endUs));
    const width = Math.max(12, to - from + 5);
    const height = Math.max(12, row + 5);
    const left = (from + to) / 2 - width / 2;
    const top = plot.top + (index + 0.5) * row - height / 2;
    context.strokeStyle = theme.ground;
    context.lineWidth = 6;
    context.strokeRect(left, top, width, height);
    context.strokeStyle = theme.pinned;
    context.lineWidth = 2.5;
    context.strokeRect(left, top, width, height);
    boxes.push({ run, left, top, right: left + width, bottom: top + height });
  }
  const taken: Rectangle[] = [...boxes];
  for (const box of boxes.slice(0, MAX_PINNED_LABELLED)) {
    const label = labelPinned(context, theme, plot, box.run, box, taken);
    if (label) taken.push(label);
  }
}

interface Rectangle {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

function labelPinned(
  context: CanvasRenderingContext2D, theme: Theme, plot: Plot, run: PinnedRun, box: Rectangle, taken: Rectangle[],
): Rectangle | null {
  const text = `core ${run.core} in the kernel for ${duration(run.endUs - run.beginUs)}`;
  const width = context.measureText(text).width + 8;
  const after = box.right + 5;
  const fits = after + width <= plot.left + plot.width;
  // A run that leaves no room on either side has room in itself.
  const left = fits ? after : box.left - width - 5 >= plot.left ? box.left - width - 5 : Math.max(plot.left, box.left) + 24;
  const top = Math.min(plot.top + plot.height - 16, Math.max(plot.top, (box.top + box.bottom) / 2 - 8));
  const label = { left, top, right: left + width, bottom: top + 16 };
  if (taken.some((other) => other !== box && top <= other.bottom && label.bottom >= other.top && left < other.right && label.right > other.left)) return null;
  context.fillStyle = theme.ground;
  context.fillRect(left, top, width, 16);
  context.fillStyle = theme.pinned;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(text, left + 4, top + 8.5);
  return label;
}

/** A window over the cells: a stretch of time, perhaps of some cores only, with its letter. */
export function drawWindow(context: CanvasRenderingContext2D, plot: Plot, window: Window, style: { colour: string; ground: string; letter: string; dashed: boolean }): void {
  const { colour, letter, dashed } = style;
  const shape = plot.mode === "subsecond" ? subsecondShape(plot, window) : coreShape(plot, window);
  context.save();
  context.beginPath();
  context.rect(plot.left - 2, plot.top - 18, plot.width + 4, plot.height + 20);
  context.clip();
  context.fillStyle = colour;
  context.globalAlpha = 0.12;
  context.fill(shape);
  context.globalAlpha = 1;
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.setLineDash(dashed ? [5, 4] : []);
  context.stroke(shape);
  context.restore();
  const first = plot.mode === "cores" && window.cores ? plot.cores.indexOf(window.cores[0] as number) : -1;
  const left = first < 0 ? Math.max(plot.left, xOf(plot, window.beginUs)) : Math.max(plot.left + 1, xOf(plot, window.beginUs) - 20);
  const top = first < 0 ? plot.top + plot.height - 15 : plot.top + Math.min(plot.height - 15, (first / plot.cores.length) * plot.height);
  if (left > plot.left + plot.width || xOf(plot, window.endUs) < plot.left) return;
  context.fillStyle = colour;
  context.fillRect(left - 1, top, 15, 15);
  context.font = `bold ${SANS}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillStyle = style.ground;
  context.fillText(letter, left + 6.5, top + 8);
}

function coreShape(plot: Plot, window: Window): Path2D {
  const shape = new Path2D();
  const left = xOf(plot, window.beginUs);
  const width = Math.max(2, xOf(plot, window.endUs) - left);
  if (!window.cores) {
    shape.rect(left, plot.top - 1, width, plot.height + 2);
    return shape;
  }
  const row = plot.height / Math.max(1, plot.cores.length);
  const chosen = new Set(window.cores);
  for (let i = 0; i < plot.cores.length; i++) {
    if (!chosen.has(plot.cores[i] as number)) continue;
    const from = i;
    while (i + 1 < plot.cores.length && chosen.has(plot.cores[i + 1] as number)) i++;
    shape.rect(left, plot.top + from * row - 1, width, (i - from + 1) * row + 2);
  }
  return shape;
}

/** From an offset in one second to an offset in another: the seconds between are whole columns. */
function subsecondShape(plot: Plot, window: Window): Path2D {
  const shape = new Path2D();
  const first = Math.floor(window.beginUs / 1e6);
  const last = Math.floor((window.endUs - 1) / 1e6);
  const y = (second: number, us: number) => plot.top + ((us - second * 1e6) / SUBSECOND_STEP_US / SUBSECOND_ROWS) * plot.height;
  const x = (second: number) => xOf(plot, second * 1e6);
  const bottom = plot.top + plot.height;
  const begin = y(first, window.beginUs);
  const end = y(last, window.endUs);
  if (first === last) {
    shape.rect(x(first), begin, Math.max(2, x(first + 1) - x(first)), Math.max(2, end - begin));
    return shape;
  }
  const corners: [number, number][] = [
    [x(first), bottom], [x(first), begin], [x(first + 1), begin], [x(first + 1), plot.top],
    [x(last + 1), plot.top], [x(last + 1), end], [x(last), end], [x(last), bottom],
  ];
  corners.forEach(([px, py], i) => (i === 0 ? shape.moveTo(px, py) : shape.lineTo(px, py)));
  shape.closePath();
  return shape;
}
