"use strict";
// Follows a gang over map and tables, finds gangs and nodes, and draws the map of a large cluster.
(() => {
  const root = document.documentElement;
  const find = (selector, at = document) => at.querySelector(selector);
  const all = (selector, at = document) => [...at.querySelectorAll(selector)];
  const data = JSON.parse(find("#data").textContent);
  const gangs = data.gangs || [];
  const [NAME, DECISION, GPUS, SHARE, SPEED, STYLE, WHERE] = [0, 1, 2, 3, 4, 5, 6];
  const said = find("#said"), tip = find("#tip"), drawn = find("#drawn"), large = Boolean(find("#detail"));
  root.classList.add("script");

  const themes = [["", "System"], ["light", "Light"], ["dark", "Dark"]];
  let theme = 0;
  find("#theme").addEventListener("click", (event) => {
    theme = (theme + 1) % themes.length;
    const [value, text] = themes[theme];
    if (value) root.dataset.theme = value; else delete root.dataset.theme;
    find("span", event.currentTarget).textContent = text;
    event.currentTarget.setAttribute("aria-label", `Colours: ${text.toLowerCase()}`);
    redraw();
  });

  // ---- which gangs are followed -------------------------------------------------------------------
  const DECISIONS = {
    place: "starts", complete: "is completed", keep: "keeps running", move: "moves",
    resize: "is resized", preempt: "is stopped", wait: "waits",
  };
  const percent = (permille) => `${Math.floor(permille / 10)} %`;
  const about = (g) => {
    const gang = gangs[g];
    const parts = [gang[NAME], DECISIONS[gang[DECISION]] || gang[DECISION]];
    if (gang[GPUS] !== null) parts.push(`${gang[GPUS]} GPU${gang[GPUS] === 1 ? "" : "s"}`);
    if (gang[SHARE] !== null) parts.push(`${percent(gang[SHARE])} of its best bandwidth`);
    if (gang[SPEED] !== null) parts.push(`speed ${percent(gang[SPEED])}`);
    if (gang[WHERE]) parts.push(gang[WHERE]);
    return parts.join(" · ");
  };
  let hits = new Set(), pinned = null, marked = new Map();
  const elements = (g) => {
    if (!marked.has(g)) marked.set(g, all(`[data-g="${g}"]`));
    return marked.get(g);
  };
  const paint = (wanted) => {
    for (const g of hits) if (!wanted.has(g)) toggle(g, false);
    for (const g of wanted) if (!hits.has(g)) toggle(g, true);
    hits = wanted;
    if (drawn) drawn.classList.toggle("following", hits.size > 0);
    const detail = find("#detail .map");
    if (detail) detail.classList.toggle("following", hits.size > 0);
    redraw();
  };
  const toggle = (g, on) => {
    for (const element of elements(g)) {
      element.classList.toggle("hit", on);
      const row = element.closest("tr");
      if (row) row.classList.toggle("hit", on);
    }
  };
  const same = (a, b) => a.size === b.size && [...a].every((one) => b.has(one));
  const show = (wanted, text) => {
    if (said && text !== undefined) said.textContent = text;
    if (!same(wanted, hits)) paint(wanted);
  };
  const peek = (g) => show(new Set([g]), about(g));
  const release = () => pinned ? show(pinned.hits, pinned.text) : show(new Set(), "");
  const pin = (wanted, text) => { pinned = { hits: wanted, text }; show(wanted, text); };
  const unpin = () => { pinned = null; release(); };
  const keep = (g) => pinned && pinned.hits.size === 1 && pinned.hits.has(g) ? unpin() : pin(new Set([g]), about(g));
  const numberOf = (target) => {
    const element = target.closest && target.closest("[data-g]");
    return element ? Number(element.dataset.g) : null;
  };

  document.addEventListener("pointerover", (event) => {
    const g = numberOf(event.target);
    if (g !== null) peek(g); else if (!event.target.closest("canvas")) release();
  });
  document.addEventListener("pointermove", (event) => {
    const g = numberOf(event.target), node = event.target.closest("#drawn .node, #detail .node");
    if (node) point(event, g === null ? node.getAttribute("aria-label") : gangs[g][NAME]);
    else if (!event.target.closest("canvas")) tip.hidden = true;
  });
  const point = (event, text) => {
    tip.textContent = text;
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const above = event.clientY + 18 + tip.offsetHeight > innerHeight;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${above ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18}px`;
  };
  document.addEventListener("click", (event) => {
    const g = numberOf(event.target);
    if (g !== null) keep(g);
  });
  document.addEventListener("focusin", (event) => {
    if (event.target.matches(".gang")) peek(Number(event.target.dataset.g));
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !find("dialog[open]")) {
      if (search) search.value = "";
      if (found) found.replaceChildren();
      for (const element of all(".node.hit")) element.classList.remove("hit");
      unpin();
    }
    if (event.target.matches(".gang") && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      keep(Number(event.target.dataset.g));
    }
  });
  for (const gang of all(".gang")) {
    gang.tabIndex = 0;
    gang.setAttribute("role", "button");
  }
  for (const input of all("input[name=state]")) input.addEventListener("change", () => redraw());

  // ---- moving over the map by keys: one stop for Tab, arrows inside ---------------------------------
  const rove = (map, selector, open) => {
    const items = all(selector, map);
    if (!items.length) return;
    let at = 0;
    for (const item of items) item.tabIndex = -1;
    items[0].tabIndex = 0;
    const go = (to) => {
      items[at].tabIndex = -1;
      at = Math.max(0, Math.min(items.length - 1, to));
      items[at].tabIndex = 0;
      items[at].focus();
    };
    const beside = (step) => {
      const own = items[at].getBoundingClientRect();
      let best = at, least = Infinity;
      items.forEach((item, n) => {
        const box = item.getBoundingClientRect();
        const away = step * (box.left - own.left);
        if (away < 1) return;
        const distance = away + 4 * Math.abs(box.top - own.top);
        if (distance < least) [best, least] = [n, distance];
      });
      return best;
    };
    map.addEventListener("focusin", (event) => {
      const item = event.target.closest(selector);
      if (!item) return;
      const n = items.indexOf(item);
      if (n >= 0) { items[at].tabIndex = -1; at = n; item.tabIndex = 0; }
      if (said) said.textContent = item.getAttribute("aria-label");
    });
    map.addEventListener("keydown", (event) => {
      const to = {
        ArrowDown: () => at + 1, ArrowUp: () => at - 1, Home: () => 0, End: () => items.length - 1,
        ArrowRight: () => beside(1), ArrowLeft: () => beside(-1),
      }[event.key];
      if (to) { event.preventDefault(); go(to()); }
      if (open && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); open(items[at]); }
    });
  };
  let cycle = { node: null, next: 0 };
  const follow = (node) => {
    const own = [...new Set(all("rect[data-g]", node).map((rect) => Number(rect.dataset.g)))];
    if (!own.length) return;
    cycle = { node, next: cycle.node === node ? (cycle.next + 1) % own.length : 0 };
    pin(new Set([own[cycle.next]]), about(own[cycle.next]));
  };
  if (drawn && !large) rove(drawn, ".node", follow);

  // ---- search ---------------------------------------------------------------------------------------
  const search = find("#search"), found = find("#found");
  const MOST = 12;
  const nodes = []; // [name, open]
  const look = () => {
    const word = search.value.trim().toLowerCase();
    found.replaceChildren();
    for (const element of all(".node.hit, .rack.hit")) element.classList.remove("hit");
    if (!word) { unpin(); return; }
    const own = gangs.map((gang, g) => g).filter((g) => gangs[g][NAME].toLowerCase().includes(word));
    const there = nodes.filter(([name]) => name.toLowerCase().includes(word));
    for (const g of own.slice(0, MOST)) offer(gangs[g][NAME], () => { pin(new Set([g]), about(g)); reveal(g); });
    for (const [name, open] of there.slice(0, Math.max(0, MOST - own.length))) offer(name, open);
    for (const [, , mark] of there.slice(0, 500)) mark();
    const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
    const more = own.length + there.length > MOST ? `; the first ${MOST} are listed` : "";
    const text = `${counted(own.length, "gang")} and ${counted(there.length, "node")} found${more}`;
    pin(new Set(own), own.length === 1 && !there.length ? about(own[0]) : text);
  };
  const offer = (text, act) => {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.addEventListener("click", act);
    item.append(button);
    found.append(item);
  };
  const reveal = (g) => {
    const first = elements(g).find((element) => element.matches("rect") && element.getClientRects().length)
      || elements(g).find((element) => element.matches(".gang"));
    if (first) first.scrollIntoView({ block: "center", inline: "nearest" });
  };
  if (search) {
    search.addEventListener("input", look);
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && found.firstChild) find("button", found).click();
    });
  }
  if (drawn && !large) {
    for (const node of all(".node", drawn)) {
      nodes.push([node.dataset.n, () => { node.focus(); node.scrollIntoView({ block: "center" }); },
        () => node.classList.add("hit")]);
    }
  }

  // ---- the overview of a large cluster: one canvas for each rack -------------------------------------
  const SIZES = [[2, 3], [3, 4], [5, 6], [9, 10]]; // pixels of a GPU
  const CHUNK = 64; // nodes of a drawing, where a domain has more
  const SHORT = 5; // of a domain: its short name
  const racks = [];
  let zoom = 0, colours = null, visible = null;
  function redraw() {
    colours = null;
    for (const rack of racks) { rack.stale = true; if (rack.seen) draw(rack); }
  }
  const resolve = () => {
    const probe = document.createElement("i");
    document.body.append(probe);
    const read = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
    colours = { gang: [0, 1, 2, 3, 4, 5, 6].map((n) => read(`--c${n}`)), empty: read("--empty"), sick: read("--soft") };
    probe.remove();
    colours.patterns = new Map();
  };
  const ink = (context, style) => {
    const base = colours.gang[style % 7], kind = Math.floor(style / 7);
    if (!kind || SIZES[zoom][1] < 6) return base;
    if (!colours.patterns.has(style)) {
      const tile = document.createElement("canvas");
      tile.width = tile.height = 4;
      const pen = tile.getContext("2d");
      pen.fillStyle = base;
      pen.fillRect(0, 0, 4, 4);
      pen.fillStyle = style % 7 === 4 ? "rgb(0 0 0 / .5)" : "rgb(255 255 255 / .65)";
      if (kind === 1) for (let n = 0; n < 4; n++) pen.fillRect(n, n, 1, 1);
      if (kind === 2) pen.fillRect(1, 1, 2, 2);
      if (kind === 3) pen.fillRect(0, 0, 4, 1);
      colours.patterns.set(style, context.createPattern(tile, "repeat"));
    }
    return colours.patterns.get(style);
  };
  const before = () => find("#before").checked;
  const state = (node) => (before() && node[4] ? node[4] : node[3]);
  const nameOf = (holder) =>
    holder >= 0 ? gangs[holder][NAME] : { [-2]: "unhealthy", [-3]: "partitioned", [-4]: "not free for every pod" }[holder] || "free";
  const draw = (rack) => {
    if (!rack.stale) return;
    rack.stale = false;
    if (!colours) resolve();
    const [width, height] = SIZES[zoom], scale = devicePixelRatio || 1;
    const { canvas, nodes: own, most } = rack;
    canvas.width = most * width * scale;
    canvas.height = own.length * height * scale;
    canvas.style.width = `${most * width}px`;
    canvas.style.height = `${own.length * height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const gap = height > 3 ? 1 : 0;
    own.forEach((node, row) => {
      let x = 0;
      const runs = state(node);
      for (let n = 0; n < runs.length; n += 2) {
        const [holder, count] = [runs[n], runs[n + 1]];
        if (holder !== -1) {
          pen.globalAlpha = hits.size && !hits.has(holder) ? 0.15 : node[2].length ? 0.6 : 1;
          pen.fillStyle = holder < 0 ? colours.sick : ink(pen, gangs[holder][STYLE]);
          pen.fillRect(x, row * height, count * width, height - gap);
        }
        x += count * width;
      }
    });
    pen.globalAlpha = 1;
  };
  const size = (rack) => {
    const [width, height] = SIZES[zoom];
    rack.canvas.style.width = `${rack.most * width}px`;
    rack.canvas.style.height = `${rack.nodes.length * height}px`;
    rack.text.style.width = `${Math.max(30, rack.most * width)}px`;
  };
  const zoomTo = (wanted) => {
    zoom = Math.max(0, Math.min(SIZES.length - 1, wanted));
    find("#smaller").disabled = zoom === 0;
    find("#larger").disabled = zoom === SIZES.length - 1;
    racks.forEach(size);
    redraw();
  };
  const gpusOf = (node) => node[3].reduce((sum, value, n) => sum + (n % 2 ? value : 0), 0);
  const held = (runs) => runs.reduce((sum, value, n) => sum + (n % 2 && runs[n - 1] >= 0 ? value : 0), 0);
  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const rack = (title, short, own) => {
    const button = make("button", "rack"), text = make("span", "", short), canvas = make("canvas");
    const gpus = own.reduce((sum, node) => sum + gpusOf(node), 0);
    const busy = own.reduce((sum, node) => sum + held(node[3]), 0);
    button.type = "button";
    button.setAttribute("aria-label", `${title}: ${own.length} nodes, ${gpus} GPUs, ${busy} held: ${called("after")}`);
    button.append(text, canvas);
    const one = { button, text, canvas, title, nodes: own, most: Math.max(1, ...own.map(gpusOf)), stale: true, seen: false };
    racks.push(one);
    own.forEach((node) => nodes.push([node[0], () => openRack(one, node[0]), () => button.classList.add("hit")]));
    button.addEventListener("click", () => openRack(one));
    const under = (event) => {
      const box = canvas.getBoundingClientRect(), [width, height] = SIZES[zoom];
      const node = own[Math.floor((event.clientY - box.top) / height)];
      let gpu = Math.floor((event.clientX - box.left) / width);
      const runs = node ? state(node) : [];
      for (let n = 0; n < runs.length; n += 2) {
        if (gpu < runs[n + 1]) return [node, runs[n]];
        gpu -= runs[n + 1];
      }
      return [node, -1];
    };
    canvas.addEventListener("pointermove", (event) => {
      const [node, holder] = under(event);
      if (!node) return;
      if (holder >= 0) peek(holder); else release();
      const what = nameOf(holder);
      point(event, [node[0], ...node[2], what].join(" · "));
    });
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; release(); });
    return button;
  };
  // How many characters all these names begin with.
  const shared = ([first, ...rest]) => {
    let length = 0;
    while (rest.length && length < first.length && rest.every((name) => name[length] === first[length])) length++;
    return length;
  };
  // The same of domains, up to a separator: the heading around them has it already.
  const known = (domains) => {
    const names = domains.map((one) => one[SHORT]);
    let length = names.length ? shared(names) : 0;
    while (length && !/[-_./]/.test(names[0][length - 1])) length--;
    return length;
  };
  // Nodes of no domain, or of a large one, in groups: [title, short name, nodes].
  const grouped = (own) => {
    const groups = [];
    for (let n = 0; n < own.length; n += CHUNK) groups.push(own.slice(n, n + CHUNK));
    const same = groups.length > 1 ? shared(groups.map((group) => group[0][0])) : 0;
    return groups.map((group) => {
      const first = group[0][0], last = group[group.length - 1][0];
      return [`nodes ${first} to ${last}`, first.slice(same), group];
    });
  };
  const alone = (one) => !one[3].length && one[4].length <= CHUNK;
  const domain = (one, parent, depth, cut = 0) => {
    const [level, name, nvlink, inner, own, short] = one;
    const title = `${level} ${name}`.trim();
    if (depth && own.length && alone(one)) return rack(title, short.slice(cut), own);
    const section = depth ? make("section", "domain") : parent;
    if (depth) {
      section.setAttribute("aria-label", title);
      const head = make("h3"), bold = make("b", "", `${level} ${short}`);
      bold.title = title;
      head.append(bold);
      if (nvlink) head.append(" ", make("i", "", "one NVLink fabric"));
      section.append(head);
    }
    const flow = make("div", "racks"), deeper = make("div", "inside");
    const said = known(inner);
    for (const below of inner) {
      const element = domain(below, deeper, depth + 1, said);
      (element.matches(".rack") ? flow : deeper).append(element);
    }
    for (const [all, first, group] of grouped(own)) flow.append(rack(all, first, group));
    if (flow.firstChild) section.append(flow);
    if (deeper.firstChild) section.append(deeper);
    return section;
  };

  // ---- one rack in detail ------------------------------------------------------------------------------
  const SVG = "http://www.w3.org/2000/svg";
  const shape = (tag, attributes) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const UNIT = 18, HIGH = 16;
  const bar = (runs, kind) => {
    const svg = shape("svg", { class: `bar ${kind}`, height: HIGH });
    let x = 0;
    for (let n = 0; n < runs.length; n += 2) {
      const [holder, count] = [runs[n], runs[n + 1]], width = count * UNIT;
      const style = holder < 0 ? ["free", "sick", "part", "shut"][-1 - holder] : `s${gangs[holder][STYLE]}`;
      const rect = shape("rect", { x, width, height: HIGH, class: style });
      if (holder >= 0) rect.setAttribute("data-g", holder);
      svg.append(rect);
      const name = holder < 0 ? "" : gangs[holder][NAME].split("/").pop(), room = Math.floor((width - 4) / 6.1);
      if (name && room >= 4) {
        const text = shape("text", { x: x + 4, y: "50%", class: `t${gangs[holder][STYLE] % 7}` });
        text.textContent = name.length <= room ? name : `${name.slice(0, room - 1)}…`;
        svg.append(text);
      }
      x += width;
    }
    let ticks = "";
    for (let at = UNIT; at < x; at += UNIT) ticks += `M${at} 0v99`;
    svg.append(shape("path", { class: "tick", d: ticks }));
    svg.setAttribute("width", x);
    return svg;
  };
  const words = (runs) => {
    const parts = [];
    for (let n = 0; n < runs.length; n += 2) {
      parts.push(`${nameOf(runs[n])} ${runs[n + 1]}`);
    }
    return parts.join(", ") || "no GPUs";
  };
  const called = (state) => find(`#${state}`).parentElement.textContent.trim();
  const openRack = (one, name) => {
    const dialog = find("#detail"), map = find(".map", dialog), list = make("ul", "nodes");
    find("#detail-title").textContent = one.title;
    for (const node of one.nodes) {
      const item = make("li", `node${node[4] ? " changed" : ""}${node[2].length ? " closed" : ""}`);
      const told = node[4] ? `${called("before")}: ${words(node[4])}. ${called("after")}: ${words(node[3])}` : words(node[3]);
      item.setAttribute("aria-label", [node[0], data.models[node[1]], ...node[2], told].filter(Boolean).join(", "));
      const bars = make("span", "bars");
      if (node[4]) bars.append(bar(node[4], "was"), bar(node[3], "is")); else bars.append(bar(node[3], "same"));
      item.append(make("span", "name", node[0]), bars, ...node[2].map((mark) => make("span", "mark", mark)));
      item.tabIndex = -1;
      if (node[0] === name) item.classList.add("hit");
      list.append(item);
    }
    const fresh = make("div", "map");
    fresh.append(list);
    map.replaceWith(fresh);
    marked = new Map();
    fresh.classList.toggle("following", hits.size > 0);
    for (const g of hits) toggle(g, true);
    rove(fresh, ".node", follow);
    dialog.showModal();
    const wanted = find(".node.hit", fresh);
    if (wanted) wanted.focus();
  };

  if (large) domain(data.tree, drawn, 0);

  // ---- where GPUs are free: a column for each node, by domain ----------------------------------------
  const ROOMS = [["whole", "wholly free"], ["part", "partly free"], ["full", "full"], ["closed", "not free for every pod"]];
  const TALL = 20;
  const roomOf = (node) => {
    let gpus = 0, free = 0, sick = 0;
    const runs = state(node);
    for (let n = 0; n < runs.length; n += 2) {
      gpus += runs[n + 1];
      if (runs[n] === -1) free += runs[n + 1];
      if (runs[n] <= -2) sick += runs[n + 1];
    }
    const room = node[2].length || sick === gpus ? 3 : free === gpus ? 0 : free ? 1 : 2;
    return { room, free, gpus };
  };
  const paintRoom = ({ button, svg, title, nodes: own, wide }) => {
    const columns = own.map(roomOf).filter((one) => one.gpus);
    columns.sort((a, b) => a.room - b.room || b.free / b.gpus - a.free / a.gpus);
    const paths = ["", "", "", ""];
    columns.forEach(({ room, free, gpus }, n) => {
      const x = n * wide, width = wide > 3 ? wide - 1 : wide;
      const top = room === 1 ? Math.round(TALL * (1 - free / gpus)) : 0;
      if (top) paths[2] += `M${x} 0h${width}v${top}h-${width}z`;
      paths[room] += `M${x} ${top}h${width}V${TALL}h-${width}z`;
    });
    svg.replaceChildren(...paths.map((d, n) => d && shape("path", { class: `room-${ROOMS[n][0]}`, d })).filter(Boolean));
    const counts = ROOMS.map(([, word], n) => {
      const found = columns.filter((one) => one.room === n), free = found.reduce((sum, one) => sum + one.free, 0);
      return found.length && `${found.length} ${word}${free ? ` (${free} GPU${free === 1 ? "" : "s"})` : ""}`;
    });
    button.setAttribute("aria-label", `${title}: ${counts.filter(Boolean).join(", ") || "no GPUs"}`);
  };
  const halls = find("#rooms"), rooms = [];
  const room = (title, short, own) => {
    const button = make("button", "room"), svg = shape("svg", { height: TALL, "aria-hidden": "true" });
    const wide = nodes.length > 6000 ? 2 : nodes.length > 800 ? 4 : nodes.length > 100 ? 6 : 10;
    button.type = "button";
    svg.setAttribute("width", own.length * wide);
    button.append(make("span", "", short), svg);
    button.addEventListener("click", () => nodes.find(([name]) => name === own[0][0])[1]());
    button.addEventListener("pointermove", (event) => point(event, button.getAttribute("aria-label")));
    rooms.push({ button, svg, title, nodes: own, wide });
    return button;
  };
  const hall = ([, , , inner, own], name) => {
    const place = make("div", "hall"), cut = known(inner);
    if (name) place.append(make("b", "", name));
    const domains = inner.filter(alone).map((one) => [`${one[0]} ${one[1]}`, one[SHORT].slice(cut), one[4]]);
    for (const one of [...domains, ...grouped(own)]) if (one[2].some(gpusOf)) place.append(room(...one));
    if (find(".room", place)) halls.append(place);
    for (const one of inner.filter((below) => !alone(below))) hall(one, `${name} ${one[0]} ${one[SHORT]}`.trim());
  };
  const paintRooms = () => rooms.forEach(paintRoom);
  if (halls) {
    hall(data.tree, "");
    paintRooms();
    rove(halls, ".room");
    for (const input of all("input[name=state]")) input.addEventListener("change", paintRooms);
  }
  if (racks.length) {
    visible = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const one = racks[Number(entry.target.dataset.rack)];
        one.seen = entry.isIntersecting;
        if (one.seen) draw(one);
      }
    }, { rootMargin: "300px" });
    zoomTo(nodes.length > 6000 ? 0 : 1);
    racks.forEach((one, n) => { one.button.dataset.rack = n; visible.observe(one.button); });
    find("#smaller").addEventListener("click", () => zoomTo(zoom - 1));
    find("#larger").addEventListener("click", () => zoomTo(zoom + 1));
    addEventListener("beforeprint", () => racks.forEach(draw));
    rove(drawn, ".rack");
  }
})();
