"use strict";
// Tabs: show one strategy at a time. Without this script all strategies are visible.
(() => {
  const list = document.querySelector(".tabs");
  if (!list || list.children.length < 2) return;
  const tabs = [...list.children];
  const panel = (tab) => document.getElementById(tab.getAttribute("aria-controls"));
  const select = (tab) => {
    for (const t of tabs) {
      const on = t === tab;
      t.setAttribute("aria-selected", on);
      t.tabIndex = on ? 0 : -1;
      panel(t).hidden = !on;
    }
  };
  const follow = () => {
    const tab = tabs.find((t) => "#" + t.getAttribute("aria-controls") === location.hash);
    if (tab) { select(tab); panel(tab).scrollIntoView(); }
  };
  tabs.forEach((t, i) => {
    panel(t).setAttribute("role", "tabpanel");
    t.addEventListener("click", () => select(t));
    t.addEventListener("keydown", (e) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
      if (!step) return;
      const next = tabs[(i + step + tabs.length) % tabs.length];
      select(next);
      next.focus();
    });
  });
  list.hidden = false;
  select(tabs[tabs.length - 1]);
  addEventListener("hashchange", follow);
  follow();
})();
// Readout: computes values from the drawn points.
for (const plot of document.querySelectorAll("svg.plot")) {
  const d = plot.dataset;
  const [left, right, top_, bottom, end, from, to] =
    ["left", "right", "top", "bottom", "endS", "from", "to"].map((k) => Number(d[k]));
  const figure = plot.closest("figure");
  const cursor = plot.querySelector(".cursor");
  const lines = [...plot.querySelectorAll("path.line")].map((p) =>
    [...p.getAttribute("d").matchAll(/[ML]([\d.]+),([\d.]+)/g)].map((m) => [Number(m[1]), Number(m[2])]));
  const value = (y) => {
    const share = (bottom - y) / (bottom - top_);
    return d.log ? from * Math.pow(to / from, share) : from + (to - from) * share;
  };
  const box = document.createElement("div");
  box.className = "readout";
  box.setAttribute("role", "status");
  box.hidden = true;
  figure.append(box);
  const when = box.appendChild(document.createElement("div"));
  const values = [...figure.querySelectorAll(".legend li")].map((item) => {
    const row = box.appendChild(document.createElement("div"));
    row.append(...[...item.childNodes].map((n) => n.cloneNode(true)));
    return row.appendChild(document.createElement("b"));
  });
  let at = null;
  const show = (x) => {
    at = Math.min(right, Math.max(left, x));
    let snapped = at;
    lines.forEach((points, i) => {
      let best = null;
      for (const p of points) if (!best || Math.abs(p[0] - at) < Math.abs(best[0] - at)) best = p;
      const near = best && Math.abs(best[0] - at) <= 12 ? best : null;
      values[i].textContent = near ? Number(value(near[1]).toPrecision(3)) + " " + d.unit : "–";
      if (near) snapped = near[0];
    });
    when.textContent = "at " + (((snapped - left) / (right - left)) * end).toFixed(1) + " s";
    cursor.setAttribute("x1", snapped);
    cursor.setAttribute("x2", snapped);
    box.hidden = false;
    // Next to the cursor, on the side with more space.
    const area = figure.getBoundingClientRect();
    const drawn = plot.getBoundingClientRect();
    const px = drawn.left - area.left + (snapped / plot.viewBox.baseVal.width) * drawn.width;
    box.style.top = drawn.top - area.top + 12 + "px";
    box.style.left = px < area.width / 2 ? px + 12 + "px" : px - 12 - box.offsetWidth + "px";
  };
  const hide = () => {
    box.hidden = true;
    cursor.setAttribute("x1", -9);
    cursor.setAttribute("x2", -9);
  };
  plot.addEventListener("pointermove", (e) => {
    const drawn = plot.getBoundingClientRect();
    show(((e.clientX - drawn.left) / drawn.width) * plot.viewBox.baseVal.width);
  });
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (e) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (e.key === "Escape") hide();
    if (!step) return;
    e.preventDefault();
    show((at ?? left) + (step * (right - left)) / 100);
  });
}
