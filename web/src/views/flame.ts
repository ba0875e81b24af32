/** Draws a flame tree and answers what lies under a point; remembers what it is zoomed to. */
import { visible } from "../data/names";
import type { Night } from "../data/night";
import { rateDifference, surePart } from "../model/compare";
import { boxAt, boxes, REST, type Box } from "../model/layout";
import type { Matches } from "../model/matches";
import type { Tree } from "../model/tree";
import { fitted, fitting, MONO } from "./canvas";
import { differenceColour, frameColour, type Theme } from "./colours";

const ROW = 18;
const MIN_PIXELS = 0.6;

export interface FlameScene {
  night: Night;
  tree: Tree;
  matches: Matches | null;
  rootsBelow: boolean;
  /** Rates a core-second of a tree's samples, for comparing. */
  windowCoreSeconds: number;
  baseCoreSeconds: number;
}

export type LabelKind = "user" | "kernel" | "process" | "root";

export interface LabelText {
  name: string;
  module: string;
  kind: LabelKind;
}

export function labelText(night: Night, tree: Tree, node: number): LabelText {
  const label = tree.label[node] as number;
  const { strings } = night.header;
  if (label < 0) return { name: "all shown samples", module: "", kind: "root" };
  if (label >= tree.frames) return { name: visible(strings[label - tree.frames] as string), module: "", kind: "process" };
  const module = strings[night.frameModule[label] as number] as string;
  const run = tree.run[node] as number;
  return {
    name: visible(strings[night.frameName[label] as number] as string) + (run > 1 ? ` x${run}` : ""),
    module: module === "" ? "" : visible(module),
    kind: night.frameKind[label] === 1 ? "kernel" : "user",
  };
}

export class FlameView {
  focus = 0;
  cursor = -1;
  private levels: Box[][] = [];
  private width = 1;
  private rootsBelow = false;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private theme: Theme,
  ) {}

  retheme(theme: Theme): void {
    this.theme = theme;
  }

  draw(scene: FlameScene, width: number): void {
    this.width = Math.max(50, width);
    this.rootsBelow = scene.rootsBelow;
    this.levels = boxes(scene.tree, this.focus, MIN_PIXELS / this.width);
    const context = fitted(this.canvas, this.width, this.levels.length * ROW + 1);
    context.font = MONO;
    context.textBaseline = "middle";
    context.textAlign = "left";
    for (const row of this.levels) {
      for (const box of row ?? []) this.drawBox(context, scene, box);
    }
  }

  /** The node under a point of the canvas, or REST. */
  nodeAt(x: number, y: number): number {
    const row = Math.floor(y / ROW);
    const level = this.rootsBelow ? this.levels.length - 1 - row : row;
    return boxAt(this.levels, level, x / this.width)?.node ?? REST;
  }

  /** The place of a node in pixels of the canvas; null if it is not drawn. */
  placeOf(node: number): { x: number; y: number; width: number } | null {
    for (const row of this.levels) {
      for (const box of row ?? []) {
        if (box.node === node) return { x: box.x * this.width, y: this.top(box), width: box.width * this.width };
      }
    }
    return null;
  }

  private top(box: Box): number {
    return (this.rootsBelow ? this.levels.length - 1 - box.level : box.level) * ROW;
  }

  private drawBox(context: CanvasRenderingContext2D, scene: FlameScene, box: Box): void {
    const { tree, night, matches } = scene;
    const { theme } = this;
    const x = box.x * this.width;
    const y = this.top(box);
    const width = Math.max(MIN_PIXELS, box.width * this.width - (box.width * this.width > 3 ? 1 : 0));
    if (box.node === REST) {
      context.fillStyle = theme.line;
      context.fillRect(x, y, width, ROW - 1);
      return;
    }
    const text = labelText(night, tree, box.node);
    const label = tree.label[box.node] as number;
    const matched = matches !== null && label >= 0 && matches.label[label] === 1;
    const vanished = tree.compared && box.node !== 0 && tree.total[box.node] === 0;
    context.globalAlpha = box.node !== this.focus && isAncestor(tree, box.node, this.focus) ? 0.6 : 1;
    context.fillStyle = matched
      ? theme.paint
      : tree.compared
        ? differenceColour(sureChange(scene, box.node), theme.dark)
        : frameColour(text.kind, text.module, text.name, theme.dark);
    if (!vanished || matched) context.fillRect(x, y, width, ROW - 1);
    if (vanished && width > 2) {
      context.strokeStyle = theme.accent;
      context.lineWidth = 1;
      context.setLineDash([4, 2]);
      context.strokeRect(x + 0.5, y + 0.5, width - 1, ROW - 2);
      context.setLineDash([]);
    }
    if (box.node === this.cursor) {
      context.strokeStyle = theme.ink;
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, Math.max(2, width - 2), ROW - 3);
    }
    if (width > 22) {
      context.fillStyle = matched && theme.dark ? "#03231a" : matched ? "#fff" : theme.ink;
      const shown = fitting(context, text.name, width - 7);
      if (shown !== "") context.fillText(shown, x + 4, y + ROW / 2);
    }
    context.globalAlpha = 1;
  }
}

function isAncestor(tree: Tree, node: number, of: number): boolean {
  return (tree.depth[node] as number) < (tree.depth[of] as number);
}

/**
 * The relative change from -1 (vanished) to 1 (new); 0 if the interval includes 0, because it may be chance.
 * Relative, because width already shows the size: a process that grew by 2 % must not outshine a new function.
 */
function sureChange(scene: FlameScene, node: number): number {
  const { tree, windowCoreSeconds, baseCoreSeconds } = scene;
  if (node === 0 || windowCoreSeconds <= 0 || baseCoreSeconds <= 0) return 0;
  const row = rateDifference(tree.total[node] as number, windowCoreSeconds, tree.baseTotal[node] as number, baseCoreSeconds);
  return surePart(row) > 0 ? row.difference / Math.max(row.rate, row.baseRate) : 0;
}

/** Rate in the window minus rate in the baseline, in samples per core-second. */
export function differenceOf(scene: FlameScene, node: number): number {
  const { tree } = scene;
  const rate = scene.windowCoreSeconds > 0 ? (tree.total[node] as number) / scene.windowCoreSeconds : 0;
  const base = scene.baseCoreSeconds > 0 ? (tree.baseTotal[node] as number) / scene.baseCoreSeconds : 0;
  return rate - base;
}
