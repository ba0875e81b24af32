/** The heatmap pane: cells, selections, tooltip, legend and text alternative. */
import { cut, visible } from "../data/names";
import type { Night, Overview } from "../data/night";
import { coresText, type Masks } from "../model/filter";
import { columnsIn, fullCell, pinnedRuns, type HeatMeasure, type PinnedRun } from "../model/heat";
import type { Matches } from "../model/matches";
import type { Paint } from "../model/paint";
import { rowAt, usAt, xOf, type Mode, type Plot, type Point, type Span } from "../model/plot";
import { SUBSECOND_STEP_US } from "../model/subsecond";
import { clock, duration, grouped, percent, since } from "../model/times";
import { detailAt, type Window } from "../model/window";
import { fitted } from "./canvas";
import { css, heatScale, paintScale, type Theme } from "./colours";
import { byId, say } from "./elements";
import { HeatmapView } from "./heatmap";
import { drawWindow } from "./marks";
import type { Tooltip } from "./tooltip";

const NEAR_PIXELS = 5;

/** The choices of the reader that the heatmap shows. */
export interface MapState {
  mode: Mode;
  measure: HeatMeasure;
  view: Span;
  night: Night | null;
  masks: Masks | null;
  paint: Paint | null;
  matches: Matches | null;
  selection: Window | null;
  baseline: Window | null;
  draft: { window: Window; baseline: boolean } | null;
}

export class MapPane {
  readonly pinned: PinnedRun[];
  plot: Plot | null = null;
  painted = 0;
  private readonly over = byId<HTMLCanvasElement>("map-over");
  private readonly heatmap: HeatmapView;

  constructor(
    readonly overview: Overview,
    private theme: Theme,
    private readonly tooltip: Tooltip,
  ) {
    this.pinned = pinnedRuns(overview);
    this.heatmap = new HeatmapView(byId<HTMLCanvasElement>("map-base"), theme);
  }

  retheme(theme: Theme): void {
    this.theme = theme;
    this.heatmap.retheme(theme);
  }

  draw(state: MapState): void {
    const { header } = this.overview;
    const drawn = this.heatmap.draw(
      {
        overview: this.overview, night: state.night, mode: state.mode, measure: state.measure, view: state.view,
        cores: state.masks?.cores ?? header.cores, masks: state.masks, paint: state.paint, matching: state.matches,
        pinned: this.pinned, events: header.events,
      },
      byId("map").clientWidth,
      innerHeight,
    );
    this.plot = drawn.plot;
    this.painted = state.mode === "subsecond" ? (drawn.painted ?? 0) : (state.paint?.painted ?? 0);
    this.drawLegend(state, drawn.fullest);
    this.drawOver(state);
    this.announce(state);
  }

  /** Updates the text alternative. */
  announce(state: MapState): void {
    const { draft } = state;
    const text = draft
      ? `Selecting ${clock(draft.window.beginUs, 2)} to ${clock(draft.window.endUs, 2)}${draft.window.cores ? `, cores ${coresText(draft.window.cores)}` : ""}. Enter shows the flame graph, B sets the baseline.`
      : this.summary(state);
    say(byId("map-summary"), text);
  }

  drawOver(state: MapState): void {
    const { plot, theme } = this;
    if (!plot) return;
    const base = byId<HTMLCanvasElement>("map-base");
    const context = fitted(this.over, base.clientWidth, base.clientHeight);
    const put = (window: Window, baseline: boolean, dashed: boolean) =>
      drawWindow(context, plot, window, { colour: baseline ? theme.base : theme.accent, ground: theme.ground, letter: baseline ? "B" : "A", dashed });
    if (state.baseline && !(state.draft?.baseline ?? false)) put(state.baseline, true, false);
    if (state.selection && (state.draft?.baseline ?? true)) put(state.selection, false, false);
    if (state.draft) put(state.draft.window, state.draft.baseline, true);
  }

  /** The saturated run under a point, or null. */
  pinnedAt(state: MapState, point: Point): PinnedRun | null {
    const { plot } = this;
    if (!plot || state.mode !== "cores") return null;
    const row = plot.height / Math.max(1, plot.cores.length);
    return (
      this.pinned.find((run) => {
        const middle = plot.top + (plot.cores.indexOf(run.core) + 0.5) * row;
        const inTime = point.x >= xOf(plot, run.beginUs) - NEAR_PIXELS && point.x <= xOf(plot, run.endUs) + NEAR_PIXELS;
        return inTime && plot.cores.includes(run.core) && Math.abs(point.y - middle) <= Math.max(NEAR_PIXELS, row / 2);
      }) ?? null
    );
  }

