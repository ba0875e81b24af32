/** The layout of a flame graph: rectangles wide enough to see, widest first. */
import type { Tree } from "./tree";

export const REST = -1;

export interface Box {
  /** REST: all frames here that are too narrow to draw. */
  node: number;
  /** From 0 to 1 of the graph's width. */
  x: number;
  width: number;
  level: number;
}

/**
 * The boxes of the tree zoomed to `focus`: its ancestors across the whole width, then its
 * descendants as wide as their share, leaving out those narrower than `least` (of 1).
 */
export function boxes(tree: Tree, focus: number, least: number): Box[][] {
  const levels: Box[][] = [];
  const put = (box: Box) => (levels[box.level] ??= []).push(box);
  const whole = tree.width[focus] as number;
  for (let node = tree.parent[focus] as number; node >= 0; node = tree.parent[node] as number) {
    put({ node, x: 0, width: 1, level: tree.depth[node] as number });
  }
  const waiting: Box[] = [{ node: focus, x: 0, width: 1, level: tree.depth[focus] as number }];
  for (let box = waiting.pop(); box; box = waiting.pop()) {
    put(box);
    let x = box.x;
    const below: Box[] = [];
    for (const node of childrenOf(tree, box.node)) {
      const width = whole > 0 ? (tree.width[node] as number) / whole : 0;
      if (width < least) {
        const rest = restOf(tree, box.node, node) / whole;
        if (rest >= least) put({ node: REST, x, width: rest, level: box.level + 1 });
        break;
      }
      below.push({ node, x, width, level: box.level + 1 });
      x += width;
    }
    for (let i = below.length - 1; i >= 0; i--) waiting.push(below[i] as Box);
  }
  for (const row of levels) row.sort((a, b) => a.x - b.x);
  return levels;
}

/** The width of `first` and of the siblings after it, in the order of childrenOf. */
function restOf(tree: Tree, parent: number, first: number): number {
  const row = childrenOf(tree, parent);
  let width = 0;
  for (let i = row.indexOf(first); i < row.length; i++) width += tree.width[row[i] as number] as number;
  return width;
}

/** A node's children, widest first. */
export function childrenOf(tree: Tree, node: number): Uint32Array {
  const part = tree.child.subarray(tree.childStart[node] as number, tree.childStart[node + 1] as number);
  return part.sort((a, b) => (tree.width[b] as number) - (tree.width[a] as number) || a - b);
}

/** The box under a point, or null. */
export function boxAt(levels: Box[][], level: number, x: number): Box | null {
  const row = levels[level];
  if (!row) return null;
  let low = 0;
  let high = row.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((row[middle] as Box).x <= x) low = middle + 1;
    else high = middle;
  }
  const box = row[low - 1];
  return box && x < box.x + box.width ? box : null;
}

export type Step = "in" | "out" | "left" | "right";

/** The node that an arrow key leads to, or `node` itself. */
export function neighbour(tree: Tree, node: number, step: Step): number {
  if (step === "out") return Math.max(0, tree.parent[node] as number);
  if (step === "in") return childrenOf(tree, node)[0] ?? node;
  const parent = tree.parent[node] as number;
  if (parent < 0) return node;
  const row = childrenOf(tree, parent);
  return row[row.indexOf(node) + (step === "right" ? 1 : -1)] ?? node;
}
