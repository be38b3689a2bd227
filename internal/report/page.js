
(() => {
  "use strict";
  const boxes = [...document.querySelectorAll(".chart")];
  const theme = matchMedia("(prefers-color-scheme: dark)");
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (v) => {
    if (v == null) return "–";
    const a = Math.abs(v);
    return a >= 100 ? v.toFixed(0) : a >= 10 ? v.toFixed(1) : +v.toPrecision(3) + "";
  };

  const power = (v) => Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-6;

  // bands shades every other stretch and names each above the plot; marks are horizontal lines.
  const background = (chart) => (u) => {
    const { ctx } = u, { left, top, width, height } = u.bbox, px = devicePixelRatio;
    ctx.save();
    ctx.font = `${11 * px}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    ctx.textBaseline = "alphabetic";
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
  const marks = (chart) => (u) => {
    const { ctx } = u, { left, top, width, height } = u.bbox, px = devicePixelRatio;
    ctx.save();
    for (const m of chart.marks || []) {
      const y = u.valToPos(m.Y, "y", true);
      if (y < top || y > top + height) continue;
      ctx.strokeStyle = ctx.fillStyle = color("--mark");
      ctx.lineWidth = px;
      ctx.setLineDash([4 * px, 4 * px]);
      ctx.beginPath();
      ctx.moveTo(left, y);
      ctx.lineTo(left + width, y);
      ctx.stroke();
      ctx.font = `${11 * px}px system-ui, sans-serif`;
      ctx.textAlign = "right";
      ctx.textBaseline = "bottom";
      ctx.fillText(m.Name, left + width - 4 * px, y - 3 * px);
    }
    ctx.restore();
  };

  const draw = (box, chart) => {
    const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const range = (u, lo, hi) => [chart.min, chart.max || Math.max(hi == null ? 1 : hi * (chart.log ? 1.6 : 1.08), chart.min + 1e-9)];
    const options = {
      width: box.clientWidth,
      height: chart.height,
      padding: [18, 10, 0, 0],
      cursor: { sync: { key: "page" }, points: { size: 7 }, drag: { x: true, y: false } },
      scales: { x: { time: false }, y: chart.log ? { distr: 3, range } : { range } },
      axes: [
        { ...axis, size: 30, values: (u, ticks) => ticks.map((t) => t + " " + chart.xUnit) },
        { ...axis, size: 48, values: (u, ticks) => ticks.map((t) => (t == null || (chart.log && !power(t)) ? "" : String(+t.toPrecision(4)))) },
      ],
      series: [
        { label: "time", value: (u, v) => (v == null ? "" : v.toFixed(1) + " " + chart.xUnit) },
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
      hooks: { drawClear: [background(chart)], draw: [marks(chart)] },
    };
    box.replaceChildren();
    return new uPlot(options, chart.data, box);
  };

  let plots = [];
  const all = () => { plots = boxes.map((box, i) => draw(box, charts[i])); };
  all();
  theme.addEventListener("change", () => { plots.forEach((p) => p.destroy()); all(); });
  const resized = new ResizeObserver((entries) => {
    for (const e of entries) {
      const i = boxes.indexOf(e.target), width = Math.floor(e.contentRect.width);
      if (plots[i] && width > 0 && plots[i].width !== width) plots[i].setSize({ width, height: charts[i].height });
    }
  });
  boxes.forEach((b) => resized.observe(b));
})();
