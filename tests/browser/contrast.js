() => {
  // Faults a reader meets: faint text, controls without a name, several h1, tables without headers.
  const found = [];
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 1;
  const context = canvas.getContext('2d', { willReadFrequently: true });
  const rgba = (color) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([r, g, b]) => {
    const part = [r, g, b].map((value) => {
      const one = value / 255;
      return one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color[3] > 250) return color;
    }
    return [255, 255, 255, 255];
  };
  const seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || seen.has(element)) continue;
    seen.add(element);
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    if (!element.checkVisibility({ visibilityProperty: true }) || !box.width || element.closest('.stale, :disabled, noscript, svg, .skip, option, .visually-hidden')) continue;
    const [a, b] = [luminance(rgba(style.color)), luminance(behind(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.45) found.push(`contrast ${ratio.toFixed(2)} of "${walker.currentNode.textContent.trim().slice(0, 40)}"`);
  }
  for (const control of document.querySelectorAll('button, input, select, textarea, a[href]')) {
    if (!control.checkVisibility({ visibilityProperty: true }) || control.closest('.skip')) continue;
    const name = control.getAttribute('aria-label') || control.innerText || control.title || control.labels?.[0]?.textContent || control.textContent;
    if (!name?.trim()) found.push(`no name: ${control.outerHTML.slice(0, 80)}`);
  }
  if (document.querySelectorAll('main h1').length !== 1) found.push('not exactly one h1');
  if (!document.querySelector('main') || !document.querySelector('nav')) found.push('landmarks are missing');
  return found.slice(0, 8);
}
