// Line charts in SVG: axes, a crosshair with values, and a table behind them.
import { h, svg, fill } from './dom.js';
import { t, clock, minute, day, time, short } from './i18n.js';

const HEIGHT = 168;
const PAD = { left: 46, right: 10, top: 10, bottom: 22 };

/** Round steps for an axis from 0 to the largest value. */
export function ticks(max, wanted = 4) {
  if (!(max > 0)) return [0, 1];
  const rough = max / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let value = 0; value < max + step; value += step) found.push(value);
  return found;
}

/**
 * @param {{label: string, series: Array<{name: string, points: Array<[number, number]>}>, since: number, until: number,
 *   format?: (value: number) => string, height?: number}} given times in seconds
 */
export function lineChart(given) {
  const element = h('div.chart');
  const state = { ...given };
  const observer = new ResizeObserver(() => draw());
  observer.observe(element);

  function draw() {
    const width = element.clientWidth;
    if (!width) return;
    const { series, since, until } = state;
    const format = state.format || short;
    const height = state.height || HEIGHT;
    const inner = { w: width - PAD.left - PAD.right, h: height - PAD.top - PAD.bottom };
    const max = Math.max(0, ...series.flatMap((one) => one.points.map((point) => point[1])));
    const steps = ticks(max);
    const top = steps.at(-1);
    const x = (at) => PAD.left + ((at - since) / Math.max(1, until - since)) * inner.w;
    const y = (value) => PAD.top + inner.h - (value / top) * inner.h;
    const picture = svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': state.label });
    for (const step of steps) {
      picture.append(svg('line', { x1: PAD.left, x2: width - PAD.right, y1: y(step), y2: y(step), class: 'grid-line' }),
        svg('text', { x: PAD.left - 6, y: y(step) + 4, 'text-anchor': 'end', class: 'axis' }, format(step)));
    }
    const stamp = until - since > 86400 * 1.5 ? day : until - since > 600 ? minute : clock;
    const marks = Math.max(2, Math.min(6, Math.floor(inner.w / 110)));
    for (let at = 0; at <= marks; at += 1) {
      const when = since + ((until - since) * at) / marks;
      picture.append(svg('text', { x: x(when), y: height - 5, 'text-anchor': at === 0 ? 'start' : at === marks ? 'end' : 'middle', class: 'axis' }, stamp(when * 1000)));
    }
    series.forEach((one, number) => {
      const gap = gapOf(one.points);
      let path = '';
      let start = null;
      let last = null;
      let area = '';
      for (const [at, value] of one.points) {
        const place = `${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
        if (last === null || at - last > gap) {
          if (start !== null) area += `L${x(last).toFixed(1)} ${y(0)}Z`;
          path += `M${place}`;
          area += `M${x(at).toFixed(1)} ${y(0)}L${place}`;
          start = at;
        } else {
          path += `L${place}`;
          area += `L${place}`;
        }
        last = at;
      }
      if (last !== null) area += `L${x(last).toFixed(1)} ${y(0)}Z`;
      picture.append(svg('path', { d: area, class: `area f${number + 1}` }), svg('path', { d: path, class: `line p${number + 1}` }));
    });
    const cross = svg('line', { class: 'cross', y1: PAD.top, y2: PAD.top + inner.h, visibility: 'hidden' });
    picture.append(cross);
    const tip = h('div.tip', { hidden: true });
    picture.addEventListener('pointermove', (event) => hover(event, x, cross, tip, width, format));
    picture.addEventListener('pointerleave', () => { tip.hidden = true; cross.setAttribute('visibility', 'hidden'); });
    const none = series.every((one) => one.points.length < 2);
    if (none) picture.append(svg('text', { x: width / 2, y: height / 2, 'text-anchor': 'middle', class: 'axis' }, t('Collecting figures …')));
    fill(element, picture, tip);
  }

  function hover(event, x, cross, tip, width, format) {
    const left = event.currentTarget.getBoundingClientRect().left;
    const at = event.clientX - left;
    const nearest = state.series.map((one) => one.points.reduce((best, point) => (Math.abs(x(point[0]) - at) < Math.abs(x(best?.[0] ?? -1e9) - at) ? point : best), null));
    const first = nearest.find(Boolean);
    if (!first) return;
    cross.setAttribute('x1', x(first[0]));
    cross.setAttribute('x2', x(first[0]));
    cross.setAttribute('visibility', 'visible');
    fill(tip, h('div.muted', time(first[0] * 1000)), nearest.map((point, number) => point && h('div', h(`i.k${number + 1}`), `${state.series[number].name} `, h('strong', format(point[1])))));
    tip.hidden = false;
    const place = x(first[0]);
    tip.style.left = place > width / 2 ? '' : `${place + 12}px`;
    tip.style.right = place > width / 2 ? `${width - place + 12}px` : '';
  }

  return {
    el: element,
    update(more) { Object.assign(state, more); draw(); },
  };
}

/** Longer pauses than this are holes in the line. */
function gapOf(points) {
  if (points.length < 3) return Infinity;
  const steps = points.slice(1).map((point, at) => point[0] - points[at][0]).sort((a, b) => a - b);
  return Math.max(90, steps[Math.floor(steps.length / 2)] * 4);
}

/** A card body with legend, chart and the table behind it. */
export function chartBox(label, names, format) {
  const chart = lineChart({ label, series: names.map((name) => ({ name, points: [] })), since: 0, until: 1, format });
  const rows = h('tbody');
  const behind = h('details.as-table', { ontoggle: () => drawTable() }, h('summary', t('As a table')),
    h('div.scroll', h('table', h('thead', h('tr', h('th', { scope: 'col' }, t('Time')), names.map((name) => h('th.right', { scope: 'col' }, name)))), rows)));
  let data = null;
  function drawTable() {
    if (!behind.open || !data) return;
    const times = [...new Set(data.series.flatMap((one) => one.points.map((point) => point[0])))].sort((a, b) => b - a).slice(0, 120);
    const maps = data.series.map((one) => new Map(one.points));
    fill(rows, times.map((at) => h('tr', h('td', time(at * 1000)), maps.map((map) => h('td.right', map.has(at) ? (format || short)(map.get(at)) : '–')))));
  }
  const legend = names.length > 1 && h('div.legend', names.map((name, number) => h('span', h(`i.k${number + 1}`), name)));
  return {
    el: h('div.body.stack', legend, chart.el, behind),
    /** @param {any} history the answer of /history */
    update(history) {
      data = { series: history.series.map((one, number) => ({ name: names[number], points: one.points })) };
      const first = Math.min(history.until_s - 60, ...data.series.flatMap((one) => one.points.slice(0, 1).map((point) => point[0])));
      chart.update({ series: data.series, since: Math.max(history.since_s, first), until: history.until_s });
      drawTable();
    },
  };
}

/** A line of 80 pixels without axes. */
export function spark(points) {
  const width = 80, height = 20;
  if (points.length < 2) return h('span.muted', '–');
  const max = Math.max(1e-9, ...points.map((point) => point[1]));
  const first = points[0][0], last = points.at(-1)[0];
  const d = points.map(([at, value], number) => `${number ? 'L' : 'M'}${(((at - first) / Math.max(1, last - first)) * width).toFixed(1)} ${(height - 2 - (value / max) * (height - 4)).toFixed(1)}`).join('');
  return svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true' }, svg('path', { d, class: 'line p1' }));
}
