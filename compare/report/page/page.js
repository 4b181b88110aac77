"use strict";
(() => {
// What is pinned stands in the fragment of the address, in the words of panels.py:
// "line=csrc/softmax/softmax.cu:65", "finding=2&code=sass". All marks follow from it, so that a
// click, a link and the back button are one thing.

const data = JSON.parse(document.getElementById("data").textContent);
const SIDES = ["cuda", "triton"];
const CODES = ["ptx", "sass"];
const find = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// ---- what there is ----

const sources = new Map(); // by "side file": the list of its lines
const instructions = {}; // by side and code: the rows, in the order of their indices
const about = new Map(); // by row of an instruction: its side, code, index and chain
const places = new Map(); // by "file:line": the rows of instructions from there
const targets = new Map(); // by target: the links to it
const sections = new Map(); // by name: the rows of both sources and all listings
const sectionOf = new Map(); // by row of a source: the name
const twins = new Map(); // by row of an instruction: those of the other kind of code

for (const side of SIDES) {
    for (const list of all(`[data-side=${side}] .source .lines`)) {
        sources.set(`${side} ${list.dataset.file}`, list);
    }
}

for (const side of SIDES) {
    instructions[side] = {};
    for (const code of CODES) {
        const rows = all(`[data-side=${side}] [data-language=${code}] li[data-c]`);
        instructions[side][code] = rows;
        rows.forEach((row, index) => {
            const chain = data.chains[side][row.dataset.c];
            about.set(row, { side, code, index, chain });
            for (const place of new Set(chain.places)) {
                if (!places.has(place)) places.set(place, []);
                places.get(place).push(row);
            }
        });
    }
}

for (const { ptx, sass } of Object.values(instructions)) {
    for (const row of sass) {
        const from = ptx[row.dataset.p];
        if (!from) continue;
        twins.set(row, [from]);
        twins.set(from, [...(twins.get(from) || []), row]);
    }
}

for (const [name, sides] of Object.entries(data.sections)) {
    sections.set(name, []);
    for (const [side, [file, first, last]] of Object.entries(sides)) {
        const list = sources.get(`${side} ${file}`);
        for (const row of [...list.children].slice(first - 1, last)) {
            sections.get(name).push(row);
            sectionOf.set(row, name);
        }
    }
}

for (const [row, { chain }] of about) sections.get(chain.section)?.push(row);

for (const link of all("a[href^='#']")) {
    const target = normal(link.hash);
    targets.set(target, [...(targets.get(target) || []), link]);
}

function sourceRow(side, place) {
    const colon = place.lastIndexOf(":");
    const list = sources.get(`${side} ${place.slice(0, colon)}`);
    return list?.children[place.slice(colon + 1) - 1];
}

// The source rows of an instruction, from the innermost outwards.
function rowsOf(instruction) {
    const { side, chain } = about.get(instruction);
    return chain.places.map((place) => sourceRow(side, place)).filter(Boolean);
}

// The source rows of instructions: with each line those that it was inlined into.
function sourceRows(rows) {
    return [...new Set(rows.flatMap(rowsOf))];
}

// What the other kind of code has of the same instruction.
const counterparts = (row) => twins.get(row) || [];

function describe(row) {
    if (!about.has(row)) {
        const counts = CODES.map((code) => find(`[data-for=${code}]`, row)?.textContent);
        return counts[0] === undefined
            ? ""
            : `${counts[0] || 0} PTX and ${counts[1] || 0} SASS instructions`;
    }
    const { code, chain } = about.get(row);
    const from = chain.places.length ? chain.places.join(" ← ") : "no source line";
    const [ptx] = code === "sass" ? counterparts(row) : [];
    return ptx ? `${from} · PTX: ${ptx.textContent.trim()}` : from;
}

// ---- what a target means ----

// By its first word: the rows that it is about, those that have to do with them, the
// sections that they are in, a name, and the code that it is about, if only about one.
const MEANINGS = {
    line(place) {
        // A file that both sides have is there twice.
        const lines = SIDES.map((side) => sourceRow(side, place)).filter(Boolean);
        if (!lines.length) return undefined;
        const made = places.get(place) || [];
        const within = lines.map((row) => sectionOf.get(row));
        const strong = [...lines, ...made];
        return { strong, soft: sourceRows(made), within, text: place, lines };
    },

    section(name) {
        if (!sections.has(name)) return undefined;
        const strong = sections.get(name).filter((row) => about.has(row));
        return { strong, soft: [], within: [name], text: `section ${name}` };
    },

    category(name, words) {
        const number = data.categories.indexOf(name);
        if (number < 0) return undefined;
        const bytes = words.get("bytes");
        const strong = [...about.keys()].filter(
            ({ dataset }) =>
                dataset.k === `${number}` &&
                (bytes === null || (dataset.w || "0") === bytes),
        );
        const text = Number(bytes) ? `${name}, ${bytes} bytes` : name;
        return { strong, soft: sourceRows(strong), within: [], text };
    },

    finding(number) {
        const finding = data.findings[number - 1];
        if (!finding) return undefined;
        const strong = SIDES.flatMap((side) =>
            finding[side].map((index) => instructions[side][finding.code][index]),
        );
        const soft = [...sourceRows(strong), ...strong.flatMap(counterparts)];
        return { strong, soft, within: [], text: finding.text, code: finding.code };
    },

    instructions(words) {
        const [side, code, indices = ""] = words.split(":");
        const rows = indices.split(",").map((each) => instructions[side]?.[code]?.[each]);
        if (!rows.every((row) => about.has(row))) return undefined;
        const inner = rows.map((row) => rowsOf(row)[0]);
        return {
            strong: [...rows, ...inner.filter(Boolean)],
            soft: [...sourceRows(rows), ...rows.flatMap(counterparts)],
            within: rows.map((row) => about.get(row).chain.section),
            text: rows.length > 1 ? `${rows.length} instructions` : describe(rows[0]),
            code,
        };
    },
};

function meaningOf(target) {
    const words = new URLSearchParams(target);
    const [kind] = words.keys();
    if (!Object.hasOwn(MEANINGS, kind)) return undefined;
    return MEANINGS[kind](words.get(kind), words);
}

// A fragment in the one spelling that targets are compared in.
function normal(hash) {
    const words = new URLSearchParams(hash.replace(/^#/, ""));
    words.delete("code");
    return words.toString();
}

function targetOf(row) {
    if (about.has(row)) {
        const { side, code, index } = about.get(row);
        return normal(`instructions=${side}:${code}:${index}`);
    }
    if (row.dataset.section) return normal(`section=${row.dataset.section}`);
    const place = `${row.parentElement.dataset.file}:${row.dataset.n}`;
    return places.has(place) ? normal(`line=${place}`) : "";
}

// ---- marks ----

const body = document.body;
const bar = document.getElementById("pinned");
const hint = bar.textContent;
let pinned = "";
let meaning; // of what is pinned

function clear(name) {
    for (const element of all(`.${name}`)) element.classList.remove(name);
}

function mark(name, marks) {
    clear(name);
    clear(`${name}-soft`);
    for (const row of marks?.soft || []) row.classList.add(`${name}-soft`);
    for (const row of marks?.strong || []) row.classList.add(name);
    for (const row of [...(marks?.soft || []), ...(marks?.strong || [])]) {
        tabOf(row)?.classList.add(name);
    }
    clear("within");
    for (const section of (meaning || marks)?.within || []) {
        for (const row of sections.get(section) || []) row.classList.add("within");
    }
    tell(meaning || marks);
}

function tell(marks) {
    bar.classList.toggle("on", Boolean(meaning));
    if (!marks) {
        bar.textContent = hint;
        return;
    }
    const code = marks.code || body.dataset.code;
    const counts = SIDES.map((side) => {
        const rows = marks.strong.filter((row) => {
            const known = about.get(row);
            return known && known.side === side && known.code === code;
        });
        return rows.length ? `${data.names[side]} ${rows.length}` : "";
    }).filter(Boolean);
    const where = counts.length ? ` (${code.toUpperCase()}: ${counts.join(", ")})` : "";
    bar.textContent = marks.text + where;
}

// Where the pinned rows of a long list are, as ticks beside its scroll bar.
function drawRulers() {
    const style = getComputedStyle(document.documentElement);
    const colour = style.getPropertyValue("--pin-edge");
    for (const ruler of all(".ruler")) {
        const rows = [...find(".lines", ruler.parentElement).children];
        const ticks = rows.flatMap((row, number) => {
            if (!row.classList.contains("pin")) return [];
            const top = `${(100 * number) / rows.length}%`;
            const bottom = `calc(${(100 * (number + 1)) / rows.length}% + 1px)`;
            return [`#0000 ${top}, ${colour} ${top} ${bottom}, #0000 ${bottom}`];
        });
        ruler.style.background = ticks.length ? `linear-gradient(${ticks})` : "";
    }
}

// ---- scrolling, tabs, and the kind of code ----

function tabOf(row) {
    const panel = row.closest("[role=tabpanel]");
    return panel && document.getElementById(panel.getAttribute("aria-labelledby"));
}

function openTab(tab) {
    for (const each of all("[role=tab]", tab.parentElement)) {
        each.setAttribute("aria-selected", each === tab);
        each.tabIndex = each === tab ? 0 : -1;
        document.getElementById(each.getAttribute("aria-controls")).hidden = each !== tab;
    }
}

function setCode(code) {
    body.dataset.code = code;
    find(`input[name=code][value=${code}]`).checked = true;
}

const isShown = (row) => row.offsetParent !== null;

function scrollTo(row) {
    const scroller = row.closest(".scroller");
    scroller.scrollTop = row.offsetTop - scroller.clientHeight / 3;
}

function isInSight(row) {
    const { scrollTop, clientHeight } = row.closest(".scroller");
    return row.offsetTop >= scrollTop && row.offsetTop + 20 <= scrollTop + clientHeight;
}

// Brings marks into the sight of every pane but the one that was clicked in. Of several
// files the one of a pinned line is opened; else the open one stays, if it has marks.
function reveal(marks, clicked) {
    const section = marks.within.flatMap((name) => sections.get(name) || []);
    for (const pane of all(".pane")) {
        if (pane.contains(clicked)) continue;
        const kinds = [marks.strong, marks.soft, section].map((rows) =>
            rows.filter((row) => pane.contains(row)),
        );
        const rows = kinds.flat();
        const line = marks.lines?.find((row) => pane.contains(row));
        const wanted = line || rows.find(isShown) || rows[0];
        if (!wanted) continue;
        if (!isShown(wanted) && tabOf(wanted)) openTab(tabOf(wanted));
        const alike = line ? [line] : kinds.find((each) => each.includes(wanted));
        if (!alike.some((row) => isShown(row) && isInSight(row))) scrollTo(wanted);
    }
}

// ---- pins ----

// Pins a target, or with "" what is pinned no longer.
function pin(target, clicked) {
    meaning = meaningOf(target);
    pinned = meaning ? target : "";
    if (meaning?.code) setCode(meaning.code);
    mark("hot");
    mark("pin", meaning);
    for (const row of all("[role=option][aria-selected]")) {
        row.removeAttribute("aria-selected");
    }
    for (const row of meaning?.strong || []) row.setAttribute("aria-selected", "true");
    for (const link of all("a[aria-current]")) link.removeAttribute("aria-current");
    for (const link of targets.get(pinned) || []) link.setAttribute("aria-current", true);
    document.getElementById("unpin").hidden = !meaning;
    find(".steps").hidden = siblings().length < 2;
    drawRulers();
    if (!meaning) return;
    if (!find("#bench").contains(clicked)) find("#bench").scrollIntoView();
    reveal(meaning, clicked);
}

// The same, by a click: it unpins what is pinned, and the address tells.
function toggle(target, clicked) {
    pin(target === pinned ? "" : target, clicked);
    writeAddress();
}

function writeAddress() {
    const words = new URLSearchParams(pinned);
    if (body.dataset.code === "sass") words.set("code", "sass");
    const fragment = words.toString().replace(/%(2F|3A|2C)/g, decodeURIComponent);
    const address = location.pathname + location.search;
    history.replaceState(null, "", fragment ? `${address}#${fragment}` : address);
}

function readAddress() {
    pin(normal(location.hash));
    const code = new URLSearchParams(location.hash.slice(1)).get("code");
    if (CODES.includes(code)) switchTo(code);
}

// Shows the other kind of code, with what is pinned in it.
function switchTo(code) {
    setCode(code);
    tell(meaning);
    if (meaning) reveal(meaning);
}

// The links that stand in one list or table with that of what is pinned.
function siblings() {
    const [link] = targets.get(pinned) || [];
    const links = link ? all("a[href^='#']", link.closest("ol, table")) : [];
    return links.map((each) => normal(each.hash)).filter(meaningOf);
}

// ---- what the reader does ----

addEventListener("hashchange", readAddress);

document.addEventListener("mouseover", ({ target }) => {
    const row = target.closest(".lines li");
    const link = target.closest("a[href^='#']");
    const wanted = row ? targetOf(row) : link && normal(link.hash);
    if (row && !row.title) row.title = describe(row);
    mark("hot", wanted ? meaningOf(wanted) : undefined);
});

document.addEventListener("click", (event) => {
    const row = event.target.closest(".lines li");
    const link = event.target.closest("a[href^='#']");
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // the browser's own
    if (row && targetOf(row) && getSelection().isCollapsed) toggle(targetOf(row), row);
    if (link && meaningOf(normal(link.hash))) {
        event.preventDefault();
        toggle(normal(link.hash), link);
    }
});

document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && pinned) toggle(pinned);
});

document.getElementById("unpin").addEventListener("click", () => toggle(pinned));

for (const button of all("[data-step]")) {
    button.addEventListener("click", () => {
        const known = siblings();
        const next = known.indexOf(pinned) + Number(button.dataset.step);
        toggle(known[(next + known.length) % known.length], button);
    });
}

for (const input of all("input[name=code]")) {
    input.addEventListener("change", () => {
        switchTo(input.value);
        writeAddress();
    });
}

for (const input of all("input[name=theme]")) {
    input.addEventListener("change", drawRulers); // theme.js changes the colours
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawRulers);

for (const tab of all("[role=tab]")) {
    tab.addEventListener("click", () => openTab(tab));
    tab.addEventListener("keydown", ({ key }) => {
        const tabs = all("[role=tab]", tab.parentElement);
        const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
        if (!step) return;
        const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
        openTab(next);
        next.focus();
    });
}

for (const ruler of all(".ruler")) {
    ruler.addEventListener("click", (event) => {
        const scroller = find(".scroller", ruler.parentElement);
        const share = event.offsetY / ruler.clientHeight;
        scroller.scrollTop = share * scroller.scrollHeight - scroller.clientHeight / 2;
    });
}

// A list of lines is one stop of the tab key; inside, arrow keys go from line to line.
for (const [number, list] of all(".lines").entries()) {
    const rows = [...list.children];
    let active = Math.max(0, Number(list.dataset.start || 1) - 1);

    list.setAttribute("role", "listbox");
    list.setAttribute("aria-multiselectable", "true");
    rows.forEach((row, index) => {
        row.setAttribute("role", "option");
        row.id = `row-${number}-${index}`;
        if (!row.textContent.trim()) row.setAttribute("aria-label", "an empty line");
    });

    const show = () => {
        for (const row of all(".active", list)) row.classList.remove("active");
        const row = rows[active];
        row.classList.add("active");
        list.setAttribute("aria-activedescendant", row.id);
        if (!isInSight(row)) scrollTo(row);
        const target = targetOf(row);
        mark("hot", target ? meaningOf(target) : undefined);
    };

    list.addEventListener("focus", () => {
        if (list.matches(":focus-visible")) show();
    });
    list.addEventListener("blur", () => mark("hot"));
    list.addEventListener("mousedown", ({ target }) => {
        active = Math.max(0, rows.indexOf(target.closest("li")));
    });
    list.addEventListener("keydown", (event) => {
        const page = Math.floor(list.closest(".scroller").clientHeight / 20);
        const steps = {
            ArrowDown: 1,
            ArrowUp: -1,
            PageDown: page,
            PageUp: -page,
            Home: -rows.length,
            End: rows.length,
        };
        if (event.key in steps) {
            active += steps[event.key];
            active = Math.min(rows.length - 1, Math.max(0, active));
            show();
        } else if (event.key === "Enter" || event.key === " ") {
            const target = targetOf(rows[active]);
            if (target) toggle(target, rows[active]);
        } else {
            return;
        }
        event.preventDefault();
    });

    if (list.dataset.start > 1) {
        list.closest(".scroller").scrollTop = rows[active].offsetTop - 8;
    }
}

if (location.hash) readAddress();
})();
