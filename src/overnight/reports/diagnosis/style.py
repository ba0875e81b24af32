"""Style sheet and script of the page: light, dark and paper."""

from __future__ import annotations

import base64
import hashlib

from overnight.model import colours as code_colours
from overnight.model.flame import FrameKind
from overnight.reports.pictures import colours

# Light, dark. Colours that differ in hue also differ in lightness, so that a grey print shows it.
INKS = {
    "ground": ("#ffffff", "#14161a"),
    "card": ("#f5f5f3", "#1d2026"),
    "ink": ("#16181c", "#eceef2"),
    "soft": ("#4d535e", "#aab1bd"),
    "line": ("#b4b7bd", "#4a505b"),
    "link": ("#0a558c", "#8cc4ff"),
    "bad": ("#a50f1c", "#ff8a8f"),
    "warn": ("#825000", "#ffc46b"),
    "good": ("#1d6433", "#86d69c"),
    "info": ("#3b5680", "#a6c6f0"),
    "dying": ("#8f1d55", "#ff9cc4"),
    "kernel": code_colours.ink(FrameKind.KERNEL),
    "user": code_colours.ink(FrameKind.USER),
    "back": ("#fbfbfa", "#0d0f12"),
    "hot": ("#16181c", "#ffffff"),
}

COPY_SCRIPT = """for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const code = button.previousElementSibling;
    try { await navigator.clipboard.writeText(code.textContent); }
    catch {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      document.execCommand("copy");
    }
    button.textContent = "copied";
    document.getElementById("said").textContent = "Command copied.";
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  });
}
// A narrow screen shows a part of a timeline: the event, not the begin.
for (const figure of document.querySelectorAll("figure.scroll")) {
  const event = figure.querySelector(".hot, .mark.critical");
  if (event) figure.scrollLeft = event.getBoundingClientRect().left - figure.getBoundingClientRect().left - 24;
}
// Paper has no folds.
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
"""

LAYOUT = """
*{box-sizing:border-box}
html{color-scheme:light dark;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,"DejaVu Sans",sans-serif;-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:1120px;padding:20px 24px 60px}
h1{font-size:1.5rem;line-height:1.25;margin:.2rem 0 .4rem;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:2.2rem 0 .6rem;padding-top:.5rem;border-top:2px solid var(--line)}
h3{font-size:1rem;margin:1.2rem 0 .3rem;overflow-wrap:anywhere}
p,li,dd,td,th,figcaption{overflow-wrap:anywhere}
p{margin:.4rem 0;max-width:78ch}p.small{max-width:110ch}
a{color:var(--link)}
:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-999px}.skip:focus{left:8px;top:8px;background:var(--ground);padding:6px;z-index:1}
.small,figcaption,.from{color:var(--soft);font-size:.87rem}
.facts{display:flex;flex-wrap:wrap;gap:.1rem 1.4rem;margin:.3rem 0;padding:0;list-style:none;color:var(--soft);font-size:.9rem}.facts li{min-width:0;overflow-wrap:anywhere}
.facts b{color:var(--ink);font-weight:600}
.verdict{border:2px solid var(--ink);border-radius:8px;padding:14px 18px;margin:14px 0;background:var(--card)}
.verdict p.small{max-width:125ch}
.about{color:var(--soft);font-weight:600;max-width:none;overflow-wrap:anywhere}
.headline{display:flex;flex-wrap:wrap;justify-content:space-between;align-items:baseline;gap:.2rem 1.2rem}
.headline h1{min-width:0;flex:1 1 24ch}
.cause-found h1{color:var(--bad)}.inconclusive h1{color:var(--warn)}.no-cause h1{color:var(--good)}
dl.form{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.45rem 1.1rem;margin:.7rem 0}
dl.form dt{font-weight:650;color:var(--soft)}dl.form dd{margin:0;max-width:90ch;white-space:pre-wrap}
details{border-top:1px solid var(--line);padding:.45rem 0}.scroll+details{border-top:0}
summary{cursor:pointer;font-weight:600}details[open]>summary{margin-bottom:.5rem}
.confidence{display:inline-flex;align-items:center;gap:8px;font-weight:600}
.bar{display:inline-block;width:130px;height:12px;border:1px solid var(--ink);background:var(--ground)}
.bar i{display:block;height:100%;background:var(--ink)}
ol.steps{padding-left:1.4rem}ol.steps>li{margin:.9rem 0}
ul.evidence{padding-left:1.1rem;margin:.3rem 0}ul.evidence>li{margin:.45rem 0}
.against{color:var(--warn);font-weight:600}
.command{display:flex;gap:8px;align-items:flex-start;margin:.25rem 0;max-width:100%}
.command code{display:block;flex:0 1 auto;min-width:0;white-space:pre-wrap;overflow-wrap:anywhere;background:var(--card);border:1px solid var(--line);border-radius:4px;padding:3px 9px}
code{font:.86em/1.45 ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace}
button.copy{flex:none;white-space:nowrap;overflow-wrap:normal;font:inherit;font-size:.8rem;padding:1px 9px;border:1px solid var(--line);border-radius:4px;background:var(--ground);color:var(--link);cursor:pointer}
table{border-collapse:collapse;margin:.5rem 0;font-size:.92rem;width:100%}
caption{text-align:left;color:var(--soft);font-size:.87rem;padding-bottom:4px}
th,td{border-bottom:1px solid var(--line);padding:4px 12px 4px 0;text-align:left;vertical-align:top}
thead th{border-bottom:2px solid var(--ink);font-weight:600;overflow-wrap:normal}
td.n,th.n{text-align:right;white-space:nowrap;overflow-wrap:normal}
td.k{white-space:nowrap;overflow-wrap:normal}
figure{margin:.6rem 0}
svg{display:block;max-width:100%;height:auto}
.scroll{overflow-x:auto}
dl.plain{display:grid;grid-template-columns:minmax(0,max-content) minmax(0,1fr);gap:2px 16px;margin:.3rem 0}dl.plain dt{color:var(--soft);max-width:24ch;overflow-wrap:anywhere}
@media (max-width:640px){table.stacked thead{display:none}table.stacked tr{display:block;border-bottom:1px solid var(--line);padding:.4rem 0}
table.stacked td{display:inline;border:0;padding:0 .5rem 0 0}table.stacked td:last-child{display:block}}
@media (max-width:640px){dl.plain,dl.form{grid-template-columns:minmax(0,1fr)}dl.form dd{margin:0 0 .4rem}}
dl.plain dd{margin:0}
#said{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
"""

