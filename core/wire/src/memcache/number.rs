//! Numbers in text: read as C's strtol reads a whole word, written without an allocation.

use bytes::{BufMut, BytesMut};

/// Digits, with an optional plus. As strtoull does, a minus counts down from 2⁶⁴; as memcached does, what then looks
/// negative is refused: "-0" is a number, "-1" is none.
pub(super) fn unsigned(word: &[u8]) -> Option<u64> {
    match word.split_first()? {
        (b'+', digits) => natural(digits),
        (b'-', digits) => {
            natural(digits).map(u64::wrapping_neg).filter(|&number| i64::try_from(number).is_ok())
        }
        _digit => natural(word),
    }
}

/// Digits alone.
fn natural(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Digits, with an optional sign.
pub(super) fn signed(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        Some(digits) => 0i64.checked_sub_unsigned(natural(digits)?),
        None => i64::try_from(unsigned(word)?).ok(),
    }
}

/// A number in decimal, on the stack.
pub(super) struct Decimal {
    digits: [u8; DIGITS_MAX],
    start: usize,
}

impl Decimal {
    pub fn of(mut number: u64) -> Decimal {
        let mut decimal = Decimal { digits: [b'0'; DIGITS_MAX], start: DIGITS_MAX };
        loop {
            decimal.start -= 1;
            decimal.digits[decimal.start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return decimal;
            }
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

/// Appends a number in decimal.
pub(super) fn put(number: u64, out: &mut BytesMut) {
    out.put_slice(Decimal::of(number).as_bytes());
}

/// 2⁶⁴ − 1 has twenty.
const DIGITS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_numbers() {
        let table: [(&str, Option<u64>, Option<i64>); 15] = [
            ("0", Some(0), Some(0)),
            ("007", Some(7), Some(7)),
            ("+7", Some(7), Some(7)),
            ("-7", None, Some(-7)),
            ("-+7", None, None),
            ("+-7", None, None),
            ("-0", Some(0), Some(0)),
            ("-18446744073709551614", Some(2), None),
            ("", None, None),
            ("+", None, None),
            ("-", None, None),
            ("7x", None, None),
            ("18446744073709551615", Some(u64::MAX), None),
            ("18446744073709551616", None, None),
            ("-9223372036854775808", None, Some(i64::MIN)),
        ];
        for (word, natural, integer) in table {
            assert_eq!(unsigned(word.as_bytes()), natural, "{word}");
            assert_eq!(signed(word.as_bytes()), integer, "{word}");
        }
    }

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 9, 10, 12345, u64::MAX] {
            assert_eq!(Decimal::of(number).as_bytes(), number.to_string().as_bytes());
        }
    }
}
