"use strict";
// Keeps the page live and sends orders. What the page shows is rendered by the server; this puts new parts in place of old ones.
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

  // A part that is equal stays, so that nothing is lost of what the reader does with it. What was open, focused or scrolled
  // in one that is replaced is so again.
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
    live.textContent = `${why}: what is shown is from before ${since}`;
  };

  const refresh = async () => {
    clearTimeout(timer);
    const mine = ++asked;
    try {
      const answer = await fetch("/page/parts?" + query(), { signal: AbortSignal.timeout(ANSWER_MS), cache: "no-store" });
      const text = await answer.text();
      // Another question was asked meanwhile; its answer counts.
      if (mine !== asked) return;
      if (answer.ok) {
        const parts = new DOMParser().parseFromString(text, "text/html");
        for (const part of [...parts.body.children]) replace(part);
        fresh();
      } else if (answer.status === 401) {
        old("signed out: reload the page to sign in");
      } else {
        const page = new DOMParser().parseFromString(text, "text/html");
        old(page.querySelector("main p")?.textContent ?? `the controller answers with ${answer.status}`);
      }
    } catch {
      if (mine === asked) old("the controller does not answer");
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
      else show(told.error ?? `the controller answers with ${answer.status}`, true);
    } catch {
      show("the controller does not answer: it is not known whether the order was taken", true);
    }
    // The part may have been replaced meanwhile.
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
  // What is there was rendered just now.
  fresh();
  timer = setTimeout(refresh, EVERY_MS);
})();
