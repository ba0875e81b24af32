/** The flame graph pane: zoom, keyboard navigation, tooltip and text alternative. */
import type { Night } from "../data/night";
import type { Answer } from "../model/analysis";
import { childrenOf, neighbour, type Step } from "../model/layout";
import { matchingSamples, type Matches } from "../model/matches";
import { grouped, percent } from "../model/times";
import { cut } from "../data/names";
import { differenceColour, frameColour, type Theme } from "./colours";
import { byId, say } from "./elements";
import { differenceOf, FlameView, labelText, type FlameScene } from "./flame";
import { showKeys } from "./panels";
import type { Tooltip } from "./tooltip";

const STEPS: Record<string, [Step, Step]> = {
  ArrowDown: ["in", "out"], ArrowUp: ["out", "in"], ArrowLeft: ["left", "left"], ArrowRight: ["right", "right"],
};

export interface FlameState {
  night: Night;
  answer: Answer;
  matches: Matches | null;
  rootsBelow: boolean;
}

export class FlamePane {
  private readonly canvas = byId<HTMLCanvasElement>("flame");
  private readonly view: FlameView;
  private readonly out = byId<HTMLButtonElement>("flame-out");
  private state: FlameState | null = null;

  constructor(
    private theme: Theme,
    private readonly tooltip: Tooltip,
  ) {
    this.view = new FlameView(this.canvas, theme);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.tooltip.hide());
    this.canvas.addEventListener("click", (event) => this.zoomTo(this.nodeAt(event)));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => this.tooltip.hide());
    this.out.addEventListener("click", () => this.zoomOut());
  }

  retheme(theme: Theme): void {
    this.theme = theme;
    this.view.retheme(theme);
  }

  /** Shows an answer; a new one is not zoomed. */
  show(state: FlameState | null): void {
    if (state?.answer !== this.state?.answer) {
      this.view.focus = 0;
      this.view.cursor = -1;
    }
    this.state = state;
    this.canvas.hidden = state === null;
    byId("hint").hidden = state !== null;
    this.draw();
  }

  draw(): void {
    const { state } = this;
    this.out.disabled = this.view.focus === 0 || state === null;
    if (!state) {
      showKeys([]);
      say(byId("flame-summary"), "");
      return;
    }
    this.view.draw(this.scene(state), byId("flame-part").clientWidth);
    this.drawKeys(state);
    say(byId("flame-summary"), this.summary(state));
  }

  /** Returns false if the graph was not zoomed. */
  zoomOut(): boolean {
    if (!this.state || this.view.focus === 0) return false;
    this.zoomTo(Math.max(0, this.state.answer.tree.parent[this.view.focus] as number));
    return true;
  }

  private scene(state: FlameState): FlameScene {
    const { answer } = state;
    return {
      night: state.night, tree: answer.tree, matches: state.matches, rootsBelow: state.rootsBelow,
      windowCoreSeconds: answer.window.capacity.coreSeconds, baseCoreSeconds: answer.baseline?.capacity.coreSeconds ?? 0,
    };
  }

  private nodeAt(event: MouseEvent): number {
    const box = this.canvas.getBoundingClientRect();
    return this.view.nodeAt(event.clientX - box.left, event.clientY - box.top);
  }

  private zoomTo(node: number): void {
    if (node < 0) return;
    this.view.focus = node;
    this.tooltip.hide();
    this.draw();
  }

  private hover(event: PointerEvent): void {
    const node = this.nodeAt(event);
    this.canvas.style.cursor = node > 0 ? "pointer" : "default";
    if (node < 0) this.tooltip.hide();
    else this.showTooltip(node, event.clientX, event.clientY);
  }

  private showTooltip(node: number, x: number, y: number): void {
    if (!this.state) return;
    const text = labelText(this.state.night, this.state.answer.tree, node);
    this.tooltip.show(x, y, text.name, this.rows(this.state, node, text.module, text.kind));
  }

  private rows(state: FlameState, node: number, module: string, kind: string): [string, string][] {
    const { tree, window, baseline } = state.answer;
    const total = tree.total[node] as number;
    const rows: [string, string][] = [];
    if (kind !== "root") rows.push([kind === "process" ? "process" : "module", kind === "process" ? "" : module || "unknown"]);
    if ((tree.run[node] as number) > 1) rows.push(["unknown functions in a row", `at most ${tree.run[node]}`]);
    rows.push(["samples", `${grouped(total)}${baseline ? ` (baseline ${grouped(tree.baseTotal[node] as number)})` : ""}`]);
    if (!tree.callers) rows.push(["self", grouped(tree.self[node] as number)]);
    rows.push(["share of selected samples", percent(window.samples > 0 ? total / window.samples : 0)]);
    rows.push(["share of capacity (cores \u00d7 time)", percent(total / window.capacity.samples)]);
    rows.push(["cores used", Number.isFinite(window.capacity.samplesOfOneCore) ? (total / window.capacity.samplesOfOneCore).toFixed(3) : "unknown"]);
    if (baseline) {
      const difference = differenceOf(this.scene(state), node);
      rows.push(["A \u2212 B, samples per core-second", `${difference > 0 ? "+" : ""}${difference.toPrecision(3)}`]);
      if (total === 0) rows.push(["vanished", "only in the baseline"]);
    }
    return rows.filter(([name, value]) => value !== "" || name !== "process");
  }

  private key(event: KeyboardEvent): void {
    const { state } = this;
    const steps = STEPS[event.key];
    if (!state || event.ctrlKey || event.metaKey || event.altKey) return;
    if (steps) {
      const { tree } = state.answer;
      const from = this.view.cursor < 0 ? this.view.focus : this.view.cursor;
      this.view.cursor = this.view.cursor < 0 ? from : neighbour(tree, from, state.rootsBelow ? steps[1] : steps[0]);
      this.draw();
      const place = this.view.placeOf(this.view.cursor);
      const box = this.canvas.getBoundingClientRect();
      if (place) this.showTooltip(this.view.cursor, box.left + place.x, box.top + place.y + 18);
      const text = labelText(state.night, tree, this.view.cursor);
      const rows = this.rows(state, this.view.cursor, text.module, text.kind);
      say(byId("flame-summary"), `${cut(text.name, 200)}. ${rows.map((row) => row.join(" ")).join(", ")}`);
    } else if (event.key === "Enter" && this.view.cursor >= 0) {
      this.zoomTo(this.view.cursor);
    } else if (event.key !== "Backspace" || !this.zoomOut()) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  private drawKeys(state: FlameState): void {
    const { dark } = this.theme;
    const keys = state.answer.baseline
      ? [
          { text: "more than in B (strongest: new)", fill: differenceColour(1, dark), outline: "" },
          { text: "less", fill: differenceColour(-1, dark), outline: "" },
          { text: "no significant difference", fill: differenceColour(0, dark), outline: "" },
          { text: "only in B (vanished)", fill: "transparent", outline: this.theme.accent },
        ]
      : [
          { text: "user", fill: frameColour("user", "", "", dark), outline: "" },
          { text: "kernel", fill: frameColour("kernel", "", "", dark), outline: "" },
          { text: "process", fill: frameColour("process", "", "", dark), outline: "" },
        ];
    if (state.matches) keys.push({ text: "matches the search", fill: this.theme.paint, outline: "" });
    showKeys(keys);
  }

  /** How many samples of the window the search matches. */
  matchedText(state: FlameState): string {
    if (!state.matches) return "";
    const { window } = state.answer;
    const samples = matchingSamples(window, state.matches, state.night.frameName.length);
    return `the search matches ${grouped(samples)} samples, ${percent(window.samples > 0 ? samples / window.samples : 0)} of those shown`;
  }

  private summary(state: FlameState): string {
    const { tree, window } = state.answer;
    const largest = [...childrenOf(tree, this.view.focus)].slice(0, 3).map((node) => {
      const share = window.samples > 0 ? (tree.total[node] as number) / window.samples : 0;
      return `${cut(labelText(state.night, tree, node).name, 80)} ${percent(share)}`;
    });
    const where = this.view.focus === 0 ? "" : ` Zoomed to ${cut(labelText(state.night, tree, this.view.focus).name, 80)}.`;
    return `Flame graph of ${grouped(window.samples)} samples.${where} Largest: ${largest.join(", ")}. The table of functions has the same data.`;
  }
}
