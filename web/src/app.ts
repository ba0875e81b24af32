/** The viewer: holds the choices of the reader, queries the model, and updates the views. */
import { DamagedNight, type Night, type Overview, type UserKind } from "./data/night";
import { answer, TOP, type Answer } from "./model/analysis";
import type { Measure } from "./model/compare";
import { masks, NO_FILTER, type Filter, type Masks } from "./model/filter";
import type { HeatMeasure } from "./model/heat";
import { NightSearch, type Matches } from "./model/matches";
import { paint, type Paint } from "./model/paint";
import { showing, type Mode, type Plot, type Point, type Span } from "./model/plot";
import { BadPattern } from "./model/search";
import { grouped } from "./model/times";
import { topUsers } from "./model/users";
import { rowTimeUs, type Window } from "./model/window";
import { readTheme } from "./views/colours";
import { byId, make } from "./views/elements";
import { FlamePane, type FlameState } from "./views/flamepane";
import { MapPane, type MapState } from "./views/mappane";
import { showFacts, showPlaces, showWindows } from "./views/panels";
import { Steering } from "./views/steering";
import { differenceTable, kindBar, topTable, userTable, type TableActions } from "./views/tables";
import { Tooltip } from "./views/tooltip";

export interface Choices {
  mode: Mode;
  measure: HeatMeasure;
  byCore: boolean;
  rootsBelow: boolean;
  callers: boolean;
  idle: boolean;
  /** Ranking of functions. */
  ranking: Measure;
  /** The table: functions, processes, threads or units. */
  top: UserKind;
  /** Rows of a table; null: the default. */
  most: number | null;
}

export class App {
  readonly choices: Choices = {
    mode: "cores", measure: "busy", byCore: false, rootsBelow: false, callers: false, idle: false, ranking: "self", top: "functions", most: null,
  };
  night: Night | null = null;
  selection: Window | null = null;
  baseline: Window | null = null;
  answer: Answer | null = null;
  milliseconds = 0;
  matches: Matches | null = null;
  view: Span;
  readonly map: MapPane;
  readonly flame: FlamePane;
  private masks: Masks | null = null;
  private paint: Paint | null = null;
  private draft: { window: Window; baseline: boolean } | null = null;
  private searching: NightSearch | null = null;
  private frame = 0;

  constructor(readonly overview: Overview) {
    const { header } = overview;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const tooltip = new Tooltip();
    this.view = { beginUs: header.begin_us, endUs: Math.max(header.begin_us + 1, header.end_us) };
    this.map = new MapPane(overview, readTheme(document, dark.matches), tooltip);
    this.flame = new FlamePane(readTheme(document, dark.matches), tooltip);
    dark.addEventListener("change", () => {
      const theme = readTheme(document, dark.matches);
      this.map.retheme(theme);
      this.flame.retheme(theme);
      this.redraw();
      this.flame.draw();
    });
    byId("viewer").hidden = false;
    byId("message").hidden = true;
    showFacts(header);
    showPlaces(header, this.map.pinned, (window) => this.go(window));
    this.steer();
    new ResizeObserver(() => {
      this.redraw();
      this.flame.draw();
    }).observe(byId("map"));
    this.map.draw(this.mapState());
  }

  /** Called when the rows are read: from now on selections and searches work. */
  complete(night: Night): void {
    this.night = night;
    this.masks = masks(night, NO_FILTER);
    this.searching = new NightSearch(night);
    setTimeout(() => this.warm(night), 0);
    if (this.selection) this.analyse();
    this.redraw();
  }

  /** Runs a few queries and discards the answers, so that the first selection is as fast as later ones. */
  private warm(night: Night): void {
    const middle = Math.floor(night.rowTime.length / 2);
    const at = rowTimeUs(night, middle);
    for (let i = 0; i < 4 && middle > 0 && this.masks; i++) {
      const window = { beginUs: at, endUs: at + 1e6, cores: null };
      answer(night, { window, baseline: window, masks: this.masks, idle: true, callers: i % 2 === 1, measure: "self" });
    }
  }

  select(window: Window | null): void {
    this.selection = window;
    if (!window) this.baseline = null;
    this.analyse();
  }

  /** Compares with a baseline; it has the cores of the selection unless it names its own. */
  compare(window: Window): void {
    this.baseline = { ...window, cores: window.cores ?? this.selection?.cores ?? null };
    this.analyse();
  }

  filter(filter: Filter): void {
    if (!this.night) return;
    this.masks = masks(this.night, filter);
    this.repaint();
    this.showMatches();
    this.analyse();
  }

  /** Highlights matches on heatmap and flame graph; an empty pattern clears them. */
  async search(pattern: string): Promise<void> {
    const status = byId("search-says");
    const field = byId("search");
    status.classList.remove("bad");
    status.title = "";
    field.removeAttribute("aria-invalid");
    try {
      if (pattern === "") {
        this.searching?.forget();
        this.matches = null;
      } else if (this.searching) {
        const matches = await this.searching.find(pattern);
        if (!matches) return;
        this.matches = matches;
      }
    } catch (error) {
      if (!(error instanceof BadPattern)) throw error;
      this.matches = null;
      status.classList.add("bad");
      field.setAttribute("aria-invalid", "true");
      status.textContent = error.message;
      status.title = error.message;
      this.repaint();
      this.showFlame();
      return;
    }
    this.repaint();
    this.showFlame();
    this.showMatches();
  }

  setView(view: Span): void {
    this.view = view;
    this.redraw();
  }

  /** Applies a change of the choices; those of the flame graph need a new answer. */
  choose(change: Partial<Choices>): void {
    Object.assign(this.choices, change);
    if (["callers", "idle", "ranking", "most"].some((name) => name in change)) this.analyse();
    else if ("top" in change) this.showAnswer();
    else if ("rootsBelow" in change) this.showFlame();
    this.redraw();
    this.showMatches();
  }

