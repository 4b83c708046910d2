// What the report and the explorer share: colours that follow the theme, thumbnails cut from sheets.
"use strict";
const page = {
  color(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); },
  layout(more) {
    const axis = { gridcolor: page.color("--line"), zerolinecolor: page.color("--line") };
    const layout = { margin: { l: 55, r: 15, t: 10, b: 45 }, paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)", font: { color: page.color("--ink"), size: 12 },
      legend: { orientation: "h", y: -0.25 }, hovermode: "closest",
      modebar: { color: page.color("--soft"), activecolor: page.color("--ink"), bgcolor: "rgba(0,0,0,0)" }, ...more };
    layout.xaxis = { ...axis, ...(more.xaxis || {}) };
    layout.yaxis = { ...axis, ...(more.yaxis || {}) };
    return layout;
  },
  config: { responsive: true, displaylogo: false, scrollZoom: true },
  text(name) { return name.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]); },
  dots(groups, x, y, colors, size) {
    // Points of each group; of very many groups one trace, because a legend of hundreds covers the map.
    const trace = (name, rows, color) => ({ type: "scattergl", mode: "markers", name: page.text(name), customdata: rows,
      hoverinfo: "none", x: rows.map((row) => x[row]), y: rows.map((row) => y[row]), marker: { size, opacity: 0.8, color } });
    if (groups.length <= 20) return groups.map(([name, rows], place) => trace(name, rows, colors[place % colors.length]));
    const tint = groups.flatMap(([, rows], place) => rows.map(() => `hsl(${(place * 137) % 360}, 60%, 55%)`));
    return [trace("all", groups.flatMap(([, rows]) => rows), tint)];
  },
  mode(wanted) { return matchMedia("(pointer: coarse)").matches && wanted === "pan" ? false : wanted; },
  onTheme(draw) { matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw); },
  groups(labels, classes, clusters, by) {
    // Rows of each class, or of each cluster: [name, [row, …]].
    const found = new Map();
    const of = by === "class" ? labels : clusters;
    of.forEach((value, row) => { if (!found.has(value)) found.set(value, []); found.get(value).push(row); });
    const name = (value) => by === "class" ? (value < 0 ? "no label" : classes[value]) : `cluster ${value + 1}`;
    return [...found.entries()].sort((a, b) => a[0] - b[0]).map(([value, rows]) => [name(value), rows]);
  },
};
