/** Turns pointer and keys on the heatmap into windows, zooms and pans. Knows nothing of samples. */
import type { Header } from "../data/night";
import { cellUs, dragged, nudged, panned, usAt, zoomed, type Arrow, type Plot, type Point, type Span } from "../model/plot";
import type { Window } from "../model/window";

const CLICK_PIXELS = 4;

export interface Steered {
  header(): Header;
  plot(): Plot | null;
  view(): Span;
  byCore(): boolean;
  current(): Window | null;
  /** `announced`: screen readers read the draft; only for keys, because a pointer changes it too often. */
  draft(window: Window | null, baseline: boolean, announced: boolean): void;
  choose(window: Window, baseline: boolean): void;
  click(point: Point): boolean;
  hover(point: Point | null, page: Point): void;
  setView(view: Span): void;
}

const ARROWS: Record<string, Arrow> = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down" };

export class Steering {
  private from: Point | null = null;
  private baseline = false;
  private pending: Window | null = null;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly steered: Steered,
  ) {
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", () => this.drop());
    canvas.addEventListener("pointerleave", () => this.steered.hover(null, { x: 0, y: 0 }));
    canvas.addEventListener("contextmenu", (event) => {
      if (event.ctrlKey) event.preventDefault(); // on macOS Ctrl with the button is the other button
    });
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  private point(event: MouseEvent): Point {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  private windowTo(event: PointerEvent): Window | null {
    const plot = this.steered.plot();
    if (!plot || !this.from) return null;
    return dragged(plot, this.steered.header(), this.from, this.point(event), event.altKey || this.steered.byCore());
  }

  private down(event: PointerEvent): void {
    const mac = event.ctrlKey && event.button === 2;
    if (event.button !== 0 && !mac) return;
    const plot = this.steered.plot();
    const point = this.point(event);
    if (!plot || point.x < plot.left - 8 || point.y > plot.top + plot.height + 4) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.from = point;
    this.baseline = event.ctrlKey || event.metaKey || event.shiftKey;
  }

  private move(event: PointerEvent): void {
    const point = this.point(event);
    if (!this.from) {
      this.steered.hover(point, { x: event.clientX, y: event.clientY });
      return;
    }
    this.steered.hover(null, point);
    if (this.isDrag(point)) this.steered.draft(this.windowTo(event), this.baseline, false);
  }

  private isDrag(point: Point): boolean {
    return this.from !== null && Math.hypot(point.x - this.from.x, point.y - this.from.y) >= CLICK_PIXELS;
  }

  private up(event: PointerEvent): void {
    const window = this.windowTo(event);
    const point = this.point(event);
    const drag = this.isDrag(point);
    this.drop();
    if (!window) return;
    if (!drag && !this.baseline && this.steered.click(point)) return;
    this.steered.choose(window, this.baseline);
  }

  private drop(): void {
    this.from = null;
    this.pending = null;
    this.steered.draft(null, false, false);
  }

  private wheel(event: WheelEvent): void {
    const plot = this.steered.plot();
    if (!plot) return;
    event.preventDefault();
    const sideways = event.shiftKey ? event.deltaY + event.deltaX : event.deltaX;
    const view = this.steered.view();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.steered.setView(panned(this.steered.header(), view, (Math.sign(sideways) * (view.endUs - view.beginUs)) / 12));
      return;
    }
    const factor = Math.exp(-Math.max(-120, Math.min(120, event.deltaY)) / 300);
    this.steered.setView(zoomed(this.steered.header(), view, factor, usAt(plot, this.point(event).x)));
  }

  private key(event: KeyboardEvent): void {
    const plot = this.steered.plot();
    if (!plot || event.ctrlKey || event.metaKey || event.altKey) return;
    const arrow = ARROWS[event.key];
    if (arrow) {
      const step = cellUs(plot, this.steered.header().heat.step_us);
      const origin = this.steered.header().heat.begin_us;
      const start = origin + Math.floor(((plot.beginUs + plot.endUs) / 2 - origin) / step) * step;
      const now = this.pending ?? this.steered.current();
      this.pending = now
        ? nudged(this.steered.header(), plot.cores, now, arrow, event.shiftKey, step)
        : { beginUs: start, endUs: start + step, cores: null };
      this.steered.draft(this.pending, false, true);
    } else if ((event.key === "Enter" || event.key === "b") && this.pending) {
      const chosen = this.pending;
      this.drop();
      this.steered.choose(chosen, event.key === "b");
    } else if (event.key === "Escape" && this.pending) {
      this.drop();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