  hover(state: MapState, point: Point | null, page: Point): void {
    const { plot } = this;
    if (!point || !plot || point.x < plot.left || point.x > plot.left + plot.width || point.y > plot.top + plot.height) {
      this.tooltip.hide();
      return;
    }
    const { header } = this.overview;
    const near = header.events.filter((event) => Math.abs(xOf(plot, event.time_us) - point.x) <= NEAR_PIXELS).slice(0, 4);
    const rows = point.y < plot.top ? [] : this.cellRows(state, plot, point);
    for (const event of near) rows.push([`${visible(event.kind)} ${clock(event.time_us, 3)}`, cut(visible(event.text), 400)]);
    const us = usAt(plot, point.x);
    const gap = header.gaps.find((part) => us >= part.begin_us && us < part.end_us);
    if (gap) rows.push(["not recorded", cut(visible(gap.why), 400)]);
    if (rows.length === 0) {
      this.tooltip.hide();
      return;
    }
    this.tooltip.show(page.x, page.y, `${clock(us)} UTC  ${since(us - header.begin_us)}`, rows);
  }

  private cellRows(state: MapState, plot: Plot, point: Point): [string, string][] {
    const { header, heatBusy, heatKernel } = this.overview;
    const us = usAt(plot, point.x);
    if (plot.mode === "subsecond") {
      const part = detailAt(header, us);
      const from = (rowAt(plot, point.y) * SUBSECOND_STEP_US) / 1e3;
      return [part && part.step_us > 0 ? ["detail", `only sums over ${duration(part.step_us)} are stored here`] : ["offset", `${from} to ${from + 20} ms`]];
    }
    const core = plot.cores[rowAt(plot, point.y)];
    if (core === undefined) return [];
    const pixel = (plot.endUs - plot.beginUs) / plot.width;
    const [first, last] = columnsIn(header, us, us + Math.max(1, pixel));
    const index = header.cores.indexOf(core);
    const full = fullCell(this.overview);
    const most = (counts: Uint16Array): string => {
      let value = 0;
      for (let column = first; column < last; column++) value = Math.max(value, counts[column * header.cores.length + index] as number);
      return percent(Math.min(1, value / full));
    };
    const several = last - first > 1 ? `, maximum of ${last - first} cells` : "";
    const rows: [string, string][] = [["core", String(core)], ["busy", most(heatBusy) + several], ["in the kernel", most(heatKernel) + several]];
    const run = this.pinnedAt(state, point);
    if (run) rows.push(["saturated", `in the kernel for ${duration(run.endUs - run.beginUs)} from ${clock(run.beginUs)}; click to select`]);
    return rows;
  }

  private drawLegend(state: MapState, fullest: number): void {
    const canvas = byId<HTMLCanvasElement>("legend");
    const brush = canvas.getContext("2d");
    const painting = state.mode === "cores" ? state.paint !== null : state.matches !== null;
    const scale = painting ? paintScale(this.theme.dark) : heatScale(this.theme.dark);
    for (let x = 0; brush && x < canvas.width; x++) {
      brush.fillStyle = css(scale[Math.round((x / (canvas.width - 1)) * 255)] ?? [0, 0, 0]);
      brush.fillRect(x, 0, 1, canvas.height);
    }
    const what = state.mode === "cores" ? (state.measure === "busy" ? "of the core busy" : "of the core in the kernel") : "of all cores busy";
    if (painting) byId("legend-text").textContent = state.mode === "cores" ? "one to all samples of a cell match" : "few to most matching samples";
    else byId("legend-text").textContent = Number.isFinite(fullest) ? `0 to ${percent(fullest)} ${what}` : "few to many samples";
  }

  private summary(state: MapState): string {
    const { header } = this.overview;
    const cores = state.masks?.cores.length ?? header.cores.length;
    const what = state.mode === "cores" ? `${cores} cores by time` : "Offset within the second by time";
    const pinned = this.pinned.slice(0, 3).map((run) => `core ${run.core} in the kernel for ${duration(run.endUs - run.beginUs)} at ${clock(run.beginUs)}`);
    return [
      `${what}, ${clock(state.view.beginUs)} to ${clock(state.view.endUs)} UTC, showing ${state.measure} share.`,
      `${grouped(header.events.length)} events, ${grouped(header.gaps.length)} parts not recorded.`,
      this.pinned.length > 0 ? `Cores saturated in the kernel: ${pinned.join("; ")}${this.pinned.length > 3 ? ` and ${this.pinned.length - 3} more` : ""}.` : "No core was saturated in the kernel.",
      state.paint ? `${grouped(this.painted)} cells have matching samples.` : "",
    ].join(" ").trim();
  }
}
