// The live page: it polls the snapshot, keeps ten minutes, and draws them. It writes text as text, never as HTML.
(() => {
  "use strict";
  const kept = 600, patience = 4000;
  const $ = (id) => document.getElementById(id);
  const make = (tag, props = {}, ...children) => {
    const e = Object.assign(document.createElement(tag), props);
    e.append(...children);
    return e;
  };

  // What is known: times are Unix seconds; each series has one value for each of them, or null.
  const state = { boot: "", seq: 0, times: [], series: new Map(), ids: new Map(), changes: [], paused: false, heard: 0, failed: 0, restarted: 0, restartedAt: 0 };
  const keyOf = (is) => JSON.stringify([is.source, is.name, Object.entries(is.labels).sort()]);

  // take adds a snapshot to what is known.
  const take = (s) => {
    if (state.boot && s.boot !== state.boot) {
      state.restarted = performance.now();
      state.restartedAt = s.times.length ? s.times[0] : s.now;
      state.changes.push({ t: state.restartedAt, source: "", text: "the process was restarted", tone: "plain" });
      state.ids.clear();
      if (s.times[0] / 1000 <= state.times[state.times.length - 1]) { // its clock was set back: what is known does not fit before it
        state.times = [];
        state.series.clear();
      }
    }
    state.boot = s.boot;
    state.seq = s.seq;
    const before = state.times.length, fresh = s.times.length;
    for (const t of s.times) state.times.push(t / 1000);
    for (const one of s.series) {
      if (one.is) {
        const key = keyOf(one.is);
        if (!state.series.has(key)) state.series.set(key, { ...one.is, key, values: new Array(before).fill(null) });
        state.ids.set(one.id, state.series.get(key));
      }
      const series = state.ids.get(one.id);
      if (!series) continue;
      for (let i = 0; i < fresh; i++) series.values.push(one.v ? one.v[i] : one.all);
    }
    for (const series of state.series.values()) while (series.values.length < state.times.length) series.values.push(null);
    const extra = state.times.length - kept;
    if (extra > 0) {
      state.times.splice(0, extra);
      for (const [key, series] of state.series) {
        series.values.splice(0, extra);
        if (series.values.every((v) => v == null)) state.series.delete(key);
      }
    }
    state.changes.push(...s.changes);
    state.changes = state.changes.sort((a, b) => a.t - b.t).slice(-50);
  };

  const last = (series) => (series && series.values.length ? series.values[series.values.length - 1] : null);
  const kind = (series) => series.name.replace(/^spillway\./, "").split(".")[0];
  const figure = (series) => series.name.replace(/^spillway\.[^.]*\./, "");
  const text = (v) => (v == null ? "" : Math.abs(v) >= 100 ? v.toFixed(0) : String(+v.toPrecision(3)));

  // The charts of a source. Each rule picks series and says how they are drawn; a chart without series is not shown.
  const colors = new Map(); // by what a line is, so that it has one colour in all charts
  const colorOf = (what) => {
    if (!colors.has(what)) colors.set(what, 3 + (colors.size % 7));
    return colors.get(what);
  };
  const line = (series, name, role, more) => ({ series, name, role, scale: 1, ...more });
  const chartsOf = (source, all) => {
    const find = (name, labels = {}) =>
      all.filter((s) => s.name === name && !s.labels.shadow && Object.entries(labels).every(([k, v]) => s.labels[k] === v));
    const out = [];
    const add = (id, title, unit, lines, more = {}) => {
      lines = lines.filter((l) => l.series);
      if (lines.length) out.push({ id: source + "\n" + id, title, unit, lines, ...more });
    };
    const gate = "spillway.gate.requests";
    add("requests", "Requests", "per second", [
      line(find(gate, { result: "admitted" })[0], "admitted", 1, { fill: true }),
      line(find(gate, { result: "refused" })[0], "refused", 2),
      line(find(gate, { result: "cancelled" })[0], "cancelled", 0),
    ]);
    // The law: one chart for each policy that has a limit and counts what is in flight.
    for (const limit of all.filter((s) => /\.limit$/.test(s.name) && !s.labels.shadow)) {
      const inFlight = find("spillway." + kind(limit) + ".in_flight", { policy: limit.labels.policy })[0];
      if (inFlight) {
        add("law " + limit.labels.policy, "In flight against its limit", limit.labels.policy, [
          line(inFlight, "in flight", 1, { fill: true }), line(limit, "limit", 2, { dashed: true }),
        ]);
      }
    }
    if (!out.some((c) => c.id.includes("\nlaw "))) {
      add("in flight", "In flight", "requests", [line(find("spillway.gate.in_flight")[0], "in flight", 1, { fill: true })]);
    }
    for (const cpu of find("spillway.shedder.cpu")) {
      const own = { policy: cpu.labels.policy };
      add("cpu " + own.policy, "CPU", "% of what the process may use", [
        line(cpu, "raw", 0, { scale: 100, dashed: true }), line(find("spillway.shedder.cpu_smoothed", own)[0], "smoothed", 1, { scale: 100 }),
      ], { max: 115 });
      add("wait " + own.policy, "Wait for a CPU", "ms", [
        line(find("spillway.shedder.queue_delay", own)[0], "goroutines wait", 1, { scale: 1e3 }),
        line(find("spillway.shedder.min_rt", own)[0], "calm latency", 0, { scale: 1e3, dashed: true }),
      ]);
    }
    const reasons = all.filter((s) => figure(s) === "refusals" && s.labels.reason && !s.labels.shadow);
    const gated = reasons.filter((s) => kind(s) === "gate");
    add("reasons", "Refusals by reason", "per second",
      (gated.length ? gated : reasons).map((s) => line(s, s.labels.policy + ": " + s.labels.reason, colorOf("reason " + s.labels.policy + s.labels.reason))));
    add("priorities", "Refusals by priority", "per second", find("spillway.shedder.priority_refusals").map((s) =>
      line(s, s.labels.priority, { sheddable: 0, normal: 1, critical: 2 }[s.labels.priority] ?? 3)));
    add("demand", "Demand", "offered load, as a multiple of what it can carry", find("spillway.demand").map((s) => line(s, s.labels.policy || "demand", 1, { fill: true })),
      { marks: [{ Y: 1, Name: "1.0: all that it can carry" }] });
    add("breakers", "Breakers", "% of the calls", find("spillway.breaker.failure").flatMap((s) => [
      line(s, s.labels.policy + " failed", colorOf("breaker " + s.labels.policy), { scale: 100 }),
      line(find("spillway.breaker.admitted", { policy: s.labels.policy })[0], s.labels.policy + " admitted", colorOf("breaker " + s.labels.policy), { scale: 100, dashed: true }),
    ]), { max: 105 });
    const shadows = all.filter((s) => s.name === "spillway.shadow.requests" && s.labels.result === "refused");
    add("shadows", "Shadows: requests that they would refuse", "per second", shadows.map((s) => line(s, candidate(s), colorOf("shadow " + candidate(s)))));
    add("regrets", "Shadows: refusals that would be wrong", "per second", all.filter((s) => s.name === "spillway.shadow.regrets" && s.labels.candidate === "refused")
      .map((s) => line(s, candidate(s), colorOf("shadow " + candidate(s)))));
    return out;
  };

  const candidate = (s) => (s.labels.policy || "candidate") + " #" + s.labels.shadow;

  // recent is the mean of the last ten samples, which is easier to read than the last one.
  const recent = (series) => {
    const known = series ? series.values.slice(-10).filter((v) => v != null) : [];
    return known.length ? text(known.reduce((a, b) => a + b) / known.length) : "";
  };
  const named = (own, ...names) => own.find((s) => names.includes(figure(s)));
  const counted = (own, name, label, value) => recent(own.find((s) => figure(s) === name && s.labels[label] === value));
  const stateOf = (own) => own.filter((s) => ["state", "overload_reason", "breaker_state"].includes(figure(s)) && last(s) === 1).map((s) => s.labels.state || s.labels.reason)[0];

  // The columns of the tables of policies and of candidates. A column that no row fills is not shown.
  const policyColumns = [
    ["state", stateOf],
    ["limit", (own) => text(last(named(own, "limit", "rate")))],
    ["in flight", (own) => text(last(named(own, "in_flight")))],
    ["waiting", (own) => text(last(named(own, "waiting")))],
    ["keys", (own) => text(last(named(own, "keys")))],
    ["admitted/s", (own) => counted(own, "requests", "result", "admitted")],
    ["refused/s", (own) => counted(own, "requests", "result", "refused") || recent(named(own, "refused"))],
  ];
  const shadowColumns = [
    ["state", stateOf],
    ["would admit/s", (own) => counted(own, "requests", "result", "admitted")],
    ["would refuse/s", (own) => counted(own, "requests", "result", "refused")],
    ["really refused/s", (own) => recent(named(own, "enforced"))],
    ["regret: admitted/s", (own) => counted(own, "regrets", "candidate", "admitted")],
    ["regret: refused/s", (own) => counted(own, "regrets", "candidate", "refused")],
  ];
  const rowsOf = (all, columns, who) => {
    const rows = new Map();
    for (const s of all) {
      const name = who(s);
      if (name) rows.set(name, [...(rows.get(name) || []), s]);
    }
    return [...rows].map(([name, own]) => [name, ...columns.map(([, value]) => value(own) || "")]).filter((r) => r.some((cell, i) => i > 0 && cell));
  };
  const policy = (s) => {
    if (s.labels.shadow || (kind(s) === "gate" && s.labels.policy) || !figure(s)) return "";
    return !s.labels.policy || s.labels.policy === kind(s) ? kind(s) : s.labels.policy + " (" + kind(s) + ")";
  };
  // A candidate's row has the counts of the shadow and the state of the policy itself.
  const shadowed = (s) => (s.labels.shadow && (kind(s) === "shadow" || ["state", "overload_reason"].includes(figure(s))) ? candidate(s) : "");

  const tone = (s) => (["closed", "calm"].includes(s) ? "good" : ["half-open", "disabled", ""].includes(s) ? "" : "bad");

  const sections = new Map(); // by source
  const boxes = new Map(); // by the id of a chart: its box and what lines it has
  const range = () => Number($("range").value);
  const x = () => { // the stretch of time that is shown: no longer than there are figures, but at least a minute
    const end = state.times[state.times.length - 1] || 0;
    return [Math.max(end - range(), Math.min(state.times[0] || 0, end - 60)), end];
  };
  const events = () => state.changes.map((c) => ({ x: c.t / 1000, tone: c.tone }));

  const section = (source) => {
    if (!sections.has(source)) {
      const one = {
        title: make("h2", { textContent: source }), verdict: make("p", { className: "text" }), charts: make("div", { className: "charts" }),
        policies: make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Policies of " + source }),
        shadows: make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Shadows of " + source }),
        keys: make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Keys refused most of " + source }),
      };
      one.root = make("section", { className: "source" }, one.title, one.verdict, one.charts, one.policies, one.shadows, one.keys);
      sections.set(source, one);
      $("sources").append(one.root);
    }
    return sections.get(source);
  };

  const dataOf = (chart) => [state.times, ...chart.lines.map((l) => (l.scale === 1 ? l.series.values : l.series.values.map((v) => (v == null ? null : v * l.scale))))];

  const drawChart = (parent, chart) => {
    const lines = chart.lines.map((l) => l.series.key).join();
    const had = boxes.get(chart.id);
    if (had && had.lines === lines) {
      spillwayCharts.update(had.box, dataOf(chart));
      return;
    }
    const box = had ? had.box : make("div", { className: "chart", ariaLabel: "Chart: " + chart.title + ", " + chart.unit });
    if (!had) {
      parent.append(make("figure", {}, make("figcaption", {}, make("b", { textContent: chart.title }), " ", make("span", { className: "unit", textContent: chart.unit })), box));
    }
    boxes.set(chart.id, { box, lines });
    spillwayCharts.show(box, { clock: true, height: 170, lines: chart.lines, max: chart.max, marks: chart.marks, data: dataOf(chart), window: x, events });
  };

  // draw shows what is known.
  const draw = (s) => {
    const bySource = new Map();
    for (const one of state.series.values()) bySource.set(one.source, [...(bySource.get(one.source) || []), one]);
    for (const [source, all] of bySource) {
      const one = section(source);
      const v = s.verdicts.find((v) => v.source === source);
      one.verdict.textContent = v ? v.text : "It is not there any more.";
      one.verdict.hidden = s.verdicts.length < 2; // the headline says it
      const charts = chartsOf(source, all);
      for (const chart of charts) drawChart(one.charts, chart);
      for (const [id, b] of boxes) { // a chart whose figures are older than what is kept
        if (id.startsWith(source + "\n") && !charts.some((c) => c.id === id)) {
          spillwayCharts.remove(b.box);
          b.box.closest("figure").remove();
          boxes.delete(id);
        }
      }
      charts.forEach((chart, i) => { // a chart that appears late belongs where it would have been
        const figure = boxes.get(chart.id).box.closest("figure");
        if (one.charts.children[i] !== figure) one.charts.insertBefore(figure, one.charts.children[i]);
      });
      table(one.policies, "policy", policyColumns, rowsOf(all, policyColumns, policy));
      table(one.shadows, "candidate in a shadow", shadowColumns, rowsOf(all, shadowColumns, shadowed));
      table(one.keys, "key refused most", [["share of the refusals", (r) => r]], all.filter((s) => s.name === "spillway.keys.refused" && last(s) != null)
        .sort((a, b) => last(b) - last(a)).map((s) => [s.labels.key, Math.round(100 * last(s)) + " %"]));
    }
    // Sources without charts come last.
    const order = [...bySource.keys()].sort().map((source) => sections.get(source));
    [...order.filter((one) => one.charts.children.length), ...order.filter((one) => !one.charts.children.length)].forEach((one, i) => {
      if ($("sources").children[i] !== one.root) $("sources").insertBefore(one.root, $("sources").children[i] || null);
    });
    for (const [source, one] of sections) {
      if (!bySource.has(source)) {
        for (const [id, b] of boxes) if (id.startsWith(source + "\n")) { spillwayCharts.remove(b.box); boxes.delete(id); }
        one.root.remove();
        sections.delete(source);
      }
    }
    changes();
    figures();
  };

  const table = (place, first, columns, rows) => {
    const used = columns.map((c, i) => rows.some((r) => r[i + 1] !== ""));
    const pick = (cells) => cells.filter((_, i) => i === 0 || used[i - 1]);
    const head = pick([first, ...columns.map((c) => c[0])]);
    place.hidden = !rows.length;
    place.replaceChildren(make("table", {},
      make("thead", {}, make("tr", {}, ...head.map((h) => make("th", { textContent: h, scope: "col" })))),
      make("tbody", {}, ...rows.map((r) => make("tr", {}, ...pick(r).map((cell, i) =>
        head[i] === "state" && cell ? make("td", {}, make("span", { className: "state " + tone(cell), textContent: cell })) : make("td", { textContent: cell })))))));
  };

  const changes = () => {
    $("changes").hidden = !state.changes.length;
    const key = state.changes.map((c) => c.t + c.text).join();
    const list = document.querySelector("ol.changes");
    if (list.dataset.key === key) return; // so that the focus stays
    list.dataset.key = key;
    list.replaceChildren(...state.changes.slice().reverse().map((c) => {
      const at = new Date(c.t);
      const b = make("button", { type: "button", className: c.tone },
        make("time", { dateTime: at.toISOString(), textContent: at.toTimeString().slice(0, 8) }), (c.source && sections.size > 1 ? c.source + ": " : "") + c.text);
      b.addEventListener("click", () => spillwayCharts.point(c.t / 1000));
      return make("li", {}, b);
    }));
  };

  const figures = () => {
    $("all").hidden = !state.series.size;
    $("count").textContent = state.series.size;
    const details = document.querySelector("#all details");
    if (!details.open) return;
    details.querySelector("tbody").replaceChildren(...[...state.series.values()].map((s) => make("tr", { title: s.help },
      make("td", { textContent: s.name }), make("td", { className: "wrap", textContent: Object.entries(s.labels).map((l) => l.join("=")).join(", ") }),
      make("td", { textContent: s.source }), make("td", { textContent: text(last(s)) }),
      make("td", { textContent: s.kind === "counter" ? s.unit + "/s" : s.unit }))));
  };

  const headline = (s) => {
    const h = $("headline");
    if (h.textContent !== s.headline) h.textContent = s.headline;
    h.className = s.state;
    document.title = (s.state === "refusing" ? "! " : "") + document.querySelector(".name").textContent + " – " + s.headline;
    const notes = s.notes.join("\n");
    if ($("notes").dataset.key !== notes) {
      $("notes").dataset.key = notes;
      $("notes").replaceChildren(...s.notes.map((n) => make("li", { textContent: n })));
    }
  };

  // alarm says what is wrong with the connection: a server that does not answer, or one that was restarted.
  const alarm = () => {
    const silent = state.heard ? (performance.now() - state.heard) / 1000 : 0;
    let say = "";
    if (state.failed > 1 || silent > patience / 1000) {
      say = `No answer from the server for ${Math.round(silent)} s. The figures are old; trying again each second.`;
    } else if (state.restarted && performance.now() - state.restarted < 60000) {
      say = "The process was restarted at " + new Date(state.restartedAt).toTimeString().slice(0, 8) + ".";
    }
    $("alarm").hidden = !say;
    if ($("alarm").textContent !== say) $("alarm").textContent = say;
    const end = state.times[state.times.length - 1];
    $("age").textContent = end ? (state.paused ? "Paused at " : "As of ") + new Date(end * 1000).toTimeString().slice(0, 8) : "";
  };

  let timer = 0, polling = false;
  const again = (ms) => {
    clearTimeout(timer);
    timer = setTimeout(poll, ms);
  };
  const ask = async (since) => {
    const stop = new AbortController(), late = setTimeout(() => stop.abort(), patience);
    try {
      const answer = await fetch("snapshot?since=" + since, { signal: stop.signal, cache: "no-store", credentials: "same-origin" });
      if (!answer.ok) throw new Error(answer.status);
      return await answer.json();
    } finally {
      clearTimeout(late);
    }
  };

  // poll asks for what is new, just after the next sample is due. Hidden and paused pages ask for nothing, and catch up later.
  const poll = async () => {
    if (polling || state.paused || document.hidden) return;
    polling = true;
    let next = 1000;
    try {
      let s = await ask(state.seq);
      if (state.boot && s.boot !== state.boot) s = await ask(0); // another process: its numbers begin anew
      take(s);
      state.heard = performance.now();
      state.failed = 0;
      next = Math.min(Math.max(s.next + 20, 100), 2000);
      headline(s);
      draw(s);
    } catch (e) {
      state.failed++; // the server is away, or slow: the page says so, and goes on
      if (!(e instanceof TypeError || e instanceof DOMException || e instanceof SyntaxError || e.message > 0)) console.error(e);
    } finally {
      polling = false;
    }
    alarm();
    again(next);
  };

  const pause = () => {
    state.paused = !state.paused;
    $("pause").setAttribute("aria-pressed", String(state.paused));
    $("pause").textContent = state.paused ? "Go on" : "Pause";
    alarm();
    if (!state.paused) again(0);
  };
  $("pause").addEventListener("click", pause);
  document.addEventListener("keydown", (e) => {
    if (e.key === "p" && !e.ctrlKey && !e.metaKey && !e.altKey && !["SELECT", "TEXTAREA"].includes(e.target.tagName)) pause();
  });
  $("range").addEventListener("change", () => boxes.forEach((b) => {
    const drawn = spillwayCharts.drawn(b.box);
    spillwayCharts.update(b.box, drawn.chart.data);
  }));
  document.querySelector("#all details").addEventListener("toggle", figures);
  document.addEventListener("visibilitychange", () => again(0));
  setInterval(() => { if (!state.paused) alarm(); }, 1000);
  poll();
})();
