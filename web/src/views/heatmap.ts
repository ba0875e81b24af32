/** Draws the heatmap: cells, gaps, matches, saturated cores, event markers and axes. */
import type { Night, NightEvent, Overview } from "../data/night";
import type { Masks } from "../model/filter";
import { columnsIn, fullCell, maxima, type HeatMeasure, type PinnedRun } from "../model/heat";
import type { Matching, Paint } from "../model/paint";
import { xOf, type Mode, type Plot, type Span } from "../model/plot";
import { SUBSECOND_ROWS, subsecondGrid, type SubsecondGrid } from "../model/subsecond";
import { details } from "../model/window";
import { duration } from "../model/times";
import { fitted, hatch, SANS } from "./canvas";
import { greyScale, heatScale, packed, paintScale, type Theme } from "./colours";
import { drawAxes, drawEvents, drawPinned } from "./marks";

export const LEFT = 50;
export const EVENT_LANE = 34;
export const MATCH_LANE = 7;
const TOP = EVENT_LANE + MATCH_LANE;
const RIGHT = 10;
const BOTTOM = 34;
const SUBSECOND_HEIGHT = 250;

export interface HeatScene {
  overview: Overview;
  night: Night | null;
  mode: Mode;
  measure: HeatMeasure;
  view: Span;
  cores: number[];
  masks: Masks | null;
  paint: Paint | null;
  matching: Matching | null;
  pinned: PinnedRun[];
  events: NightEvent[];
}

export interface Drawn {
  plot: Plot;
  /** The share at the end of the scale. */
  fullest: number;
  painted: number | null;
}

