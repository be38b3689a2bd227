// Charts over time, for the reports and the live page: light and dark, any width, a cursor that all charts of a page share, by
// mouse, touch and arrow keys. The drawing itself is uPlot's.
const spillwayCharts = (() => {
  "use strict";
  const shown = new Map(); // by box: the chart and its plot
  const theme = matchMedia("(prefers-color-scheme: dark)");
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const font = (px) => `${11 * px}px system-ui, sans-serif`;

  // short is a value with three digits; no value is no text.
  const short = (v) => {
    if (v == null) return "";
    const a = Math.abs(v);
    return a >= 100 ? v.toFixed(0) : a >= 10 ? v.toFixed(1) : +v.toPrecision(3) + "";
  };
  const clock = (s) => new Date(s * 1000).toTimeString().slice(0, 8);
  const power = (v) => Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-6;

  // background shades every other band and names each above the plot.
  const background = (chart) => (u) => {
    const { ctx } = u, { left, top, width, height } = u.bbox, px = devicePixelRatio;
    ctx.save();
    ctx.font = font(px);
    ctx.textAlign = "center";
    (chart.bands || []).forEach((b, i) => {
      const from = Math.max(u.valToPos(b.From, "x", true), left), to = Math.min(u.valToPos(b.To, "x", true), left + width);
      if (to <= from) return;
      if (i % 2 === 0) {
        ctx.fillStyle = color("--band");
        ctx.fillRect(from, top, to - from, height);
      }
      ctx.fillStyle = color("--muted");
      if (ctx.measureText(b.Name).width < to - from) ctx.fillText(b.Name, (from + to) / 2, top - 6 * px);
    });
    ctx.restore();
  };

  // foreground draws what happened as vertical lines, and marks as horizontal ones with a name that no line crosses.
  const foreground = (chart) => (u) => {
    const { ctx } = u, { left, top, width, height } = u.bbox, px = devicePixelRatio;
    ctx.save();
    ctx.lineWidth = px;
    for (const e of chart.events ? chart.events() : []) {
      const x = Math.round(u.valToPos(e.x, "x", true));
      if (x < left || x > left + width) continue;
      ctx.strokeStyle = ctx.fillStyle = color(e.tone === "bad" ? "--mark" : e.tone === "good" ? "--role3" : "--role0");
      ctx.setLineDash([2 * px, 3 * px]);
      ctx.beginPath();
      ctx.moveTo(x, top);
      ctx.lineTo(x, top + height);
      ctx.stroke();
      ctx.beginPath();
      ctx.moveTo(x - 4 * px, top - 7 * px);
      ctx.lineTo(x + 4 * px, top - 7 * px);
      ctx.lineTo(x, top);
      ctx.fill();
    }
    for (const m of chart.marks || []) {
      const y = u.valToPos(m.Y, "y", true);
      if (y < top || y > top + height) continue;
      ctx.strokeStyle = color("--mark");
      ctx.setLineDash([4 * px, 4 * px]);
      ctx.beginPath();
      ctx.moveTo(left, y);
      ctx.lineTo(left + width, y);
      ctx.stroke();
      ctx.font = font(px);
      ctx.textAlign = "right";
      ctx.textBaseline = "bottom";
      ctx.setLineDash([]);
      ctx.lineWidth = 4 * px; // a border in the colour of the card, so that no line crosses the name
      ctx.lineJoin = "round";
      ctx.strokeStyle = color("--card");
      ctx.strokeText(m.Name, left + width - 4 * px, y - 3 * px);
      ctx.lineWidth = px;
      ctx.fillStyle = color("--mark");
      ctx.fillText(m.Name, left + width - 4 * px, y - 3 * px);
    }
    ctx.restore();
  };

  const options = (box, chart) => {
    const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: font(1) };
    const least = chart.min || 0;
    const range = (u, lo, hi) => [least, chart.max || (hi > least ? hi * (chart.log ? 1.6 : 1.08) : least + 1)];
    const time = chart.clock ? clock : (t) => +t.toPrecision(12) + " " + chart.xUnit;
    return {
      width: box.clientWidth,
      height: chart.height,
      padding: [18, chart.clock ? 26 : 10, 0, 0],
      cursor: { y: false, sync: { key: "page" }, points: { size: 7 }, drag: { x: true, y: false } },
      scales: { x: { time: Boolean(chart.clock), range: chart.window }, y: chart.log ? { distr: 3, range } : { range } },
      axes: [
        { ...axis, size: 30, space: chart.clock ? 80 : 50, values: (u, ticks) => ticks.map(time) },
        { ...axis, size: 48, values: (u, ticks) => ticks.map((t) => (t == null || (chart.log && !power(t)) ? "" : String(+t.toPrecision(4)))) },
      ],
      series: [
        { label: "\u00a0", value: (u, v) => (v == null ? "" : chart.clock ? clock(v) : v.toFixed(1) + " " + chart.xUnit) },
        ...chart.lines.map((l) => ({
          label: l.name,
          stroke: color("--role" + l.role),
          fill: l.fill ? color("--role" + l.role) + "22" : undefined,
          width: l.dashed ? 1.5 : 2,
          dash: l.dashed ? [5, 4] : undefined,
          points: { show: false },
          value: (u, v) => short(v),
        })),
      ],
      hooks: { drawClear: [background(chart)], draw: [foreground(chart)] },
    };
  };

  const draw = (box) => {
    const one = shown.get(box);
    if (one.plot) one.plot.destroy();
    one.plot = new uPlot(options(box, one.chart), one.chart.data, box);
  };

  // step moves the cursor of all charts by so many samples.
  const step = (u, by) => {
    const xs = u.data[0], lo = u.scales.x.min, hi = u.scales.x.max;
    if (!xs.length) return;
    let i = u.cursor.idx == null ? xs.length - 1 : u.cursor.idx + by;
    while (i > 0 && xs[i] > hi) i--;
    while (i < xs.length - 1 && xs[i] < lo) i++;
    point(u, xs[Math.min(Math.max(i, 0), xs.length - 1)]);
  };
  const point = (u, x) => u.setCursor({ left: x == null ? -10 : u.valToPos(x, "x"), top: x == null ? -10 : 10 }, true, true);

  const resized = new ResizeObserver((entries) => {
    for (const e of entries) {
      const one = shown.get(e.target), width = Math.floor(e.contentRect.width);
      if (one && width > 0 && one.plot.width !== width) one.plot.setSize({ width, height: one.chart.height });
    }
  });
  theme.addEventListener("change", () => shown.forEach((_, box) => draw(box)));

  return {
    // show draws a chart in a box for the first time, or anew.
    show(box, chart) {
      const isNew = !shown.has(box);
      shown.set(box, { ...shown.get(box), chart });
      draw(box);
      if (!isNew) return;
      resized.observe(box);
      box.tabIndex = 0;
      box.setAttribute("role", "group");
      box.addEventListener("keydown", (e) => {
        const u = shown.get(box).plot;
        const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[e.key];
        if (e.key === "Escape") point(u, null);
        else if (by === undefined || e.altKey || e.ctrlKey || e.metaKey) return;
        else if (Number.isFinite(by)) step(u, by * (e.shiftKey ? 10 : 1));
        else point(u, u.data[0][by < 0 ? 0 : u.data[0].length - 1]);
        e.preventDefault();
      });
    },
    // update gives a chart new values for its lines.
    update(box, data) {
      const one = shown.get(box);
      one.chart.data = data;
      one.plot.setData(data);
    },
    // point puts the cursor of all charts at x, or takes it away if x is null.
    point(x) {
      const first = shown.values().next().value;
      if (first) point(first.plot, x);
    },
    // remove forgets a box.
    remove(box) {
      if (!shown.has(box)) return;
      shown.get(box).plot.destroy();
      resized.unobserve(box);
      shown.delete(box);
    },
    // drawn returns what a box shows, for tests.
    drawn: (box) => shown.get(box),
  };
})();
