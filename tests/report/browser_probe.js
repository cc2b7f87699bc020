// Measures the page that it stands in, for tests/report/browser.py.
const luminance = rgb => {
  const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const colour = text => (text.match(/[\d.]+/g) || []).map(Number);
const ground = element => {
  for (let one = element; one; one = one.parentElement) {
    const found = colour(getComputedStyle(one).backgroundColor);
    if (found.length === 3 || (found.length === 4 && found[3] === 1)) return found;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
};
const texts = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, element = node.parentElement;
  if (!node.textContent.trim() || element.closest("script, style, title, .unseen, [hidden]")) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  const box = range.getBoundingClientRect();
  if (box.width && box.height) texts.push({ element, box, words: node.textContent.trim().slice(0, 40) });
}
const tell = one => `${one.words} <${one.element.tagName.toLowerCase()}.${one.element.getAttribute("class") || ""}>`;
const cut = texts.filter(one => {
  if (one.box.right > innerWidth + 0.5 && !one.element.closest(".scroll")) return true;
  for (let box = one.element; box; box = box.parentElement) {
    const right = box.getBoundingClientRect().right + 0.5;
    if (getComputedStyle(box).overflowX === "hidden" && one.box.right > right) return true;
  }
  return false;
}).map(tell);
const faint = [], small = [];
for (const one of texts) {
  const drawn = getComputedStyle(one.element), back = luminance(ground(one.element));
  const front = luminance(colour(one.element.closest("svg") ? drawn.fill : drawn.color).slice(0, 3));
  const contrast = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
  if (contrast < LEAST_CONTRAST) faint.push(`${tell(one)} ${contrast.toFixed(1)}`);
  const svg = one.element.closest("svg");
  const scale = svg ? svg.getScreenCTM().a : 1;
  const px = parseFloat(drawn.fontSize) * scale;
  if (px < LEAST_TEXT_PX) small.push(`${tell(one)} ${px.toFixed(1)} px`);
}
const overlapping = [];
for (let n = 0; n < texts.length; n++) for (let m = n + 1; m < texts.length; m++) {
  const a = texts[n].box, b = texts[m].box;
  const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
  const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
  if (x > 1 && y > 0.4 * Math.min(a.height, b.height) && texts[n].element !== texts[m].element
      && !texts[n].element.contains(texts[m].element) && !texts[m].element.contains(texts[n].element))
    overlapping.push(`${tell(texts[n])} / ${tell(texts[m])}`);
}
const scrolled = [...document.querySelectorAll(".scroll")].filter(box => box.scrollWidth > box.clientWidth + 1)
  .map(box => `${box.getAttribute("aria-label") || box.firstElementChild.tagName} by ${box.scrollWidth - box.clientWidth} px`);
parent.postMessage(JSON.stringify({ width: innerWidth, height: Math.ceil(document.body.getBoundingClientRect().height),
  sideways: document.documentElement.scrollWidth - innerWidth, cut, faint, small, overlapping, scrolled }), "*");
