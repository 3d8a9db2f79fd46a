//! What the operations make of an old value, as pure functions of it. The owner of a key applies them.

use super::number::Decimal;
use super::request::Sign;
use bytes::{Bytes, BytesMut};

/// The item's value is not a number of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot increment or decrement non-numeric value")]
pub struct NotNumeric;

/// The number after an increment or decrement, and the value to store for it.
/// An increment wraps at 2⁶⁴, a decrement stops at 0.
///
/// memcached overwrites a number in place and fills what is left of the old one with spaces ("10" less 1 reads
/// "9 "), and warns clients not to rely on it. A record here is written anew anyway: it has the digits alone.
pub fn arithmetic(old: &[u8], sign: Sign, delta: u64) -> Result<(u64, Bytes), NotNumeric> {
    let old = parse(old).ok_or(NotNumeric)?;
    let new = match sign {
        Sign::Increment => old.wrapping_add(delta),
        Sign::Decrement => old.saturating_sub(delta),
    };
    Ok((new, Bytes::copy_from_slice(Decimal::of(new).as_bytes())))
}

/// `old`, then `tail`; `None` when that is above `value_bytes_max`, to which memcached answers `NOT_STORED`.
pub fn appended(old: &[u8], tail: &[u8], value_bytes_max: usize) -> Option<Bytes> {
    let length = old.len().checked_add(tail.len()).filter(|&length| length <= value_bytes_max)?;
    let mut value = BytesMut::with_capacity(length);
    value.extend_from_slice(old);
    value.extend_from_slice(tail);
    Some(value.freeze())
}

/// `head`, then `old`; `None` as for [`appended`].
pub fn prepended(old: &[u8], head: &[u8], value_bytes_max: usize) -> Option<Bytes> {
    appended(head, old, value_bytes_max)
}

/// Reads a stored number as memcached's strtoull does: white space before it, a plus, and anything after white space
/// or a zero byte behind it are passed over ("5 xy" is 5; values padded by memcached itself are read that way).
fn parse(value: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = value.iter().position(|byte| !is_space(byte))?;
    let word = value[start..].split(|byte| *byte == 0 || is_space(byte)).next()?;
    super::number::unsigned(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_memcached_reads_them() {
        let table: [(&str, Option<u64>); 24] = [
            ("5", Some(6)),
            (" 5", Some(6)),
            ("5 ", Some(6)),
            ("5 xy", Some(6)),
            ("\t5", Some(6)),
            ("5\tx", Some(6)),
            ("5\0x", Some(6)),
            ("\x005", None),
            ("5x", None),
            ("  +5", Some(6)),
            ("+ 5", None),
            ("-0", Some(1)),
            ("0x10", None),
            ("1e3", None),
            ("+5", Some(6)),
            ("010", Some(11)),
            ("000000000000000000005", Some(6)),
            ("18446744073709551615", Some(0)),
            ("18446744073709551616", None),
            ("-5", None),
            ("1.5", None),
            ("", None),
            (" ", None),
            ("abc", None),
        ];
        for (old, expected) in table {
            let new = arithmetic(old.as_bytes(), Sign::Increment, 1);
            assert_eq!(new.map(|(number, _)| number).ok(), expected, "{old:?}");
        }
    }

    #[test]
    fn a_decrement_stops_at_zero_and_leaves_no_spaces() {
        assert_eq!(arithmetic(b"10", Sign::Decrement, 1), Ok((9, Bytes::from_static(b"9"))));
        assert_eq!(arithmetic(b"10", Sign::Decrement, 11), Ok((0, Bytes::from_static(b"0"))));
    }

    #[test]
    fn the_limit_holds_for_the_sum() {
        assert_eq!(appended(b"ab", b"c", 3), Some(Bytes::from_static(b"abc")));
        assert_eq!(prepended(b"ab", b"c", 3), Some(Bytes::from_static(b"cab")));
        assert_eq!(appended(b"ab", b"cd", 3), None);
    }
}
