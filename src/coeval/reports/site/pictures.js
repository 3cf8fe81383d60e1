// Pictures are drawn when they come into view; until then nothing of Vega is unpacked.

const drawn = new Map();

async function draw(figure) {
  const report = await jsonBlock("report");
  await scriptBlock("vega");
  const name = figure.dataset.picture;
  const { spec, table } = report.pictures[name];
  const place = figure.querySelector(".drawing");
  const result = await window.vegaEmbed(place, spec, {
    actions: false,
    ast: true,
    renderer: "svg",
    defaultStyle: false,
    config: report.themes[isDark() ? "dark" : "light"],
    tooltip: { disableDefaultStyle: true },
    patch: (vega) => {
      for (const data of vega.data) if (data.name === table) data.values = report.tables[table].rows;
      return vega;
    },
  });
  drawn.get(figure)?.finalize();
  drawn.set(figure, result);
}

function redraw() {
  for (const figure of drawn.keys()) draw(figure);
}

function watchPictures() {
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        watcher.unobserve(target);
        draw(target);
      }
    },
    { rootMargin: "200px" },
  );
  for (const figure of document.querySelectorAll("figure[data-picture]")) watcher.observe(figure);
}