export class HeatmapView {
  private readonly image = document.createElement("canvas");
  private scale: Uint32Array = new Uint32Array(0);
  private greys: Uint32Array = new Uint32Array(0);
  private paints: Uint32Array = new Uint32Array(0);

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private theme: Theme,
  ) {
    this.retheme(theme);
  }

  retheme(theme: Theme): void {
    this.theme = theme;
    this.scale = packed(heatScale(theme.dark));
    this.greys = packed(greyScale(theme.dark));
    this.paints = packed(paintScale(theme.dark));
  }

  draw(scene: HeatScene, width: number, screenHeight: number): Drawn {
    const plot = planned(scene, width, screenHeight);
    const context = fitted(this.canvas, width, plot.top + plot.height + BOTTOM);
    context.fillStyle = this.theme.map;
    context.fillRect(plot.left, plot.top, plot.width, plot.height);
    context.save();
    context.beginPath();
    context.rect(plot.left, plot.top, plot.width, plot.height);
    context.clip();
    const drawn = scene.mode === "cores" ? this.drawCores(context, scene, plot) : this.drawSubsecond(context, scene, plot);
    this.drawGaps(context, scene, plot);
    context.restore();
    if (scene.paint && scene.mode === "cores") this.drawMatchLane(context, scene, plot, scene.paint);
    drawAxes(context, this.theme, plot, scene.overview.header.begin_us);
    drawEvents(context, this.theme, plot, scene.events, EVENT_LANE);
    if (scene.mode === "cores") drawPinned(context, this.theme, plot, scene.pinned);
    return drawn;
  }

  private drawCores(context: CanvasRenderingContext2D, scene: HeatScene, plot: Plot): Drawn {
    const { header } = scene.overview;
    const counts = scene.measure === "busy" ? scene.overview.heatBusy : scene.overview.heatKernel;
    const indexes = plot.cores.map((core) => header.cores.indexOf(core));
    const [first, last] = columnsIn(header, plot.beginUs, plot.endUs);
    const pixels = Math.max(1, Math.round(plot.width * (window.devicePixelRatio || 1)));
    const whole = last - first <= pixels;
    const beginUs = whole ? header.heat.begin_us + first * header.heat.step_us : plot.beginUs;
    const endUs = whole ? header.heat.begin_us + last * header.heat.step_us : plot.endUs;
    const width = whole ? last - first : pixels;
    if (width === 0 || indexes.length === 0) return { plot, fullest: 1, painted: null };
    const grid = maxima(counts, header, beginUs, endUs, width, indexes, fullCell(scene.overview));
    const hits = scene.paint ? maxima(scene.paint.cells, header, beginUs, endUs, width, indexes, fullCell(scene.overview)).values : null;
    this.putImage(context, plot, beginUs, endUs, grid.width, grid.rows, grid.values, hits, !whole);
    return { plot, fullest: 1, painted: null };
  }

  private drawSubsecond(context: CanvasRenderingContext2D, scene: HeatScene, plot: Plot): Drawn {
    if (!scene.night || !scene.masks) return { plot, fullest: NaN, painted: null };
    const most = Math.max(1, Math.round(plot.width * (window.devicePixelRatio || 1)));
    const painting = scene.matching;
    const grid: SubsecondGrid = subsecondGrid(scene.night, scene.masks, plot.beginUs, plot.endUs, most, painting);
    const beginUs = grid.firstSecond * 1e6;
    const endUs = beginUs + grid.seconds * 1e6;
    this.putImage(context, plot, beginUs, endUs, grid.width, grid.rows, grid.values, painting ? grid.hits : null, false);
    this.drawCoarse(context, scene, plot);
    return { plot, fullest: grid.fullest, painted: painting ? grid.painted : null };
  }

  private putImage(
    context: CanvasRenderingContext2D, plot: Plot, beginUs: number, endUs: number, width: number, rows: number,
    values: Float32Array, hits: ArrayLike<number> | null, spread: boolean,
  ): void {
    this.image.width = width;
    this.image.height = rows;
    const brush = this.image.getContext("2d");
    if (!brush) return;
    const data = brush.createImageData(width, rows);
    const pixels = new Uint32Array(data.data.buffer);
    const scale = hits ? this.greys : this.scale;
    for (let x = 0; x < width; x++) {
      for (let y = 0; y < rows; y++) {
        const at = x * rows + y;
        // If a pixel covers many seconds, a single match is one pixel wide: make it two.
        const hit = !hits ? 0 : spread && x > 0 ? Math.max(hits[at] as number, hits[at - rows] as number) : (hits[at] as number);
        const value = hit > 0 ? (this.paints[Math.round(hit * 255)] as number) : (scale[Math.round((values[at] as number) * 255)] as number);
        pixels[y * width + x] = value;
      }
    }
    brush.putImageData(data, 0, 0);
    context.imageSmoothingEnabled = false;
    const left = xOf(plot, beginUs);
    context.drawImage(this.image, left, plot.top, xOf(plot, endUs) - left, plot.height);
  }

  private drawGaps(context: CanvasRenderingContext2D, scene: HeatScene, plot: Plot): void {
    for (const gap of scene.overview.header.gaps) {
      this.hatched(context, plot, gap.begin_us, gap.end_us, this.theme.gap, "not recorded");
    }
  }

  private drawCoarse(context: CanvasRenderingContext2D, scene: HeatScene, plot: Plot): void {
    for (const part of details(scene.overview.header)) {
      if (part.step_us === 0) continue;
      this.hatched(context, plot, part.begin_us, part.end_us, this.theme.line, `only sums over ${duration(part.step_us)} are stored here`);
    }
  }

  private hatched(context: CanvasRenderingContext2D, plot: Plot, beginUs: number, endUs: number, colour: string, text: string): void {
    const left = Math.max(plot.left, xOf(plot, beginUs));
    const right = Math.min(plot.left + plot.width, Math.max(left + 2, xOf(plot, endUs)));
    if (right <= plot.left || left >= plot.left + plot.width || endUs <= plot.beginUs) return;
    context.fillStyle = this.theme.map;
    context.fillRect(left, plot.top, right - left, plot.height);
    context.fillStyle = hatch(context, colour);
    context.fillRect(left, plot.top, right - left, plot.height);
    context.font = SANS;
    const wide = context.measureText(text).width + 10;
    if (wide > right - left) return;
    const middle = (left + right) / 2;
    context.fillStyle = this.theme.panel;
    context.fillRect(middle - wide / 2, plot.top + plot.height / 2 - 9, wide, 18);
    context.fillStyle = this.theme.ink;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(text, middle, plot.top + plot.height / 2);
  }

  private drawMatchLane(context: CanvasRenderingContext2D, scene: HeatScene, plot: Plot, paint: Paint): void {
    const { header } = scene.overview;
    const [first, last] = columnsIn(header, plot.beginUs, plot.endUs);
    const { begin_us, step_us } = header.heat;
    context.fillStyle = this.theme.paint;
    for (let column = first; column < last; column++) {
      if (paint.columns[column] === 0) continue;
      const from = column;
      while (column + 1 < last && paint.columns[column + 1] === 1) column++;
      const left = Math.max(plot.left, xOf(plot, begin_us + from * step_us));
      const right = Math.min(plot.left + plot.width, xOf(plot, begin_us + (column + 1) * step_us));
      context.fillRect(left, plot.top - MATCH_LANE + 1, Math.max(2, right - left), MATCH_LANE - 3);
    }
  }
}

/** Rows are whole pixels, so that every core has the same height. */
function planned(scene: HeatScene, width: number, screenHeight: number): Plot {
  const rows = scene.mode === "cores" ? scene.cores.length : SUBSECOND_ROWS;
  const room = scene.mode === "cores" ? Math.max(200, screenHeight * 0.36) : Math.min(SUBSECOND_HEIGHT, screenHeight * 0.36);
  const least = rows * 2 <= screenHeight * 0.45 ? 2 : 1;
  const row = Math.min(15, Math.max(least, Math.floor(room / Math.max(1, rows))));
  return {
    mode: scene.mode, left: LEFT, top: TOP, width: Math.max(50, width - LEFT - RIGHT), height: Math.max(30, row * rows),
    cores: scene.cores, beginUs: scene.view.beginUs, endUs: scene.view.endUs,
  };
}
