// The rules: their versions and, for people who may, an editor. It writes text as text, never as HTML.
(() => {
  "use strict";
  const patience = 4000;
  const $ = (id) => document.getElementById(id);
  const make = (tag, props = {}, ...children) => {
    const e = Object.assign(document.createElement(tag), props);
    e.append(...children);
    return e;
  };
  let shown = "", edited = false, base = 0; // base is the version that the text is made from

  const call = async (order) => {
    const stop = new AbortController(), late = setTimeout(() => stop.abort(), patience);
    try {
      const answer = await fetch("rules", {
        signal: stop.signal, cache: "no-store", credentials: "same-origin",
        ...(order && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(order) }),
      });
      if (!answer.ok) throw new Error((await answer.text()).trim());
      return await answer.json();
    } finally {
      clearTimeout(late);
    }
  };

  const say = (text, tone = "") => {
    $("answer").textContent = text;
    $("answer").className = "state " + tone;
    $("answer").hidden = !text;
  };

  const order = async (what, done) => {
    try {
      draw(await call(what));
      say(done);
      return true;
    } catch (e) {
      say(e.message, "bad");
      return false;
    }
  };

  const draw = (s) => {
    const now = s.versions.find((v) => v.number === s.in_force);
    $("rules-state").textContent = `Version ${s.in_force} is in force` + (s.pinned ? ", pinned" : "") + "." + (s.error ? " " + s.error : "") +
      (s.who ? ` You are ${s.who}.` : "") + (s.who && !s.write ? " This page cannot write the rules: change them where they live." : "");
    $("editor").hidden = !s.who;
    $("unpin").hidden = !s.pinned;
    $("write").hidden = !s.write;
    if (!edited && now) {
      base = now.number;
      if ($("document").value !== now.document) $("document").value = now.document;
    }
    const key = JSON.stringify(s);
    if (key === shown) return; // so that the focus stays
    shown = key;
    document.querySelector("#rules tbody").replaceChildren(...s.versions.map((v) => {
      const pin = make("td");
      if (s.who && v.document) {
        const b = make("button", { type: "button", textContent: "Pin", ariaLabel: "Pin version " + v.number });
        b.addEventListener("click", () => order({ do: "pin", version: v.number }, "Version " + v.number + " is pinned in this process, until Unpin or a restart."));
        pin.append(b);
      }
      return make("tr", { title: v.hash },
        make("td", { textContent: v.number }), make("td", { textContent: new Date(v.t).toTimeString().slice(0, 8) }),
        make("td", { textContent: v.source }),
        make("td", {}, make("span", { className: "state " + (v.result === "refused" ? "bad" : ""), textContent: v.number === s.in_force ? "in force" : v.result })),
        make("td", { className: "wrap", textContent: v.error || [v.note, ...(v.changes || [])].filter(Boolean).join("; ") }), pin);
    }));
  };

  const poll = async () => {
    if (!document.hidden) {
      try {
        draw(await call());
      } catch (e) {
        $("rules-state").textContent = "The rules cannot be read: " + e.message;
      }
    }
    setTimeout(poll, 2000);
  };

  $("document").addEventListener("input", () => { edited = true; say(""); });
  $("check").addEventListener("click", () => order({ do: "check", document: $("document").value }, "The document is valid."));
  $("write").addEventListener("click", async () => {
    if (await order({ do: "write", document: $("document").value, version: base }, "Written. The processes take it when they read it next.")) edited = false;
  });
  $("unpin").addEventListener("click", () => order({ do: "unpin" }, "Not pinned any more."));
  poll();
})();
