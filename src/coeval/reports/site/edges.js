// A shadow at the edges where a table that is moved to and fro is cut.

function watchEdges(scroller) {
  const tell = () => {
    const hidden = scroller.scrollWidth - scroller.clientWidth;
    scroller.parentElement?.classList.toggle("cut-left", scroller.scrollLeft > 1);
    scroller.parentElement?.classList.toggle("cut-right", scroller.scrollLeft < hidden - 1);
  };
  scroller.addEventListener("scroll", tell, { passive: true });
  const sizes = new ResizeObserver(tell);
  for (const each of [scroller, ...scroller.children]) sizes.observe(each);
}
