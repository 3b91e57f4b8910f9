"use strict";
(() => {
  const EVERY_MS = 2000;
  const WHILE_RUNNING_MS = 500; // so often while the session that is shown runs a turn, whose bar grows
  const PARTS = ["parse", "queue", "chain", "prepare", "translate", "connect", "upstream", "stall", "store", "send"];
  const STAGES = ["client", "proxy", "upstream"];
  const SVG = "http://www.w3.org/2000/svg";
  const WIDTH = 1000;
  const at = (id) => document.getElementById(id);
  let chosen = location.hash.slice(1);
  let follows = !chosen; // without a choice, the session with the latest turns of those listed
  let paused = false;
  let timer = 0;
  let asked = 0;

  // --- Words -----------------------------------------------------------------------------------------------------

  const whole = new Intl.NumberFormat("en");
  const count = (n) => whole.format(n);
  const rate = (n) => (n >= 100 ? count(Math.round(n)) : n >= 1 ? n.toFixed(1) : n.toFixed(2));
  const percent = (part, all) => (all ? `${((100 * part) / all).toFixed(part / all < 0.1 ? 1 : 0)} %` : "–");

  function bytes(n) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let at = 0;
    while (n >= 1000 && at < units.length - 1) { n /= 1000; at += 1; }
    return `${at ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
  }

  function took(s) {
    if (s < 0.1) return `${(1000 * s).toFixed(s < 0.01 ? 2 : 1)} ms`;
    if (s < 1) return `${Math.round(1000 * s)} ms`;
    if (s < 100) return `${s.toFixed(2)} s`;
    return age(s);
  }

  function age(s) {
    if (s < 100) return `${Math.floor(s)} s`;
    if (s < 6000) return `${Math.floor(s / 60)} min`;
    if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
    return `${Math.floor(s / 86400)} d`;
  }

  // --- Elements: what is there is kept, so that focus, selection and scroll positions are -------------------------

  function say(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function set(element, name, value) {
    if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
  }

  // Children of `parent`, one for each item in order, found again by `key`; `update(child, item)` fills them.
  function each(parent, items, key, make, update) {
    const old = new Map(Array.from(parent.children, (child) => [child.dataset.key, child]));
    items.forEach((item, place) => {
      const name = String(key(item));
      let child = old.get(name);
      if (child) old.delete(name);
      else { child = make(item); child.dataset.key = name; }
      update(child, item);
      if (parent.children[place] !== child) parent.insertBefore(child, parent.children[place] || null);
    });
    for (const child of old.values()) child.remove();
  }

  const element = (name, className) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    return made;
  };

  function row(cells) {
    const made = element("tr");
    cells.forEach((className, place) => {
      const cell = element(place ? "td" : "th", className);
      if (!place) cell.scope = "row";
      made.append(cell);
    });
    return made;
  }

  const fill = (made, texts) => texts.forEach((text, place) => say(made.children[place], text));

  function tiles(list, pairs) {
    each(list, pairs, ([name]) => name, () => {
      const made = element("div");
      made.append(element("dt"), element("dd"));
      return made;
    }, (made, [name, text]) => fill(made, [name, text]));
  }

  // --- Sections --------------------------------------------------------------------------------------------------

  function showProcess({ process }) {
    say(at("process"), `version ${process.version}, up ${age(process.uptime_s)}`);
  }

  function showNow({ throughput, totals, process }) {
    const now = throughput.now;
    tiles(at("now"), [
      ["sessions", count(totals.sessions_open)],
      ["lanes", count(totals.lanes_open)],
      ["turns running", count(totals.turns_running)],
      ["turns/s", rate(now.turns)],
      ["tokens in/s", rate(now.tokens_in)],
      ["tokens out/s", rate(now.tokens_out)],
      ["in/s", bytes(now.bytes_in)],
      ["out/s", bytes(now.bytes_out)],
      ["event-loop lag", took(process.loop_lag_s)],
      ["its worst in a minute", took(process.loop_lag_max_s)],
    ]);
    const most = Math.max(1, ...throughput.turns_by_second);
    say(at("spark-text"), `Turns ended in each of the last ${throughput.turns_by_second.length} seconds, ` +
      `${rate(throughput.minute.turns)} a second on average, at most ${count(most)}`);
    each(at("spark"), throughput.turns_by_second.map((turns, place) => ({ turns, place })), (bar) => bar.place,
      () => document.createElementNS(SVG, "rect"), (bar, { turns, place }) => {
        const high = (40 * turns) / most;
        set(bar, "x", place * 10 + 1);
        set(bar, "y", 40 - high);
        set(bar, "width", 8);
        set(bar, "height", high);
      });
  }

  function showShare({ totals }) {
    const sums = totals.loop_s;
    const all = STAGES.reduce((sum, stage) => sum + sums[stage], 0);
    each(at("share-bar"), STAGES, (stage) => stage, (stage) => element("div", stage), (bar, stage) => {
      bar.style.width = `${all ? (100 * sums[stage]) / all : 0}%`;
    });
    each(at("share-list"), [...STAGES, "idle"], (stage) => stage, (stage) => {
      const made = element("li");
      if (stage !== "idle") made.append(element("i", `key ${stage}`));
      made.append(element("span"));
      return made;
    }, (made, stage) => {
      const share = stage === "idle" ? "not part of the shares" : percent(sums[stage], all);
      say(made.lastChild, `${stage} ${took(sums[stage])}, ${share}`);
    });
  }

  function showSessions({ sessions, totals, chosen: found }) {
    const live = sessions.filter((session) => !session.ended && session.id !== "http").length;
    say(at("sessions-note"), sessions.length === 0 ? "No session yet." :
      `${count(live)} of ${count(totals.sessions_open)} open, newest first; then those that ended lately.`);
    each(at("sessions").tBodies[0], sessions, (session) => session.id, (session) => {
      const made = row(["", "", "n", "n", "n", "n", "n"]);
      const button = element("button");
      button.type = "button";
      button.addEventListener("click", () => choose(session.id));
      made.firstChild.append(button);
      return made;
    }, (made, session) => {
      const button = made.firstChild.firstChild;
      say(button, session.id === "http" ? "all turns by HTTP" : session.id);
      set(button, "aria-pressed", Boolean(found) && found.id === session.id);
      [
        session.client || "–", age(session.age_s) + (session.ended ? ", ended" : ""), count(session.turns),
        count(session.lanes), count(session.running), count(session.waiting),
      ].forEach((text, place) => say(made.children[place + 1], text));
    });
  }

  // A turn as pieces of a bar: [class, from, to] in seconds since its round began; until now, if it runs.
  function pieces(turn) {
    const parts = turn.parts_s;
    const pause = turn.client_s !== null && turn.tools ? Math.max(0, turn.client_s - parts.stall) : 0;
    const after = parts.store + parts.send;
    const before = Math.max(0, turn.proxy_s - after);
    const made = [];
    let from = 0;
    for (const [name, length] of [
      ["client", pause], ["proxy", before], ["upstream", turn.upstream_s], ["client", parts.stall], ["proxy", after],
    ]) {
      if (length > 0) made.push([name, from, from + length]);
      from += length;
    }
    const whole = PARTS.reduce((sum, part) => sum + parts[part], 0);
    const first = turn.first_token_s === null ? null : from - whole + turn.first_token_s;
    return { made, length: from, first };
  }

  function label(turn) {
    const texts = [];
    if (turn.client_s !== null) {
      texts.push(turn.tools ? `client ${took(turn.client_s)}` : `idle ${took(turn.client_s)} before`);
    }
    texts.push(`proxy ${took(turn.proxy_s)}`, `upstream ${took(turn.upstream_s)}`);
    if (turn.outcome !== "completed" && !turn.part) texts.push(turn.outcome);
    return texts.join(" · ");
  }

  function showLoop({ chosen: found }) {
    const running = found ? found.running.map((turn) => ({ ...turn, outcome: `running, now ${turn.part}` })) : [];
    const turns = found ? [...found.turns, ...running].reverse() : [];
    const over = turns.length - running.length;
    say(at("loop-note"), !found ? (chosen && !follows ? `Nothing is known of ${chosen} any more.` :
      "Choose a session above.") : `${found.id === "http" ? "All turns by HTTP" : found.id}: ` +
      `${running.length ? `${running.length} running, and ` : ""}the last ${over} ${over === 1 ? "turn" : "turns"}, ` +
      "newest first. Bars begin where the lane's turn before ended; time without tools (idle) is not drawn.");
    each(at("lanes"), found ? found.lanes : [], (lane) => lane.number, () => element("li"), (made, lane) => {
      say(made, `lane ${lane.number}: ${lane.state === "busy" ? "running" : lane.state}` +
        (lane.waiting ? `, ${lane.waiting} waiting` : ""));
    });
    const drawn = new Map(turns.map((turn) => [turn.response, pieces(turn)]));
    const longest = Math.max(1e-9, ...Array.from(drawn.values(), (bar) => bar.length));
    each(at("waterfall"), turns, (turn) => turn.response, () => {
      const made = element("li");
      const bar = document.createElementNS(SVG, "svg");
      set(bar, "viewBox", `0 0 ${WIDTH} 16`);
      set(bar, "preserveAspectRatio", "none");
      set(bar, "aria-hidden", "true");
      const text = element("p");
      text.append(element("span"), element("span", "unseen"));
      made.append(text, bar);
      return made;
    }, (made, turn) => {
      set(made, "class", turn.part ? "running" : "");
      fill(made.firstChild, [label(turn), turn.part ? ` · ${turn.outcome}` : ""]);
      draw(made.lastChild, drawn.get(turn.response), longest);
    });
    showTable(turns);
  }

  function draw(bar, { made, first }, longest) {
    const boxes = made.map(([name, from, to], place) => [place, name, from, Math.max(to - from, longest / 500)]);
    if (first !== null) boxes.push(["first", "first", first, longest / 500]);
    each(bar, boxes, ([key]) => key, () => document.createElementNS(SVG, "rect"), (box, [, name, from, length]) => {
      set(box, "class", name);
      set(box, "x", (WIDTH * from) / longest);
      set(box, "width", (WIDTH * length) / longest);
      set(box, "y", 0);
      set(box, "height", 16);
    });
  }

  const ms = (s) => (s === null || s === undefined ? "–" : (1000 * s).toFixed(2));
  const COLUMNS = [
    ["response", (turn) => turn.response, ""], ["model", (turn) => turn.model || "–", ""],
    ["outcome", (turn) => turn.outcome + (turn.error ? `, ${turn.error}` : ""), ""],
    ["ended", (turn) => (turn.part ? "–" : `${age(turn.ended_ago_s)} ago`), "n"],
    ["client", (turn) => (turn.tools ? ms(turn.client_s) : "–"), "n"],
    ["idle", (turn) => (turn.tools ? "–" : ms(turn.client_s)), "n"],
    ["proxy", (turn) => ms(turn.proxy_s), "n"], ["upstream", (turn) => ms(turn.upstream_s), "n"],
    ["first token", (turn) => ms(turn.first_token_s), "n"],
    ...PARTS.filter((part) => part !== "upstream").map((part) => [part, (turn) => ms(turn.parts_s[part]), "n"]),
    ...[
      ["tokens in", "tokens_in"], ["cached", "tokens_cached"], ["out", "tokens_out"], ["bytes in", "bytes_in"],
      ["bytes out", "bytes_out"], ["saved", "bytes_history"],
    ].map(([name, member]) => [name, (turn) => (member in turn ? count(turn[member]) : "–"), "n"]),
  ];

  function showTable(turns) {
    const table = at("turns");
    each(table.tHead.rows[0], COLUMNS, ([name]) => name, ([, , className]) => {
      const made = element("th", className);
      made.scope = "col";
      return made;
    }, (made, [name]) => say(made, name));
    each(table.tBodies[0], turns, (turn) => turn.response, () => row(COLUMNS.map(([, , className]) => className)),
      (made, turn) => fill(made, COLUMNS.map(([, text]) => text(turn))));
  }

  function showCaches({ caches, memory }) {
    const limit = memory.limit_bytes;
    say(at("memory"), limit
      ? `Running work and lanes hold ${bytes(memory.used_bytes)} of ${bytes(limit)} ` +
        `(${percent(memory.used_bytes, limit)} of limits.memory_bytes)`
      : `Running work and lanes hold ${bytes(memory.used_bytes)}; limits.memory_bytes sets no limit`);
    at("memory-bar").style.width = `${limit ? Math.min(100, (100 * memory.used_bytes) / limit) : 0}%`;
    each(at("caches").tBodies[0], caches, (cache) => cache.name, () => row(["", "n", "n", "n", "n", "n", "n"]),
      (made, cache) => fill(made, [
        cache.name, percent(cache.hits, cache.hits + cache.misses), count(cache.hits), count(cache.misses),
        count(cache.entries), bytes(cache.bytes), count(cache.evicted),
      ]));
  }

  function showEndpoints({ endpoints }) {
    each(at("endpoints").tBodies[0], endpoints, (endpoint) => endpoint.name, () => row(["", "", "", "n"]),
      (made, endpoint) => {
        fill(made, [endpoint.name, endpoint.health, endpoint.error || "–", count(endpoint.turns)]);
        made.children[1].className = { up: "good", down: "bad" }[endpoint.health] || "";
      });
  }

  function showEnds({ totals }) {
    tiles(at("ends"), [
      ...Object.entries(totals.turns).map(([outcome, turns]) => [outcome, count(turns)]),
      ["forks", count(totals.forks)], ["steers", count(totals.steers)],
      ["tokens in", count(totals.tokens_in)], ["of these cached", count(totals.tokens_cached)],
      ["tokens out", count(totals.tokens_out)],
      ["bytes in", bytes(totals.bytes_in)], ["bytes out", bytes(totals.bytes_out)],
      ["history not sent", bytes(totals.bytes_history_saved)],
      ...Object.entries(totals.errors).map(([kind, turns]) => [`error ${kind}`, count(turns)]),
    ]);
  }

  const SECTIONS = [
    showProcess, showNow, showShare, showSessions, showLoop, showCaches, showEndpoints, showEnds,
  ];

  // --- Asking ----------------------------------------------------------------------------------------------------

  function choose(session) {
    chosen = session;
    follows = false;
    history.replaceState(null, "", `#${session}`);
    refresh();
  }

  // Until somebody chooses: the first that runs something, else the first that has had turns.
  function suggest({ sessions }) {
    const found = sessions.find((session) => session.running) || sessions.find((session) => session.turns);
    return found ? found.id : "";
  }

  async function refresh() {
    clearTimeout(timer);
    const number = (asked += 1);
    let again = EVERY_MS;
    try {
      const answer = await fetch(`status.json?session=${encodeURIComponent(chosen)}`, { cache: "no-store" });
      if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
      const told = await answer.json();
      if (number !== asked) return; // somebody chose meanwhile
      for (const show of SECTIONS) show(told);
      say(at("notice"), "");
      const first = follows && !chosen;
      if (follows && (!chosen || !told.chosen)) chosen = suggest(told);
      if (first && chosen) { refresh(); return; }
      if (told.chosen && told.chosen.running.length) again = WHILE_RUNNING_MS;
    } catch (error) {
      if (number !== asked) return;
      say(at("notice"), `No answer, what is shown is old: ${error.message}`);
    }
    if (!paused && !document.hidden) timer = setTimeout(refresh, again);
  }

  at("pause").addEventListener("click", () => {
    paused = !paused;
    set(at("pause"), "aria-pressed", paused);
    if (paused) clearTimeout(timer);
    else refresh();
  });
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (!document.hidden && !paused) refresh();
  });
  refresh();
})();
