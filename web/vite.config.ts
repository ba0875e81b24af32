/** Builds dist/viewer.html: one file, everything inlined, allowed by its own policy to run only that. */
import { createHash } from "node:crypto";
import { type Plugin } from "vite";
import { defineConfig } from "vitest/config";

const MARKER = "<!--NIGHT-->";

function hashed(text: string): string {
  return `'sha256-${createHash("sha256").update(text, "utf8").digest("base64")}'`;
}

function oneFile(): Plugin {
  return {
    name: "one-file",
    enforce: "post",
    generateBundle(_options, bundle) {
      const page = bundle["viewer.html"];
      if (page?.type !== "asset") throw new Error("viewer.html was not built");
      let script = "";
      let style = "";
      for (const [name, part] of Object.entries(bundle)) {
        if (part === page) continue;
        if (part.type === "chunk") script += part.code;
        else if (name.endsWith(".css")) style += String(part.source);
        else throw new Error(`${name} cannot be inlined`);
        delete bundle[name];
      }
      // An HTML parser ends a script at "</script" and changes state at "<!--", also inside strings.
      script = script.replace(/<\/(?=script)/gi, "<\\/").replace(/<!--/g, "<\\!--");
      const policy = [
        "default-src 'none'",
        `script-src ${hashed(script)}`,
        `style-src ${hashed(style)}`,
        "worker-src blob:", // the search runs in a worker, so that a bad pattern can be stopped
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
      ].join("; ");
      const html = String(page.source)
        .replace(/<script type="module"[^>]*><\/script>\s*/, "")
        .replace(/<link rel="stylesheet"[^>]*>\s*/, "")
        .replace("<!--POLICY-->", () => `<meta http-equiv="Content-Security-Policy" content="${policy}">`)
        .replace("</head>", () => `<style>${style}</style>\n</head>`)
        .replace("</body>", () => `<script type="module">${script}</script>\n</body>`);
      if (html.split(MARKER).length !== 2) throw new Error(`${MARKER} must be there exactly once`);
      page.source = html;
    },
  };
}

export default defineConfig({
  plugins: [oneFile()],
  build: {
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 1_000_000,
    rollupOptions: { input: "viewer.html" },
  },
  test: { include: ["tests/unit/**/*.test.ts"] },
});