  mapState(): MapState {
    const { mode, measure } = this.choices;
    return {
      mode, measure, view: this.view, night: this.night, masks: this.masks, paint: this.paint, matches: this.matches,
      selection: this.selection, baseline: this.baseline, draft: this.draft,
    };
  }

  /** Selects a window and scrolls it into view. */
  private go(window: Window): void {
    this.view = showing(this.overview.header, this.view, window);
    this.select(window);
    this.redraw();
  }

  private redraw(): void {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.map.draw(this.mapState()));
  }

  private repaint(): void {
    if (!this.night || !this.masks) return;
    const wanted = this.matches !== null || this.masks.tasksFiltered;
    this.paint = wanted ? paint(this.night, this.masks, this.matches) : null;
    this.map.draw(this.mapState());
  }

  private showMatches(): void {
    const status = byId("search-says");
    if (status.classList.contains("bad")) return;
    if (!this.paint || (this.choices.mode === "subsecond" && !this.matches)) {
      status.textContent = "";
      return;
    }
    const where = `${grouped(this.map.painted)} cell${this.map.painted === 1 ? "" : "s"}`;
    const text = this.matches ? `${grouped(this.matches.functions)} function${this.matches.functions === 1 ? "" : "s"}, ${where}` : where;
    status.replaceChildren(make("span", "", "swatch paint"), text);
  }

  private analyse(): void {
    byId<HTMLButtonElement>("clear").disabled = this.selection === null;
    const begun = performance.now();
    this.answer = null;
    if (this.night && this.masks && this.selection) {
      this.answer = answer(this.night, {
        window: this.selection, baseline: this.baseline, masks: this.masks,
        idle: this.choices.idle, callers: this.choices.callers, measure: this.choices.ranking, most: this.choices.most,
      });
    }
    this.drawFlame();
    this.milliseconds = performance.now() - begun;
    this.map.drawOver(this.mapState());
    this.showAnswer();
  }

  private flameState(): FlameState | null {
    if (!this.night || !this.answer) return null;
    return { night: this.night, answer: this.answer, matches: this.matches, rootsBelow: this.choices.rootsBelow };
  }

  private drawFlame(): void {
    const state = this.flameState();
    byId("below").classList.toggle("empty", state === null);
    this.flame.show(state);
  }

  private showFlame(): void {
    this.drawFlame();
    this.showAnswer();
  }

  private showAnswer(): void {
    const state = this.flameState();
    const title = this.baseline && state ? "Comparison" : this.choices.callers ? "Callers" : "Flame graph";
    byId("flame-title").textContent = title;
    if (!state || !this.selection) {
      byId("windows").replaceChildren();
      byId("tables").replaceChildren();
      byId("small-print").textContent = `${grouped(this.overview.header.lost)} samples lost in this file`;
      byId("idle-text").textContent = "show idle";
      return;
    }
    const { window, baseline, top, differences } = state.answer;
    byId("idle-text").textContent = this.choices.idle ? "idle shown" : `show idle (${grouped(window.idleHidden)} hidden)`;
    showWindows({ night: state.night, wanted: this.selection, wantedBaseline: this.baseline, window, baseline, unknown: state.answer.tree.unknown, milliseconds: this.milliseconds, matched: this.flame.matchedText(state) });
    const actions: TableActions = {
      search: (name) => this.searchFor(name),
      measure: (ranking) => this.choose({ ranking }),
      kind: (top) => this.choose({ top }),
      only: (kind, name) => this.filterBy({ processes: "process", threads: "thread", units: "unit" }[kind], name),
    };
    const { top: kind, ranking, most } = this.choices;
    const tables: HTMLElement[] = baseline ? [differenceTable(state.night, differences, ranking, actions)] : [];
    tables.push(kindBar(kind, actions));
    if (kind === "functions") tables.push(topTable(state.night, window, top, ranking, actions));
    else tables.push(userTable(window, topUsers(state.night, window, kind, most ?? TOP), kind, actions));
    byId("tables").replaceChildren(...tables);
  }

  /** Enters a name into a filter field. */
  private filterBy(field: string, name: string): void {
    const input = byId<HTMLInputElement>(field);
    input.value = name;
    input.dispatchEvent(new Event("input"));
  }

  private searchFor(name: string): void {
    const pattern = `^${name.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")}$`;
    byId<HTMLInputElement>("search").value = pattern;
    void this.search(pattern);
  }

  private steer(): void {
    new Steering(byId<HTMLCanvasElement>("map-over"), {
      header: () => this.overview.header,
      plot: (): Plot | null => this.map.plot,
      view: () => this.view,
      byCore: () => this.choices.byCore,
      current: () => this.selection,
      draft: (window, baseline, announced) => {
        this.draft = window ? { window, baseline } : null;
        this.map.drawOver(this.mapState());
        if (announced) this.map.announce(this.mapState());
      },
      choose: (window, baseline) => (baseline && this.selection ? this.compare(window) : this.select(window)),
      click: (point: Point) => {
        const run = this.map.pinnedAt(this.mapState(), point);
        if (run) this.select({ beginUs: run.beginUs, endUs: run.endUs, cores: [run.core] });
        return run !== null;
      },
      hover: (point, page) => this.map.hover(this.mapState(), point, page),
      setView: (view) => this.setView(view),
    });
  }
}

/** Shows an error on the page. */
export function showProblem(error: unknown): void {
  byId("viewer").hidden = true;
  const message = byId("message");
  message.hidden = false;
  message.textContent = error instanceof DamagedNight ? error.message : `Cannot show this file: ${String(error)}`;
}
