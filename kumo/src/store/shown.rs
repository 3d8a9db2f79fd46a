//! How the store's tools write what people read: times and amounts.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use kumo_cluster::Clock;
use std::time::Duration;

/// A hash space's time as the seed prints it: local, with its offset, and the clock's counter. (Seed 000, 3.1)
pub fn timestamp(clock: Clock) -> String {
    timestamp_in(clock, TimeZone::system())
}

fn timestamp_in(clock: Clock, zone: TimeZone) -> String {
    let time = Timestamp::from_second(i64::from(clock.unix_seconds()))
        .expect("32 bits of seconds are within the calendar")
        .to_zoned(zone);
    format!("{} clock {}", time.strftime("%a %b %d %H:%M:%S %z %Y"), clock.counter())
}

/// A moment in milliseconds, local, as a line of a log has it.
pub fn moment(unix_millis: u64) -> String {
    let stamp = i64::try_from(unix_millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    match stamp {
        Some(stamp) => stamp.to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string(),
        None => format!("{unix_millis} ms"),
    }
}

/// Today, as the default suffix of a backup.
pub fn today() -> String {
    jiff::Zoned::now().strftime("%Y%m%d").to_string()
}

/// `1.5 MiB`; below 1 KiB just bytes.
pub fn bytes(amount: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if amount < 1024 {
        return format!("{amount} B");
    }
    let mut scaled = amount as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

/// `10M`: bytes, with or without one of the units K, M, G (of 1024).
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("not a number of bytes: {text} (units are K, M and G)");
    let lower = text.to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").or(lower.strip_suffix('b')).unwrap_or(&lower);
    let (digits, shift) = match lower.char_indices().next_back() {
        Some((at, 'k')) => (&lower[..at], 10),
        Some((at, 'm')) => (&lower[..at], 20),
        Some((at, 'g')) => (&lower[..at], 30),
        _digit => (lower, 0),
    };
    let number: f64 = digits.parse().map_err(|_| bad())?;
    let amount = number * f64::from(1u32 << shift);
    if !(0.0..AMOUNT_MAX).contains(&amount) {
        return Err(bad());
    }
    Ok(amount as u64)
}

/// `1 h 02 min`, `3 min 05 s`, `7 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

/// What fits an f64 exactly.
const AMOUNT_MAX: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::Offset;

    #[test]
    fn the_time_of_a_hash_space_is_the_seeds() {
        let clock = Clock(1_228_310_145 << 32 | 58);
        let tokyo = TimeZone::fixed(Offset::constant(9));
        assert_eq!(timestamp_in(clock, tokyo), "Wed Dec 03 22:15:45 +0900 2008 clock 58");
    }

    #[test]
    fn amounts_are_read_as_they_are_written() {
        for (text, amount) in [
            ("0", 0),
            ("1000", 1000),
            ("1K", 1024),
            ("1.5m", 3 << 19),
            ("2G", 2 << 30),
            ("8KiB", 8192),
            ("7MB", 7 << 20),
        ] {
            assert_eq!(parse_bytes(text), Ok(amount), "{text}");
        }
        for text in ["", "K", "-1", "1e300", "NaN", "12x", "é"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        for (amount, text) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 19, "1.5 MiB"), (u64::MAX, "16384.0 PiB")]
        {
            assert_eq!(bytes(amount), text);
        }
    }

    #[test]
    fn durations_are_short() {
        for (seconds, text) in [(7, "7 s"), (185, "3 min 05 s"), (3720, "1 h 02 min")] {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
    }
}