PICTURES = """
.chain text,.timeline text,.census text{font:13px system-ui,"DejaVu Sans",sans-serif;fill:var(--ink)}
.chain .b,.timeline .b,.census .b{font-weight:650}.chain .b{font-size:14px}
.chain .w{font:600 13px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace}
.chain .s,.timeline .s,.census .s{fill:var(--soft)}.chain tspan.b{fill:var(--ink);font-size:13px}
.chain .e,.timeline .e,.census .e{text-anchor:end}.timeline .d{text-anchor:middle}
.chain .box{fill:var(--card);stroke:var(--line);stroke-width:1.5}
.chain .box.root{stroke:var(--bad);stroke-width:3}.chain .box.event{stroke:var(--ink);stroke-width:3;stroke-dasharray:7 4}
.chain .arrow{stroke:var(--ink);fill:none}.chain .tip{fill:var(--ink)}
.timeline .t,.census .t{font-size:11.5px;fill:var(--soft)}
.timeline .back{fill:var(--back)}.timeline .busy{fill:var(--user)}.timeline .kernel{fill:var(--kernel)}
.timeline .edge{stroke:var(--soft);stroke-width:.7}
.timeline .rule,.census .rule{stroke:var(--line);stroke-width:.8;fill:none}
.timeline .hatch{stroke:var(--soft);stroke-width:1.6}.timeline .missing{fill:url(#hatch)}
.timeline .wait{fill:none;stroke:var(--ink);stroke-width:1.4}.timeline .halo{fill:none;stroke:var(--ground);stroke-width:4}
.timeline .hot{fill:none;stroke:var(--hot);stroke-width:1.6}
.timeline .pin{fill:var(--ink)}
.timeline .mark text{paint-order:stroke;stroke:var(--ground);stroke-width:4px}
.mark path{stroke-width:1.6;stroke-dasharray:4 3;fill:none}
.mark.critical path{stroke:var(--bad);stroke-dasharray:none}.timeline .mark.critical text{fill:var(--bad);font-weight:650}
.mark.warning path{stroke:var(--warn)}.timeline .mark.warning text{fill:var(--warn)}
.mark.info path{stroke:var(--info)}.timeline .mark.info text{fill:var(--info)}
.census .line{fill:none;stroke:var(--dying);stroke-width:2.4}.census .in-use{stroke:var(--ink);stroke-dasharray:5 4;stroke-width:1.6}
.census .event-line{stroke:var(--bad);stroke-width:1.6}
svg.embedded{width:100%;border:1px solid var(--line)}
svg#flame>rect:first-of-type{fill:var(--ground)}svg#flame>text{fill:var(--ink)}svg#flame>text.s{fill:var(--soft)}svg#flame g rect{stroke:var(--ground)}
"""

NARROW = """
@media screen and (max-width:760px){figure,.scroll{overflow-x:auto}figure svg,svg.embedded{max-width:none;width:860px}
caption,figcaption{position:sticky;left:0;max-width:calc(100vw - 48px)}}
"""

PAPER = """
@page{size:A4;margin:14mm 13mm}
@media print{
html{font-size:11.5px}body{max-width:none;padding:0}
.skip,button.copy,#said{display:none!important}
h2{margin-top:1.4rem;break-after:avoid}h3,caption,thead{break-after:avoid}
figure,.verdict,tr,ul.evidence>li,.command{break-inside:avoid}
svg{max-height:235mm}.scroll{overflow:visible}
.bar i,svg{print-color-adjust:exact;-webkit-print-color-adjust:exact}
a{color:inherit;text-decoration:none}
}
"""


def sheet() -> str:
    light, dark = (_scheme(number) for number in (0, 1))
    return f"{light}\n@media screen and (prefers-color-scheme:dark){{{dark}}}\n{LAYOUT}{PICTURES}{NARROW}{PAPER}"


def _scheme(number: int) -> str:
    inks = "".join(f"--{name}:{ink[number]};" for name, ink in INKS.items())
    heat = enumerate(colours.HEAT[number], start=1)
    levels = "".join(f".timeline .h{level}{{stroke:{colour}}}" for level, colour in heat)
    return f":root{{{inks}}}{levels}"


def policy() -> str:
    """Return the content security policy: no network, and only the one script, by its hash."""
    digest = base64.b64encode(hashlib.sha256(COPY_SCRIPT.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
