// Numbers and times in words for people.

const NONE = "–";
const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export function count(number) {
  return number === null || number === undefined ? NONE : COUNT.format(number);
}

/** Three digits that matter: 0.118, 12.3, 1,230. */
export function short(number) {
  if (number === null || number === undefined) {
    return NONE;
  }
  return Math.abs(number) >= 100 ? COUNT.format(number) : SHORT.format(number);
}

export function bytes(number) {
  if (number === null || number === undefined) {
    return NONE;
  }
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? COUNT.format(number) : SHORT.format(number)} ${units[unit]}`;
}

export function percent(part) {
  if (part === null || part === undefined) {
    return NONE;
  }
  const hundred = part * 100;
  return `${hundred > 0 && hundred < 1 ? "< 1" : COUNT.format(hundred)}\u00a0%`;
}

/** A length of time: its largest two units. */
export function span(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) {
    return NONE;
  }
  const seconds = milliseconds / 1000;
  if (seconds < 1) {
    return `${short(milliseconds)} ms`;
  }
  if (seconds < 60) {
    return `${SHORT.format(seconds)} s`;
  }
  const whole = Math.round(seconds);
  const units = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => whole >= size);
  const [name, size] = units[first];
  const [nextName, nextSize] = units[first + 1];
  const rest = Math.floor((whole % size) / nextSize);
  return `${Math.floor(whole / size)} ${name}${rest > 0 ? ` ${rest} ${nextName}` : ""}`;
}

export function latency(milliseconds) {
  return milliseconds === null || milliseconds === undefined ? NONE : `${short(milliseconds)} ms`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DATE = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });

export function clock(at) {
  return CLOCK.format(new Date(at));
}

export function date(at) {
  return at === null || at === undefined ? NONE : DATE.format(new Date(at));
}

/** "1 server", "2 servers". */
export function counted(number, one, many = `${one}s`) {
  return `${COUNT.format(number)} ${number === 1 ? one : many}`;
}
