"use strict";
// Follows a gang over map and tables, and finds gangs and nodes.
(() => {
  const find = (selector, at = document) => at.querySelector(selector);
  const all = (selector, at = document) => [...at.querySelectorAll(selector)];
  const gangs = JSON.parse(find("#data").textContent);
  const said = find("#said"), map = find("#drawn"), search = find("#search"), found = find("#found");
  if (!map) return;
  document.documentElement.classList.add("script");
  const nameOf = (g) => gangs[g].split(" · ")[0];

  // ---- which gangs are followed: those pointed at, or else those that stay ------------------------
  let hits = [], kept = { hits: [], text: "" };
  const show = (wanted, text) => {
    said.textContent = text;
    if (String(wanted) === String(hits)) return;
    hits = wanted;
    for (const element of all(":is([data-g], tr).hit")) element.classList.remove("hit");
    for (const element of hits.flatMap((g) => all(`[data-g="${g}"]`))) {
      element.classList.add("hit");
      element.closest("tr")?.classList.add("hit");
    }
    map.classList.toggle("following", hits.length > 0);
  };
  const release = () => show(kept.hits, kept.text);
  const keep = (wanted, text) => { kept = { hits: wanted, text }; release(); };
  const keepOrFree = (g) => (String(kept.hits) === String(g) ? keep([], "") : keep([g], gangs[g]));
  const gangAt = (target) => target.closest("[data-g]")?.dataset.g;

  document.addEventListener("pointerover", ({ target }) => {
    const g = gangAt(target);
    if (g) show([g], gangs[g]); else release();
  });
  document.addEventListener("click", ({ target }) => { if (gangAt(target)) keepOrFree(gangAt(target)); });
  document.addEventListener("focusin", ({ target }) => {
    if (target.matches(".gang")) show([target.dataset.g], gangs[target.dataset.g]);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      search.value = "";
      look();
    } else if (event.target.matches(".gang") && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      keepOrFree(event.target.dataset.g);
    }
  });
  for (const gang of all(".gang")) {
    gang.tabIndex = 0;
    gang.setAttribute("role", "button");
  }

  // ---- the map by keys: one stop for Tab; up and down to the next node, left and right to the next domain
  const nodes = all(".node", map);
  let at = 0;
  const stop = (to) => {
    nodes[at].removeAttribute("tabindex");
    at = Math.max(0, Math.min(nodes.length - 1, to));
    nodes[at].tabIndex = 0;
  };
  const listStart = (to) => nodes.indexOf(nodes[Math.max(0, to)].parentElement.firstElementChild);
  const listEnd = (to) => nodes.indexOf(nodes[to].parentElement.lastElementChild);
  const steps = {
    ArrowDown: () => at + 1, ArrowUp: () => at - 1, Home: () => 0, End: () => nodes.length - 1,
    ArrowRight: () => listEnd(at) + 1, ArrowLeft: () => listStart(listStart(at) - 1),
  };
  map.addEventListener("focusin", ({ target }) => { said.textContent = target.title; });
  map.addEventListener("keydown", (event) => {
    if (event.key in steps) {
      event.preventDefault();
      stop(steps[event.key]());
      nodes[at].focus();
    } else if (event.key === "Enter") {
      const own = new Set(all("[data-g]", nodes[at]).map((rect) => rect.dataset.g));
      keep([...own], nodes[at].title);
    }
  });
  if (nodes.length) stop(0);

  // ---- search ---------------------------------------------------------------------------------------
  const MOST = 12;
  const look = () => {
    const word = search.value.trim().toLowerCase();
    const has = (name) => word && name.toLowerCase().includes(word);
    const own = [...gangs.keys()].filter((g) => has(nameOf(g))).map(String);
    const there = nodes.filter((node) => has(node.dataset.n));
    found.replaceChildren();
    for (const g of own.slice(0, MOST)) offer(nameOf(g), () => {
      keep([g], gangs[g]);
      find(`rect.hit, .gang.hit`)?.scrollIntoView({ block: "center", inline: "nearest" });
    });
    for (const node of there.slice(0, Math.max(0, MOST - own.length))) offer(node.dataset.n, () => {
      stop(nodes.indexOf(node));
      node.focus();
    });
    for (const element of all(".node.hit", map)) element.classList.remove("hit");
    for (const node of there) node.classList.add("hit");
    const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
    const more = own.length + there.length > MOST ? `; the first ${MOST} are listed` : "";
    const text = `${counted(own.length, "gang")} and ${counted(there.length, "node")} found${more}`;
    keep(own, own.length === 1 && !there.length ? gangs[own[0]] : word && text);
  };
  const offer = (text, act) => {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.addEventListener("click", act);
    item.append(button);
    found.append(item);
  };
  search.addEventListener("input", look);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") find("button", found)?.click();
  });
})();
