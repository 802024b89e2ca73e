"use strict";
// Tabs: one strategy at a time. Without this script all of them follow one another.
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
// Readout: values are computed back from the drawn points.
for (const plot of document.querySelectorAll("svg.plot")) {
  const d = plot.dataset;
  const [left, right, top_, bottom, end, from, to] =
    ["left", "right", "top", "bottom", "endS", "from", "to"].map((k) => Number(d[k]));
  const legend = plot.closest("figure").querySelector(".legend");
  const outputs = [...legend.querySelectorAll("output")];
  const cursor = plot.querySelector(".cursor");
  const lines = [...plot.querySelectorAll("path.line")].map((p) =>
    [...p.getAttribute("d").matchAll(/[ML]([\d.]+),([\d.]+)/g)].map((m) => [Number(m[1]), Number(m[2])]));
  const value = (y) => {
    const share = (bottom - y) / (bottom - top_);
    return d.log ? from * Math.pow(to / from, share) : from + (to - from) * share;
  };
  let at = null;
  const show = (x) => {
    at = Math.min(right, Math.max(left, x));
    let snapped = at;
    lines.forEach((points, i) => {
      let best = null;
      for (const p of points) if (!best || Math.abs(p[0] - at) < Math.abs(best[0] - at)) best = p;
      const near = best && Math.abs(best[0] - at) <= 12 ? best : null;
      outputs[i].textContent = near ? Number(value(near[1]).toPrecision(3)) + " " + d.unit : "–";
      if (near) snapped = near[0];
    });
    outputs[outputs.length - 1].textContent = "at " + (((snapped - left) / (right - left)) * end).toFixed(1) + " s";
    cursor.setAttribute("x1", snapped);
    cursor.setAttribute("x2", snapped);
  };
  const hide = () => {
    for (const o of outputs) o.textContent = "";
    cursor.setAttribute("x1", -9);
    cursor.setAttribute("x2", -9);
  };
  plot.addEventListener("pointermove", (e) => {
    const box = plot.getBoundingClientRect();
    show(((e.clientX - box.left) / box.width) * plot.viewBox.baseVal.width);
  });
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (e) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!step) return;
    e.preventDefault();
    show((at ?? left) + (step * (right - left)) / 100);
  });
}
