/** Where labels have room: none covers another one, or a mark. */

export interface Label {
  left: number;
  right: number;
}

const GAP = 6;

function overlap(a: Label, b: Label): boolean {
  return a.left <= b.right + GAP && a.right >= b.left - GAP;
}

/** The lane of the label of each event, -1 for none; the first ones choose. Symbols without a label stand in lane 0. */
export function chooseLanes(labels: (Label & { x: number })[]): number[] {
  const lanes: Label[][] = [[], []];
  return labels.map((label) => {
    const besidesSymbols = labels.every(({ x }) => x === label.x || !overlap(label, { left: x, right: x }));
    const free = lanes.findIndex((taken, lane) => (lane > 0 || besidesSymbols) && !taken.some((other) => overlap(label, other)));
    lanes[free]?.push(label);
    return free;
  });
}
