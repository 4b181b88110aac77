"use strict";
(() => {
// The colours that a reader has chosen, the same on every page.

const root = document.documentElement;
const KEY = "twin-kernels-colours";

// A browser may keep nothing for a page, and then throws when asked for it.
function kept(colours) {
    try {
        if (colours) localStorage.setItem(KEY, colours);
        return localStorage.getItem(KEY) || "auto";
    } catch {
        return colours || "auto";
    }
}

root.dataset.theme = kept();

addEventListener("DOMContentLoaded", () => {
    for (const input of document.querySelectorAll("input[name=theme]")) {
        input.checked = input.value === root.dataset.theme;
        input.addEventListener("change", () => {
            root.dataset.theme = kept(input.value);
        });
    }
});
})();
