/** Converts between canvas positions and time and cores; the window that a drag selects. */
import type { Header } from "../data/night";
import { SUBSECOND_ROWS, SUBSECOND_STEP_US } from "./subsecond";
import type { Window } from "./window";

export type Mode = "cores" | "subsecond";

export interface Span {
  beginUs: number;
  endUs: number;
}

/** The plot's rectangle in CSS pixels, the time it shows, and its rows (core numbers, top first). */
export interface Plot extends Span {
  mode: Mode;
  left: number;
  top: number;
  width: number;
  height: number;
  cores: number[];
}

export interface Point {
  x: number;
  y: number;
}

const MIN_SPAN_US = 200_000;

export function xOf(plot: Plot, us: number): number {
  return plot.left + ((us - plot.beginUs) / (plot.endUs - plot.beginUs)) * plot.width;
}

export function usAt(plot: Plot, x: number): number {
  const share = Math.min(1, Math.max(0, (x - plot.left) / plot.width));
  return plot.beginUs + share * (plot.endUs - plot.beginUs);
}

export function rowAt(plot: Plot, y: number): number {
  const rows = plot.mode === "cores" ? plot.cores.length : SUBSECOND_ROWS;
  const row = Math.floor(((y - plot.top) / plot.height) * rows);
  return Math.min(rows - 1, Math.max(0, row));
}

/** The time of one visible cell: a step of the data, or a pixel if that is coarser. */
export function cellUs(plot: Plot, stepUs: number): number {
  const pixel = (plot.endUs - plot.beginUs) / plot.width;
  return plot.mode === "subsecond" ? SUBSECOND_STEP_US : Math.max(1, Math.ceil(pixel / stepUs)) * stepUs;
}

function instantAt(plot: Plot, point: Point): number {
  return Math.floor(usAt(plot, point.x) / 1e6) * 1e6 + rowAt(plot, point.y) * SUBSECOND_STEP_US;
}

/** The window between two points, in whole cells; with cores only if asked for. */
export function dragged(plot: Plot, header: Header, from: Point, to: Point, byCore: boolean): Window {
  if (plot.mode === "subsecond") {
    const times = [instantAt(plot, from), instantAt(plot, to)].sort((a, b) => a - b) as [number, number];
    return { beginUs: times[0], endUs: times[1] + SUBSECOND_STEP_US, cores: null };
  }
  const { begin_us, step_us } = header.heat;
  const times = [usAt(plot, from.x), usAt(plot, to.x)].sort((a, b) => a - b) as [number, number];
  const first = Math.floor((times[0] - begin_us) / step_us);
  const last = Math.max(first + 1, Math.ceil((times[1] - begin_us) / step_us));
  const rows = [rowAt(plot, from.y), rowAt(plot, to.y)].sort((a, b) => a - b) as [number, number];
  const cores = byCore ? plot.cores.slice(rows[0], rows[1] + 1) : null;
  return {
    beginUs: Math.max(header.begin_us, begin_us + first * step_us),
    endUs: Math.min(header.end_us, begin_us + last * step_us),
    cores,
  };
}

function clamped(header: Header, beginUs: number, span: number): Span {
  const whole = header.end_us - header.begin_us;
  const wanted = Math.min(whole, Math.max(Math.min(MIN_SPAN_US, whole), span));
  const begin = Math.min(header.end_us - wanted, Math.max(header.begin_us, beginUs));
  return { beginUs: begin, endUs: begin + wanted };
}

/** The view magnified by `factor` around an instant, inside the night. */
export function zoomed(header: Header, view: Span, factor: number, aroundUs: number): Span {
  const span = (view.endUs - view.beginUs) / factor;
  const share = (aroundUs - view.beginUs) / (view.endUs - view.beginUs);
  return clamped(header, aroundUs - share * span, span);
}

export function panned(header: Header, view: Span, byUs: number): Span {
  return clamped(header, view.beginUs + byUs, view.endUs - view.beginUs);
}

/** Moves the view, and zooms in if necessary, so that the window is well visible. */
export function showing(header: Header, view: Span, window: Span): Span {
  const span = window.endUs - window.beginUs;
  const now = view.endUs - view.beginUs;
  const wanted = now > span * 60 ? Math.max(span * 20, 120e6) : now;
  const seen = window.beginUs >= view.beginUs && window.endUs <= view.endUs && wanted === now;
  if (seen) return view;
  return clamped(header, (window.beginUs + window.endUs) / 2 - wanted / 2, Math.max(wanted, span * 1.2));
}

export type Arrow = "left" | "right" | "up" | "down";

/** Applies an arrow key to a window: moves it by a step, or makes it wider or narrower. */
export function nudged(header: Header, cores: number[], window: Window, arrow: Arrow, wider: boolean, stepUs: number): Window {
  if (arrow === "left" || arrow === "right") {
    const by = arrow === "left" ? -stepUs : stepUs;
    if (wider) {
      const end = Math.min(header.end_us, Math.max(window.beginUs + stepUs, window.endUs + by));
      return { ...window, endUs: end };
    }
    const move = Math.min(header.end_us - window.endUs, Math.max(header.begin_us - window.beginUs, by));
    return { ...window, beginUs: window.beginUs + move, endUs: window.endUs + move };
  }
  if (cores.length === 0) return window;
  if (!window.cores) return { ...window, cores: [cores[arrow === "down" ? 0 : cores.length - 1] as number] };
  let first = Math.max(0, cores.indexOf(window.cores[0] as number));
  let last = first + window.cores.length - 1;
  const by = arrow === "up" ? -1 : 1;
  if (wider) last = Math.min(cores.length - 1, Math.max(first, last + by));
  else if (first + by >= 0 && last + by < cores.length) [first, last] = [first + by, last + by];
  return { ...window, cores: cores.slice(first, last + 1) };
}
