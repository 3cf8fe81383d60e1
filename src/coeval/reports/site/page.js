// What the page does once it is there.

const darkSystem = window.matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkSystem.matches);

document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  redraw();
});
darkSystem.addEventListener("change", redraw);
document.getElementById("print").addEventListener("click", () => window.print());

function openTarget() {
  const target = document.getElementById(location.hash.slice(1).split("?")[0]);
  if (target instanceof HTMLDetailsElement) target.open = true;
}
window.addEventListener("hashchange", openTarget);
openTarget();

watchPictures();
