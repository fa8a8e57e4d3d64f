"""How the page looks: dark text on white, one column, nothing fetched from anywhere."""

from __future__ import annotations

CSS = """
:root { color-scheme: light; }
body { margin: 2rem auto; max-width: 72rem; padding: 0 1.5rem; background: #fff; color: #1a1a1a;
       font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .7rem; padding-bottom: .2rem; border-bottom: 1px solid #ccc; }
h3 { font-size: 1rem; margin: 1.3rem 0 .4rem; overflow-wrap: anywhere; }
p, li { max-width: 60rem; }
.note, figcaption { color: #555; font-size: .88rem; }
.scroll { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .9rem; }
thead th { border-bottom: 2px solid #333; vertical-align: bottom; }
th, td { padding: .25rem .7rem; text-align: right; vertical-align: top; font-variant-numeric: tabular-nums; }
th.word, td.word { text-align: left; }
td.number { white-space: nowrap; }
tbody tr { border-top: 1px solid #ddd; }
tbody tr:has(.under) { border-top: 0; color: #555; }
table.wrapped td.word { overflow-wrap: anywhere; white-space: pre-wrap; max-width: 26rem; }
.under { padding-left: 1rem; }
pre { background: #f5f5f5; border: 1px solid #ddd; border-radius: 4px; padding: .6rem .8rem; overflow-x: auto;
      font: .85rem/1.45 ui-monospace, "SF Mono", Menlo, Consolas, monospace; white-space: pre-wrap;
      overflow-wrap: anywhere; }
code { font: .92em ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
figure { margin: .4rem 0; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(21rem, 1fr)); gap: .8rem 1.6rem; }
.pictures.large { grid-template-columns: repeat(auto-fill, minmax(min(30rem, 100%), 1fr)); }
.pictures .together { grid-column: 1 / -1; }
.pictures img, .pictures svg, .wide svg { width: 100%; height: auto; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; padding: 0; margin: .5rem 0; }
.legend svg { vertical-align: middle; margin-right: .4rem; }
.ok { color: #006b4c; }
.bad { color: #a03a00; }
@media print { body { max-width: none; margin: 0; } section { break-inside: auto; } }
"""
