/** Colours, light and dark: a heat scale ordered by lightness, and the colours of the page. */

export interface Theme {
  dark: boolean;
  ground: string;
  panel: string;
  ink: string;
  muted: string;
  line: string;
  strong: string;
  accent: string;
  base: string;
  paint: string;
  pinned: string;
  gap: string;
  critical: string;
  warning: string;
  info: string;
  map: string;
}

export type Rgb = [number, number, number];

/** OKLCH (lightness 0-1, chroma, hue in degrees) as sRGB bytes, cut to the gamut. */
export function oklch(lightness: number, chroma: number, hue: number): Rgb {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((value) => {
    const cut = Math.min(1, Math.max(0, value));
    return Math.round(255 * (cut <= 0.0031308 ? 12.92 * cut : 1.055 * cut ** (1 / 2.4) - 0.055));
  }) as Rgb;
}

export function css([red, green, blue]: Rgb): string {
  return `rgb(${red} ${green} ${blue})`;
}

/**
 * 256 colours from idle (the background) to saturated. Lightness is monotonic, so that the order is visible
 * without hue; the last tenth changes faster, so that a saturated core stands out among busy ones.
 */
export function heatScale(dark: boolean): Rgb[] {
  return Array.from({ length: 256 }, (_, i) => {
    const share = i / 255;
    const rise = share < 0.9 ? share * 0.8 : 0.72 + (share - 0.9) * 2.8;
    const hue = dark ? 285 + 150 * rise : 95 - 150 * rise;
    const chroma = 0.02 + 0.16 * Math.sin(Math.PI * Math.min(1, 0.06 + rise * 0.86));
    return oklch(dark ? 0.17 + 0.78 * rise : 0.985 - 0.76 * rise, chroma, hue);
  });
}

/** The heat scale in grey, used while matches are highlighted. */
export function greyScale(dark: boolean): Rgb[] {
  return Array.from({ length: 256 }, (_, i) => oklch(dark ? 0.17 + 0.25 * (i / 255) : 0.985 - 0.2 * (i / 255), 0, 0));
}

/** Highlighted cells: from one matching sample to all. */
export function paintScale(dark: boolean): Rgb[] {
  return Array.from({ length: 256 }, (_, i) => {
    const share = Math.sqrt(i / 255);
    return dark ? oklch(0.34 + 0.55 * share, 0.06 + 0.11 * share, 165) : oklch(0.9 - 0.48 * share, 0.07 + 0.05 * share, 162);
  });
}

/** The scale as 32-bit pixels of an ImageData. */
export function packed(scale: Rgb[]): Uint32Array {
  return Uint32Array.from(scale, ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0);
}

export function readTheme(page: Document, dark: boolean): Theme {
  const style = getComputedStyle(page.documentElement);
  const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const names = ["ground", "panel", "ink", "muted", "line", "strong", "accent", "base", "paint", "pinned", "gap", "critical", "warning", "info", "map"];
  return { dark, ...Object.fromEntries(names.map((name) => [name, of(name)])) } as unknown as Theme;
}

/** A number from 0 to 1 that depends on the text only. */
export function shade(text: string): number {
  let hash = 2166136261;
  for (let i = 0; i < Math.min(text.length, 256); i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  return (hash >>> 8) / 16777216;
}

/** The fill of a frame: user warm, kernel cool, processes grey; hue by module, lightness by name. */
export function frameColour(kind: "user" | "kernel" | "process" | "root", module: string, name: string, dark: boolean): string {
  const vary = shade(module);
  const light = shade(name);
  if (kind === "root" || kind === "process") return css(oklch(dark ? 0.36 : 0.88, 0.012, 260));
  if (kind === "kernel") return css(oklch(dark ? 0.38 + 0.1 * light : 0.78 + 0.08 * light, 0.085, 235 + 25 * vary));
  return css(oklch(dark ? 0.4 + 0.11 * light : 0.84 + 0.08 * light, 0.08 + 0.02 * light, 50 + 40 * vary));
}

/** The fill of a compared frame: orange for more than in the baseline, blue for less; strongest for new and vanished. */
export function differenceColour(share: number, dark: boolean): string {
  const size = Math.min(1, Math.abs(share)) ** 0.7;
  if (size < 0.02) return css(oklch(dark ? 0.36 : 0.9, 0.008, 260));
  const hue = share > 0 ? 45 : 250;
  return css(oklch(dark ? 0.36 + 0.18 * size : 0.9 - 0.2 * size, 0.02 + 0.14 * size, hue));
}
