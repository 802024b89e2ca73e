"use strict";
// Refreshes the page and sends orders. The server renders all content; this script replaces old parts by new ones.
(() => {
  const EVERY_MS = 2000;
  const ANSWER_MS = 8000;
  const TYPING_MS = 200;
  const live = document.getElementById("live");
  const said = document.getElementById("said");
  const filter = document.getElementById("filter");
  const form = document.getElementById("filter-form");
  const clock = () => new Date().toTimeString().slice(0, 8);
  const field = (name) => form.elements.namedItem(name);
  let timer = 0;
  let asked = 0;
  let since = null;

  const query = () => {
    const wanted = new URLSearchParams();
    for (const name of ["filter", "sort", "order"]) wanted.set(name, field(name).value);
    return wanted.toString();
  };

  // An unchanged part is not replaced. A replaced part keeps its open details, its focus and its scroll position.
  const replace = (part) => {
    const old = document.getElementById(part.id);
    if (!old || old.outerHTML === part.outerHTML) return;
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    const open = [...old.querySelectorAll("details[open][id]")].map((d) => d.id);
    const scrolled = [...old.querySelectorAll(".scroll")].map((s) => [s.scrollLeft, s.scrollTop]);
    old.replaceWith(part);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    part.querySelectorAll(".scroll").forEach((s, i) => {
      if (scrolled[i]) [s.scrollLeft, s.scrollTop] = scrolled[i];
    });
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  };

  const fresh = () => {
    since = null;
    live.className = "on";
    live.textContent = "live, " + clock();
  };

  const old = (why) => {
    since ??= clock();
    live.className = "off";
    live.textContent = `${why}: the page shows the state before ${since}`;
  };

  const refresh = async () => {
    clearTimeout(timer);
    const mine = ++asked;
    try {
      const answer = await fetch("/page/parts?" + query(), { signal: AbortSignal.timeout(ANSWER_MS), cache: "no-store" });
      const text = await answer.text();
      // A newer request was sent meanwhile; its reply counts.
      if (mine !== asked) return;
      if (answer.ok) {
        const parts = new DOMParser().parseFromString(text, "text/html");
        for (const part of [...parts.body.children]) replace(part);
        fresh();
      } else if (answer.status === 401) {
        old("signed out: reload the page to sign in");
      } else {
        const page = new DOMParser().parseFromString(text, "text/html");
        old(page.querySelector("main p")?.textContent ?? `the controller replied with HTTP status ${answer.status}`);
      }
    } catch {
      if (mine === asked) old("the controller does not respond");
    }
    timer = setTimeout(refresh, EVERY_MS);
  };

  const show = (text, bad) => {
    said.textContent = text;
    said.className = bad ? "off" : "";
    said.hidden = false;
  };

  const order = async (button) => {
    const { method, path, body } = button.dataset;
    const { id } = button;
    button.disabled = true;
    try {
      const answer = await fetch(path, {
        method,
        body,
        headers: { "Content-Type": "application/json", "X-Terrace": "1" },
        signal: AbortSignal.timeout(ANSWER_MS),
      });
      const told = await answer.json().catch(() => ({}));
      if (answer.ok) show(told.message ?? "done", false);
      else show(told.error ?? `the controller replied with HTTP status ${answer.status}`, true);
    } catch {
      show("the controller does not respond: the order may or may not have been accepted; check the events", true);
    }
    // A refresh may have replaced the button meanwhile.
    const now = document.getElementById(id);
    if (now) now.disabled = false;
    refresh();
  };

  const remember = () => {
    history.replaceState(null, "", "/?" + query() + location.hash);
    refresh();
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-path]");
    if (button) order(button);
    const sort = event.target.closest("a[data-sort]");
    if (sort && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      field("sort").value = sort.dataset.sort;
      field("order").value = sort.dataset.order;
      remember();
    }
  });
  let typing = 0;
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(remember, TYPING_MS);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    remember();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else refresh();
  });
  // The server has just rendered the content.
  fresh();
  timer = setTimeout(refresh, EVERY_MS);
})();
