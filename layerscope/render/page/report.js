"use strict";

// Charts are SVG in colours that the style sheet gives: neither a change of theme nor
// printing draws them anew. Expressions are interpreted, so nothing in a specification
// can become code.
const options = {
  actions: false,
  ast: true,
  renderer: "svg",
  tooltip: { disableDefaultStyle: true },
};
const narrowPixels = 560; // below it, no room is left for values beside the bars
const zoomStep = 1.6;
const moveStep = 0.25;

async function draw(script) {
  const drawing = document.getElementById(script.dataset.draws);
  const spec = JSON.parse(script.textContent);
  if (drawing.clientWidth < narrowPixels) makeNarrow(spec);
  try {
    const { view } = await vegaEmbed(drawing.firstElementChild, spec, options);
    addZoom(drawing, view);
    drawing.dataset.drawn = "true";
  } catch (error) {
    drawing.textContent = `This chart could not be drawn (${error.message}). Its numbers are in the tables.`;
  }
}

function makeNarrow(spec) {
  spec.config.legend.columns = 2;
  dropValues(spec);
}

// Values on an axis to the right are in the table too.
function dropValues(spec) {
  for (const layer of spec.layer ?? []) {
    const axis = layer.encoding?.y?.axis;
    if (axis?.orient === "right") axis.labels = false;
    dropValues(layer);
  }
}

// Charts that can be zoomed by pointer can be by keyboard. The wheel scrolls the page
// until Ctrl is held or the chart has been clicked.
function addZoom(drawing, view) {
  const signals = view.getState({ signals: (name) => name === "zoom_tuple_fields" }).signals;
  const field = signals.zoom_tuple_fields?.[0]?.field;
  if (!field) return;
  const shown = () => view.scale("x").domain();
  const show = (domain) => view.signal(`zoom_${field}`, domain).runAsync();
  const scale = (factor) => {
    const [low, high] = shown();
    const half = ((high - low) * factor) / 2;
    show([(low + high) / 2 - half, (low + high) / 2 + half]);
  };
  const move = (part) => {
    const [low, high] = shown();
    show([low + (high - low) * part, high + (high - low) * part]);
  };
  const bar = document.createElement("div");
  bar.className = "zoom";
  bar.role = "group";
  bar.ariaLabel = `Zoom: ${drawing.dataset.name}`;
  const steps = [
    ["+", "Zoom in", () => scale(1 / zoomStep)],
    ["−", "Zoom out", () => scale(zoomStep)],
    ["←", "Earlier", () => move(-moveStep)],
    ["→", "Later", () => move(moveStep)],
    ["all", "Show all", () => show(null)],
  ];
  for (const [text, label, act] of steps) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.ariaLabel = label;
    button.addEventListener("click", act);
    bar.append(button);
  }
  bar.title = "Dragging moves the chart. The wheel zooms with Ctrl, or after a click.";
  drawing.before(bar);
  drawing.tabIndex = -1;
  const scrolls = (event) => {
    if (!event.ctrlKey && !drawing.contains(document.activeElement)) event.stopPropagation();
  };
  drawing.addEventListener("wheel", scrolls, { capture: true });
}

function openForPrint(isPrinting) {
  for (const details of document.querySelectorAll("details:not(.long)")) {
    if (isPrinting) {
      details.dataset.wasOpen = details.open;
      details.open = true;
    } else {
      details.open = details.dataset.wasOpen === "true";
    }
  }
}

addEventListener("beforeprint", () => openForPrint(true));
addEventListener("afterprint", () => openForPrint(false));
document.querySelectorAll("script[data-draws]").forEach(draw);
