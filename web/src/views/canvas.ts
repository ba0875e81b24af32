/** Canvas helpers: sizes in device pixels, texts that fit. */
import { cut } from "../data/names";

export const MONO = '11.5px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';
export const SANS = '11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';

export function fitted(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1;
  const deviceWidth = Math.max(1, Math.round(width * ratio));
  const deviceHeight = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== deviceWidth || canvas.height !== deviceHeight) {
    canvas.width = deviceWidth;
    canvas.height = deviceHeight;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d", { alpha: true });
  if (!context) throw new Error("This browser does not support canvas");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.direction = "ltr"; // a Hebrew name must not reverse the label
  return context;
}

/** Shortens a text to a width, with an ellipsis; "" if too little would be left. */
export function fitting(context: CanvasRenderingContext2D, text: string, width: number): string {
  const most = Math.floor(width / 3) + 1; // no letter is narrower than 3 px: never measure 8 kB
  const short = cut(text, most);
  if (context.measureText(short).width <= width) return short;
  let low = 0;
  let high = short.length;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if (context.measureText(cut(text, middle)).width <= width) low = middle;
    else high = middle - 1;
  }
  return low < 3 ? "" : cut(text, low);
}

/** A pattern of slanted lines for missing data. */
export function hatch(context: CanvasRenderingContext2D, colour: string): CanvasPattern | string {
  const tile = document.createElement("canvas");
  tile.width = 8;
  tile.height = 8;
  const brush = tile.getContext("2d");
  if (!brush) return colour;
  brush.strokeStyle = colour;
  brush.lineWidth = 1.2;
  brush.beginPath();
  for (const shift of [-8, 0, 8]) {
    brush.moveTo(shift, 8);
    brush.lineTo(shift + 8, 0);
  }
  brush.stroke();
  return context.createPattern(tile, "repeat") ?? colour;
}
